//! The tables of videos, and the indexes of videos beside datasets.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardmill_core::ErrorKind;
use shardmill_dataset::mp4::{Mp4Problem, header_of, read_track};
use shardmill_dataset::{Dataset, OpenOptions, Videos};
use shardmill_storage::Location;

use crate::block::packed;
use crate::errors::{raise, raise_with};
use crate::storage::{Settings, remote_options};
use crate::waiting::wait;

/// The codec, its extradata, the timescale, and the tables of the frames of a track, as little-endian 64-bit integers:
/// offsets, sizes, decode times, times, keyframes, and the frames in the order in which they are shown.
type VideoTables<'py> = (
    &'static str,
    Bound<'py, PyBytes>,
    u32,
    [Bound<'py, PyBytes>; 6],
);

/// Returns the range of the header of a whole MP4 file, and checks that its track can be read.
#[pyfunction]
pub(crate) fn video_header(py: Python<'_>, file: &[u8]) -> PyResult<(u64, u64)> {
    let range = py.detach(|| header_of(file)).map_err(refused)?;
    Ok((range.start, range.end))
}

/// Reads the first video track from a header. `file_bytes` is the length of the file.
#[pyfunction]
pub(crate) fn video_tables<'py>(
    py: Python<'py>,
    header: &[u8],
    file_bytes: u64,
) -> PyResult<VideoTables<'py>> {
    let track = py
        .detach(|| read_track(header, file_bytes))
        .map_err(refused)?;
    let unsigned = |values: &[u64]| packed(py, values.iter().map(|value| value.to_le_bytes()));
    let signed = |values: &[i64]| packed(py, values.iter().map(|value| value.to_le_bytes()));
    let tables = [
        unsigned(&track.offsets),
        unsigned(&track.sizes),
        signed(&track.decode_times),
        signed(&track.times),
        unsigned(&track.keyframes),
        unsigned(&track.shown),
    ];
    let extradata = PyBytes::new(py, &track.extradata);
    Ok((track.codec, extradata, track.timescale, tables))
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
pub(crate) fn stored_videos<'py>(
    py: Python<'py>,
    path: &str,
    column: String,
    settings: Option<Settings>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let location = Location::parse(path).map_err(raise)?;
    let remote = remote_options(settings).map_err(raise)?;
    let read = wait(py, move || {
        match Dataset::open_at(&location, &OpenOptions::default(), &remote) {
            Ok(dataset) => Videos::of(&dataset, &column),
            // Tar files, for example. The caller opens the dataset, too, and reports what is wrong with it.
            Err(_) => Ok(None),
        }
    })?;
    let found = read.map_err(raise)?;
    Ok(found.map(|videos| PyBytes::new(py, &videos.to_bytes())))
}
