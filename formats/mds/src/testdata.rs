//! Reads the test vectors in `testdata/`, which `testdata/generate.py` writes.

/// Returns the lines after the leading comment, each split at spaces.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').collect())
}

/// Decodes hexadecimal text; `-` means no bytes.
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

/// Returns encodings of every kind, for tests that cover all of them.
pub(crate) fn encodings() -> Vec<crate::Encoding> {
    let arrays = [
        "ndarray:uint8",
        "ndarray:float64",
        "ndarray:int16:2,3",
        "ndarray:uint8:1",
    ];
    crate::Encoding::names()
        .iter()
        .chain(&arrays)
        .map(|name| name.parse().unwrap())
        .collect()
}

/// A dataset written by the original writer.
pub(crate) struct Dataset {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its index.
    pub(crate) index: String,
    /// Its other files, by name.
    pub(crate) files: std::collections::BTreeMap<&'static str, Vec<u8>>,
}

/// Returns the datasets of `testdata/datasets.txt`.
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
