use proptest::prelude::*;

use super::*;

fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len() + 8).unwrap();
    [&size.to_be_bytes(), kind.as_slice(), content].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The tables of a video of six frames in three chunks, with keyframes 0 and 4, and frames 2 and 3 shown in reverse.
struct Video {
    sizes: Vec<u32>,
    keyframes: Vec<u32>,
    chunks: Vec<u32>,
    runs: Vec<u32>,
    delays: Vec<u32>,
    edits: Vec<u32>,
    codec: [u8; 4],
}

impl Video {
    fn new() -> Self {
        Self {
            sizes: vec![10, 20, 30, 40, 50, 60],
            keyframes: vec![1, 5],
            chunks: vec![1000, 2000, 3000],
            runs: vec![1, 1, 1, 2, 3, 1, 3, 2, 1],
            delays: vec![2, 0, 1, 100, 1, 1, 2, 0],
            edits: Vec::new(),
            codec: *b"vp09",
        }
    }

    fn header(&self) -> Vec<u8> {
        let table = |kind, columns: usize, rows: &[u32]| {
            let count = u32::try_from(rows.len() / columns).unwrap();
            boxed(kind, &words(&[&[0, count], rows].concat()))
        };
        let entry = boxed(&self.codec, &[0; ENTRY_BYTES]);
        let count = u32::try_from(self.sizes.len()).unwrap();
        let mut tables = boxed(b"stsd", &[words(&[0, 1]), entry].concat());
        tables.extend(boxed(
            b"stsz",
            &words(&[&[0, 0, count], self.sizes.as_slice()].concat()),
        ));
        tables.extend(table(b"stts", 2, &[count, 100]));
        tables.extend(table(b"ctts", 2, &self.delays));
        tables.extend(table(b"stss", 1, &self.keyframes));
        tables.extend(table(b"stco", 1, &self.chunks));
        tables.extend(table(b"stsc", 3, &self.runs));
        let media = boxed(b"mdhd", &words(&[0, 0, 0, 1000, 0]));
        let handler = boxed(b"hdlr", &[words(&[0, 0]), b"vide".to_vec()].concat());
        let inner = boxed(b"minf", &boxed(b"stbl", &tables));
        let mut track = boxed(b"mdia", &[media, handler, inner].concat());
        if !self.edits.is_empty() {
            track.extend(boxed(b"edts", &table(b"elst", 3, &self.edits)));
        }
        let movie = boxed(b"mvhd", &words(&[0, 0, 0, 500, 0]));
        [movie, boxed(b"trak", &track)].concat()
    }

    fn read(&self) -> Result<VideoTrack, Mp4Problem> {
        read_track(&self.header(), 4000)
    }
}

fn reason(found: Result<VideoTrack, Mp4Problem>) -> String {
    match found.unwrap_err() {
        Mp4Problem::Damaged(reason) => format!("damaged: {reason}"),
        Mp4Problem::Unsupported(reason) => format!("unsupported: {reason}"),
    }
}

