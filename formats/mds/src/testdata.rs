//! Reads the vectors in `testdata/`, which `testdata/generate.py` writes.

/// The lines below the comment, each in its blank-separated parts.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').collect())
}

/// Bytes from their hexadecimal text, `-` for none.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Encodings of every kind, for tests that go through all.
pub(crate) fn encodings() -> Vec<crate::Encoding> {
    let arrays = [
        "ndarray:uint8",
        "ndarray:float64",
        "ndarray:int16:2,3",
        "ndarray:uint8:1",
    ];
    crate::Encoding::NAMES
        .iter()
        .chain(&arrays)
        .map(|name| name.parse().unwrap())
        .collect()
}

/// A dataset that the original writer wrote.
pub(crate) struct Dataset {
    /// What it is for.
    pub(crate) name: &'static str,
    /// Its index.
    pub(crate) index: String,
    /// Its other files by name.
    pub(crate) files: std::collections::BTreeMap<&'static str, Vec<u8>>,
}

/// The datasets of `testdata/datasets.txt`.
pub(crate) fn datasets() -> Vec<Dataset> {
    let mut datasets: Vec<Dataset> = Vec::new();
    for line in lines(include_str!("testdata/datasets.txt")) {
        match (line[0], datasets.last_mut()) {
            ("dataset", _) => datasets.push(Dataset {
                name: line[1],
                index: String::new(),
                files: std::collections::BTreeMap::new(),
            }),
            ("index", Some(dataset)) => dataset.index = String::from_utf8(unhex(line[1])).unwrap(),
            (name, Some(dataset)) => assert_eq!(dataset.files.insert(name, unhex(line[1])), None),
            (name, None) => panic!("{name}"),
        }
    }
    datasets
}
