//! The tables of an MP4 file: where its frames are stored, and when they are shown.
//!
//! Only what an index of videos and its reader need is parsed: boxes, and the tables of the first video track. All numbers
//! are checked against the length of the file before they are used.

use std::collections::BTreeMap;
use std::ops::Range;

/// The type of the box with the configuration of a decoder, if it needs one.
type ConfigurationBox = Option<&'static [u8; 4]>;

/// The decoders of sample entries, by their four-character code, and the box with the decoder's configuration.
const CODECS: [(&[u8; 4], &str, ConfigurationBox); 7] = [
    (b"avc1", "h264", Some(b"avcC")),
    (b"avc3", "h264", Some(b"avcC")),
    (b"hev1", "hevc", Some(b"hvcC")),
    (b"hvc1", "hevc", Some(b"hvcC")),
    (b"av01", "libdav1d", Some(b"av1C")),
    (b"vp09", "vp9", None),
    (b"mp4v", "mpeg4", Some(b"esds")),
];
/// The boxes that an MP4 file begins with.
const FIRST_BOXES: [&[u8; 4]; 6] = [b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide"];
/// Bytes of a video sample entry before its boxes.
const ENTRY_BYTES: usize = 78;
/// The largest header that is read. Its tables take about 16 bytes for each frame.
const MAX_HEADER_BYTES: usize = 256 << 20;
/// A time before all others.
const BEFORE_ALL: i64 = -(1 << 62);

/// Why a video cannot be read in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mp4Problem {
    /// The tables are invalid.
    Damaged(String),
    /// The file has another format, or a form of this one that is not read in parts.
    Unsupported(String),
}

fn damaged<T>(reason: impl Into<String>) -> Result<T, Mp4Problem> {
    Err(Mp4Problem::Damaged(reason.into()))
}

fn unsupported<T>(reason: impl Into<String>) -> Result<T, Mp4Problem> {
    Err(Mp4Problem::Unsupported(reason.into()))
}

/// The frames of the first video track, in the order in which they are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoTrack {
    /// The name of the decoder.
    pub codec: &'static str,
    /// The configuration of the decoder.
    pub extradata: Vec<u8>,
    /// Ticks per second.
    pub timescale: u32,
    /// The first byte of each frame in the file.
    pub offsets: Vec<u64>,
    /// The bytes of each frame.
    pub sizes: Vec<u64>,
    /// When each frame is decoded, in ticks.
    pub decode_times: Vec<i64>,
    /// When each frame is shown, in ticks.
    pub times: Vec<i64>,
    /// The frames that begin a group of pictures.
    pub keyframes: Vec<u64>,
    /// The frames in the order in which they are shown, without those that the edit list leaves out.
    pub shown: Vec<u64>,
}

/// Returns the range of the content of the box `moov` of a whole file, and checks that its track can be read.
///
/// # Errors
///
/// [`Mp4Problem`].
pub fn header_of(file: &[u8]) -> Result<Range<u64>, Mp4Problem> {
    let header = find_header(file)?;
    if header.len() > MAX_HEADER_BYTES {
        return unsupported(format!("its header has {} bytes", header.len()));
    }
    read_track(
        file.get(header.clone()).unwrap_or_default(),
        file.len() as u64,
    )?;
    Ok(header.start as u64..header.end as u64)
}

fn find_header(file: &[u8]) -> Result<Range<usize>, Mp4Problem> {
    let first = file.get(4..8).unwrap_or_default();
    if !FIRST_BOXES.iter().any(|known| known.as_slice() == first) {
        return unsupported("it is not an MP4 file");
    }
    let mut found = None;
    for each in boxes(file, 0..file.len()) {
        let (kind, content) = each?;
        match &kind {
            b"moof" => return unsupported("the MP4 file is fragmented"),
            b"moov" => found = Some(content),
            _ => {}
        }
    }
    match found {
        Some(found) => Ok(found),
        None => damaged("it has no header (`moov`)"),
    }
}

/// Reads the first video track from the content of the box `moov`. `file_bytes` is the length of the file.
///
/// # Errors
///
/// [`Mp4Problem`].
pub fn read_track(header: &[u8], file_bytes: u64) -> Result<VideoTrack, Mp4Problem> {
    let mut movie_scale = 0;
    for each in boxes(header, 0..header.len()) {
        let (kind, content) = each?;
        match &kind {
            b"mvhd" => movie_scale = timescale(header.get(content).unwrap_or_default()),
            b"mvex" => return unsupported("the MP4 file is fragmented"),
            b"trak" => {
                let track = Boxes::new(header, content)?;
                let media = track.inner(b"mdia")?;
                if media.content(b"hdlr")?.get(8..12) == Some(b"vide") {
                    return parse_track(&track, &media, movie_scale, file_bytes);
                }
            }
            _ => {}
        }
    }
    unsupported("it has no video")
}