#[test]
fn mp4_tables_are_read() {
    let track = Video::new().read().unwrap();
    assert_eq!(track.codec, "vp9");
    assert_eq!(track.timescale, 1000);
    assert_eq!(track.offsets, [1000, 2000, 2020, 2050, 3000, 3050]);
    assert_eq!(track.sizes, [10, 20, 30, 40, 50, 60]);
    assert_eq!(track.decode_times, [0, 100, 200, 300, 400, 500]);
    assert_eq!(track.times, [0, 100, 300, 301, 400, 500]);
    assert_eq!(track.keyframes, [0, 4]);
    assert_eq!(track.shown, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn frames_are_ordered_by_time_within_the_edit_list() {
    let mut video = Video::new();
    video.delays = vec![2, 0, 1, 150, 1, 0, 2, 0];
    assert_eq!(video.read().unwrap().times, [0, 100, 350, 300, 400, 500]);
    assert_eq!(video.read().unwrap().shown, [0, 1, 3, 2, 4, 5]);
    // 150 ticks of the movie are 300 of the track; an edit of -1 is empty.
    video.edits = vec![7, u32::MAX, 0, 150, 100, 0];
    assert_eq!(video.read().unwrap().shown, [1, 3, 2]);
    video.edits = vec![150, 9000, 0];
    assert_eq!(
        reason(video.read()),
        "damaged: its edit list leaves out all frames"
    );
    video.edits = vec![1, 0, 0, 1, 5, 0];
    assert_eq!(
        reason(video.read()),
        "unsupported: its edit list has several parts"
    );
}

#[test]
fn invalid_mp4_tables_are_errors() {
    type Change = fn(&mut Video);
    let cases: [(Change, &str); 9] = [
        (
            |video| video.codec = *b"hvc9",
            "unsupported: its codec is `hvc9`",
        ),
        (
            |video| video.codec = *b"avc1",
            "damaged: it has no box `avcC`",
        ),
        (
            |video| video.sizes.clear(),
            "damaged: it has no frames, or no unit of time",
        ),
        (
            |video| video.delays = vec![5, 0],
            "damaged: a table is of 5 frames, and there are 6",
        ),
        (
            |video| video.delays = vec![1, 0, 1, 0, 1, u32::MAX, 3, 0],
            "",
        ),
        (
            |video| video.keyframes = vec![2, 5],
            "damaged: its keyframes are out of order",
        ),
        (
            |video| video.keyframes = vec![1, 7],
            "damaged: it has a keyframe beyond its last frame",
        ),
        (
            |video| video.chunks[2] = 3900,
            "damaged: it has frames beyond its end",
        ),
        (
            |video| video.runs[7] = 3,
            "damaged: its chunks do not have the number of its frames",
        ),
    ];
    for (change, expected) in cases {
        let mut video = Video::new();
        change(&mut video);
        match expected {
            "" => assert!(video.read().is_ok()),
            _ => assert_eq!(reason(video.read()), expected),
        }
    }
    let mut video = Video::new();
    video.delays = vec![1, 100, 5, 0];
    assert_eq!(
        reason(video.read()),
        "damaged: two frames are shown at the same time"
    );
    video.chunks.truncate(2);
    assert_eq!(reason(video.read()), "damaged: its chunks are out of order");
}

#[test]
fn mp4_header_is_found() {
    let header = Video::new().header();
    let mut file = boxed(b"ftyp", b"isom");
    file.extend(boxed(b"moov", &header));
    let start = file.len() - header.len();
    let mdat = boxed(b"mdat", &vec![0; 4000]);
    file.extend(&mdat);
    assert_eq!(
        header_of(&file).unwrap(),
        start as u64..(start + header.len()) as u64
    );
    let problem = |bytes: &[u8]| header_of(bytes).unwrap_err();
    assert!(matches!(
        problem(b"RIFF0000WEBP"),
        Mp4Problem::Unsupported(_)
    ));
    assert!(matches!(problem(b""), Mp4Problem::Unsupported(_)));
    assert!(matches!(problem(&mdat), Mp4Problem::Damaged(_)));
    assert!(matches!(
        problem(&[file.as_slice(), &boxed(b"moof", b"")].concat()),
        Mp4Problem::Unsupported(_)
    ));
    assert!(matches!(
        problem(&file[..file.len() - 1]),
        Mp4Problem::Damaged(_)
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_mp4_headers_give_errors_or_valid_ranges(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>()) {
        let mut header = Video::new().header();
        for (at, value) in changes {
            let at = at.index(header.len());
            header[at] = value;
        }
        if let Ok(track) = read_track(&header, 4000) {
            let ends = track.offsets.iter().zip(&track.sizes).map(|(offset, size)| offset + size);
            prop_assert!(ends.max() <= Some(4000));
            prop_assert!(track.keyframes.iter().chain(&track.shown).all(|frame| *frame < track.sizes.len() as u64));
            prop_assert!(!track.shown.is_empty());
        }
        let mut header = Video::new().header();
        header.truncate(cut.index(header.len()));
        prop_assert!(read_track(&header, 4000).is_err());
    }
}
