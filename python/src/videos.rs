//! The tables of videos, and the indexes of videos beside datasets.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardmill_core::ErrorKind;
use shardmill_dataset::mp4::{Mp4Problem, header_of, read_track};
use shardmill_dataset::{Dataset, OpenOptions, Videos};
use shardmill_storage::Location;

use crate::errors::{raise, raise_with};
use crate::storage::{Settings, remote_options};
use crate::waiting::wait;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<VideoTables>()?;
    module.add_function(wrap_pyfunction!(video_header, module)?)?;
    module.add_function(wrap_pyfunction!(video_tables, module)?)?;
    module.add_function(wrap_pyfunction!(stored_videos, module)?)
}

/// The frames of a video track, in the order in which they are decoded. Numbers are little-endian, of 64 bits.
#[pyclass(frozen, get_all, module = "shardmill._core")]
struct VideoTables {
    codec: &'static str,
    extradata: Py<PyBytes>,
    timescale: u32,
    offsets: Py<PyBytes>,
    sizes: Py<PyBytes>,
    decode_times: Py<PyBytes>,
    times: Py<PyBytes>,
    keyframes: Py<PyBytes>,
    shown: Py<PyBytes>,
}

/// Returns the range of the header of a whole MP4 file, and checks that its track can be read.
#[pyfunction]
fn video_header(py: Python<'_>, file: &[u8]) -> PyResult<(u64, u64)> {
    let range = py.detach(|| header_of(file)).map_err(refused)?;
    Ok((range.start, range.end))
}

/// Reads the first video track from a header. `file_bytes` is the length of the file.
#[pyfunction]
fn video_tables(py: Python<'_>, header: &[u8], file_bytes: u64) -> PyResult<VideoTables> {
    let track = py
        .detach(|| read_track(header, file_bytes))
        .map_err(refused)?;
    let unsigned = |values: &[u64]| packed(py, values.iter().map(|value| value.to_le_bytes()));
    let signed = |values: &[i64]| packed(py, values.iter().map(|value| value.to_le_bytes()));
    Ok(VideoTables {
        codec: track.codec,
        extradata: PyBytes::new(py, &track.extradata).unbind(),
        timescale: track.timescale,
        offsets: unsigned(&track.offsets),
        sizes: unsigned(&track.sizes),
        decode_times: signed(&track.decode_times),
        times: signed(&track.times),
        keyframes: unsigned(&track.keyframes),
        shown: unsigned(&track.shown),
    })
}

fn packed(py: Python<'_>, values: impl Iterator<Item = [u8; 8]>) -> Py<PyBytes> {
    let bytes: Vec<u8> = values.flatten().collect();
    PyBytes::new(py, &bytes).unbind()
}

fn refused(problem: Mp4Problem) -> PyErr {
    match problem {
        Mp4Problem::Damaged(reason) => raise_with(
            ErrorKind::Corrupt,
            "video-damaged",
            format!("the MP4 file is damaged: {reason}"),
        ),
        Mp4Problem::Unsupported(reason) => raise_with(
            ErrorKind::Unsupported,
            "video-format",
            format!("the video cannot be read in parts: {reason}"),
        ),
    }
}

/// Returns the bytes of the index of videos beside the index of a dataset; `None` if there is none.
#[pyfunction]
#[pyo3(signature = (path, column, settings=None))]
fn stored_videos<'py>(
    py: Python<'py>,
    path: &str,
    column: String,
    settings: Option<Settings>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let location = Location::parse(path).map_err(|error| raise(&error))?;
    let remote = remote_options(settings).map_err(|error| raise(&error))?;
    let read = wait(py, move || {
        match Dataset::open_at(&location, &OpenOptions::default(), &remote) {
            Ok(dataset) => Videos::of(&dataset, &column),
            // Tar files, for example. The caller opens the dataset, too, and reports what is wrong with it.
            Err(_) => Ok(None),
        }
    })?;
    let found = read.map_err(|error| raise(&error))?;
    Ok(found.map(|videos| PyBytes::new(py, &videos.to_bytes())))
}