/// Returns the type of each box in a range of bytes, and the range of its content. Ends after the first error.
fn boxes(
    bytes: &[u8],
    range: Range<usize>,
) -> impl Iterator<Item = Result<([u8; 4], Range<usize>), Mp4Problem>> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let found = one_box(bytes, at, end);
        at = found.as_ref().map_or(end, |(_, content)| content.end);
        Some(found)
    })
}

fn one_box(bytes: &[u8], at: usize, end: usize) -> Result<([u8; 4], Range<usize>), Mp4Problem> {
    let rest = bytes.get(at..end).unwrap_or_default();
    let (Some(size), Some(kind)) = (u32_at(rest, 0), rest.get(4..8)) else {
        return damaged(format!("a box at byte {at} is incomplete"));
    };
    let kind = kind.try_into().unwrap_or_default();
    let (size, head) = match size {
        0 => (rest.len() as u64, 8),
        1 => (u64_at(rest, 8).unwrap_or(0), 16),
        size => (u64::from(size), 8),
    };
    match usize::try_from(size) {
        Ok(size) if size >= head && size <= rest.len() => Ok((kind, at + head..at + size)),
        _ => damaged(format!(
            "a box at byte {at} has {size} bytes, and {} are left",
            rest.len()
        )),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let (value, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    Some(u32::from_be_bytes(*value))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let (value, _) = bytes.get(at..)?.split_first_chunk::<8>()?;
    Some(u64::from_be_bytes(*value))
}

/// The boxes in a box, by type. Of several boxes of a type, the last one.
struct Boxes<'a> {
    header: &'a [u8],
    ranges: BTreeMap<[u8; 4], Range<usize>>,
}

impl<'a> Boxes<'a> {
    fn new(header: &'a [u8], range: Range<usize>) -> Result<Self, Mp4Problem> {
        let ranges = boxes(header, range).collect::<Result<_, _>>()?;
        Ok(Self { header, ranges })
    }

    fn range(&self, kind: &[u8; 4]) -> Result<Range<usize>, Mp4Problem> {
        match self.ranges.get(kind) {
            Some(range) => Ok(range.clone()),
            None => damaged(format!("it has no box `{}`", kind.escape_ascii())),
        }
    }

    fn inner(&self, kind: &[u8; 4]) -> Result<Self, Mp4Problem> {
        Self::new(self.header, self.range(kind)?)
    }

    fn content(&self, kind: &[u8; 4]) -> Result<&'a [u8], Mp4Problem> {
        Ok(self.header.get(self.range(kind)?).unwrap_or_default())
    }

    fn optional(&self, kind: &[u8; 4]) -> Option<&'a [u8]> {
        self.header.get(self.ranges.get(kind)?.clone())
    }
}

/// Returns the ticks per second of the content of a box `mvhd` or `mdhd`.
fn timescale(content: &[u8]) -> u32 {
    let at = if content.first() == Some(&1) { 20 } else { 12 };
    u32_at(content, at).unwrap_or(0)
}

/// Returns the rows of a table of 32-bit numbers. Their number is at byte `at`.
fn table<const COLUMNS: usize>(
    content: &[u8],
    at: usize,
) -> Result<Vec<[u32; COLUMNS]>, Mp4Problem> {
    let rows = u32_at(content, at).unwrap_or(0) as usize;
    let wanted = rows.checked_mul(4 * COLUMNS);
    let body = content.get(at + 4..).unwrap_or_default();
    let Some(body) = wanted.and_then(|wanted| body.get(..wanted)) else {
        return damaged(format!("a table of {rows} rows is incomplete"));
    };
    let (words, _) = body.as_chunks::<4>();
    let (rows, _) = words.as_chunks::<COLUMNS>();
    Ok(rows.iter().map(|row| row.map(u32::from_be_bytes)).collect())
}

/// Returns a value for each frame from rows of counts and values.
fn expanded<T: Copy>(
    rows: impl Iterator<Item = (u32, T)> + Clone,
    frames: usize,
) -> Result<Vec<T>, Mp4Problem> {
    let found: u64 = rows.clone().map(|(count, _)| u64::from(count)).sum();
    if found != frames as u64 {
        return damaged(format!(
            "a table is of {found} frames, and there are {frames}"
        ));
    }
    let values = rows.flat_map(|(count, value)| std::iter::repeat_n(value, count as usize));
    Ok(values.collect())
}

fn parse_track(
    track: &Boxes<'_>,
    media: &Boxes<'_>,
    movie_scale: u32,
    file_bytes: u64,
) -> Result<VideoTrack, Mp4Problem> {
    let timescale = media.optional(b"mdhd").map_or(0, timescale);
    let tables = media.inner(b"minf")?.inner(b"stbl")?;
    let (codec, extradata) = decoder(tables.content(b"stsd")?)?;
    let sizes = frame_sizes(tables.content(b"stsz")?, file_bytes)?;
    let frames = sizes.len();
    if frames == 0 || timescale == 0 {
        return damaged("it has no frames, or no unit of time");
    }
    let durations = table::<2>(tables.content(b"stts")?, 4)?;
    let durations = durations.iter().map(|[count, ticks]| (*count, *ticks));
    let mut now = 0_i64;
    let mut decode_times = Vec::with_capacity(frames);
    for ticks in expanded(durations, frames)? {
        decode_times.push(now);
        now = now.saturating_add(i64::from(ticks));
    }
    let mut times = decode_times.clone();
    if let Some(content) = tables.optional(b"ctts") {
        let is_signed = content.first() == Some(&1);
        let rows = table::<2>(content, 4)?;
        let delays = rows.iter().map(|[count, delay]| {
            let signed = i64::from(delay.cast_signed());
            (*count, if is_signed { signed } else { i64::from(*delay) })
        });
        for (time, delay) in times.iter_mut().zip(expanded(delays, frames)?) {
            *time = time.saturating_add(delay);
        }
    }
    let keyframes = keyframes(&tables, frames as u64)?;
    let offsets = frame_offsets(&tables, &sizes, file_bytes)?;
    let shown = shown(&times, &edits(track, movie_scale, timescale)?)?;
    Ok(VideoTrack {
        codec,
        extradata,
        timescale,
        offsets,
        sizes,
        decode_times,
        times,
        keyframes,
        shown,
    })
}

/// Returns the frames that are shown, in order.
fn shown(times: &[i64], (start, end): &(i64, Option<i64>)) -> Result<Vec<u64>, Mp4Problem> {
    let mut order: Vec<(i64, u64)> = times.iter().copied().zip(0_u64..).collect();
    order.sort_unstable();
    if order.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return damaged("two frames are shown at the same time");
    }
    order.retain(|(time, _)| time >= start && end.is_none_or(|end| *time < end));
    if order.is_empty() {
        return damaged("its edit list leaves out all frames");
    }
    Ok(order.into_iter().map(|(_, frame)| frame).collect())
}

fn keyframes(tables: &Boxes<'_>, frames: u64) -> Result<Vec<u64>, Mp4Problem> {
    let Some(content) = tables.optional(b"stss") else {
        return Ok((0..frames).collect());
    };
    let rows = table::<1>(content, 4)?;
    // Keyframes are numbered from 1.
    let is_sorted = rows.first() == Some(&[1]) && rows.is_sorted_by(|one, next| one < next);
    if !is_sorted {
        return damaged("its keyframes are out of order");
    }
    let keyframes: Vec<u64> = rows.iter().map(|[frame]| u64::from(*frame) - 1).collect();
    if keyframes.last().is_some_and(|last| *last >= frames) {
        return damaged("it has a keyframe beyond its last frame");
    }
    Ok(keyframes)
}

/// Returns the decoder of a video and its configuration.
fn decoder(entries: &[u8]) -> Result<(&'static str, Vec<u8>), Mp4Problem> {
    let found = boxes(entries, 8..entries.len()).collect::<Result<Vec<_>, _>>()?;
    let [(kind, content)] = found.as_slice() else {
        return unsupported(format!("it has {} descriptions of its frames", found.len()));
    };
    let Some((_, codec, wanted)) = CODECS.iter().find(|(code, _, _)| *code == kind) else {
        return unsupported(format!("its codec is `{}`", kind.escape_ascii()));
    };
    let Some(wanted) = wanted else {
        return Ok((codec, Vec::new()));
    };
    for each in boxes(entries, content.start + ENTRY_BYTES..content.end) {
        let (own, range) = each?;
        if own == **wanted {
            let data = entries.get(range).unwrap_or_default();
            let extradata = match *wanted {
                b"esds" => decoder_info(data.get(4..).unwrap_or_default())?,
                _ => data.to_vec(),
            };
            return Ok((codec, extradata));
        }
    }
    damaged(format!("it has no box `{}`", wanted.escape_ascii()))
}

/// Returns the configuration of the decoder from the descriptors of the box `esds`.
fn decoder_info(data: &[u8]) -> Result<Vec<u8>, Mp4Problem> {
    let mut at = 0;
    while let (Some(tag), true) = (data.get(at), at + 2 <= data.len()) {
        at += 1;
        let mut size = 0_usize;
        while let Some(byte) = data.get(at) {
            at += 1;
            size = size << 7 | usize::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                break;
            }
        }
        let size = size.min(data.len());
        match tag {
            3 => {
                let flags = data.get(at + 2).copied().unwrap_or(0);
                at += 3;
                at += if flags & 0x80 == 0 { 0 } else { 2 };
                at += if flags & 0x20 == 0 { 0 } else { 2 };
            }
            4 => at += 13,
            5 => {
                let end = (at + size).min(data.len());
                return Ok(data.get(at..end).unwrap_or_default().to_vec());
            }
            _ => at += size,
        }
    }
    damaged("its decoder has no configuration")
}

fn frame_sizes(content: &[u8], file_bytes: u64) -> Result<Vec<u64>, Mp4Problem> {
    let size = u64::from(u32_at(content, 4).unwrap_or(0));
    if size == 0 {
        let rows = table::<1>(content, 8)?;
        return Ok(rows.iter().map(|[size]| u64::from(*size)).collect());
    }
    let count = u32_at(content, 8).unwrap_or(0);
    if size * u64::from(count) > file_bytes {
        return damaged("it has frames beyond its end");
    }
    Ok(vec![size; count as usize])
}

/// Returns the first byte of each frame.
fn frame_offsets(
    tables: &Boxes<'_>,
    sizes: &[u64],
    file_bytes: u64,
) -> Result<Vec<u64>, Mp4Problem> {
    let chunks: Vec<u64> = match tables.optional(b"co64") {
        Some(content) => table::<2>(content, 4)?
            .iter()
            .map(|[high, low]| u64::from(*high) << 32 | u64::from(*low))
            .collect(),
        None => table::<1>(tables.content(b"stco")?, 4)?
            .iter()
            .map(|[offset]| u64::from(*offset))
            .collect(),
    };
    // The first chunk of each run, numbered from 1, and the frames of each of its chunks.
    let runs = table::<3>(tables.content(b"stsc")?, 4)?;
    let is_sorted = runs.is_sorted_by(|one, next| one[0] < next[0]);
    let last = runs.last().map_or(0, |run| u64::from(run[0]));
    if runs.first().map(|run| run[0]) != Some(1) || !is_sorted || last > chunks.len() as u64 {
        return damaged("its chunks are out of order");
    }
    let mut offsets = Vec::with_capacity(sizes.len());
    let mut run = 0;
    for (number, chunk) in (1_u64..).zip(&chunks) {
        if runs
            .get(run + 1)
            .is_some_and(|next| u64::from(next[0]) <= number)
        {
            run += 1;
        }
        let mut at = *chunk;
        for _ in 0..runs.get(run).map_or(0, |run| run[1]) {
            let Some(size) = sizes.get(offsets.len()) else {
                return damaged("its chunks do not have the number of its frames");
            };
            offsets.push(at);
            match at.checked_add(*size) {
                Some(end) if end <= file_bytes => at = end,
                _ => return damaged("it has frames beyond its end"),
            }
        }
    }
    if offsets.len() != sizes.len() {
        return damaged("its chunks do not have the number of its frames");
    }
    Ok(offsets)
}

/// Returns the first tick that is shown, and the one after the last.
fn edits(
    track: &Boxes<'_>,
    movie_scale: u32,
    timescale: u32,
) -> Result<(i64, Option<i64>), Mp4Problem> {
    if track.optional(b"edts").is_none() {
        return Ok((BEFORE_ALL, None));
    }
    let content = track.inner(b"edts")?.content(b"elst")?;
    let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    // The length in ticks of the movie, and the start in ticks of the track; -1 is an empty edit.
    let mut rows: Vec<(u64, i64)> = match content.first() {
        Some(1) => table::<5>(content, 4)?
            .iter()
            .map(|row| (wide(row[0], row[1]), wide(row[2], row[3]).cast_signed()))
            .collect(),
        _ => table::<3>(content, 4)?
            .iter()
            .map(|row| (u64::from(row[0]), i64::from(row[1].cast_signed())))
            .collect(),
    };
    rows.retain(|(_, start)| *start >= 0);
    let (length, start) = match rows.as_slice() {
        [] => return Ok((BEFORE_ALL, None)),
        [one] => *one,
        _ => return unsupported("its edit list has several parts"),
    };
    if length == 0 || movie_scale == 0 {
        return Ok((start, None));
    }
    let scale = u128::from(movie_scale);
    let ticks = (u128::from(length) * u128::from(timescale) + scale / 2) / scale;
    let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
    Ok((start, Some(start.saturating_add(ticks))))
}

#[cfg(test)]
mod tests;
