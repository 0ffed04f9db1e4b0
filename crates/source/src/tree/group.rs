//! Groups files into samples by key and field, and finds collisions between them.

use std::collections::BTreeMap;

use rayon::prelude::*;
use shardmill_core::{Error, Limits, escape};

use crate::error;
use crate::walk::{Listed, path_of};
use crate::{SourceProblem, TreeField};

/// The field of a file without an extension, and of every file that is a sample by itself.
const DATA: &str = "data";

/// The samples of all locations, in order. It takes twelve bytes for each file: keys are parts of paths, and paths are in
/// the listings.
#[derive(Debug)]
pub(super) struct Samples {
    split: Split,
    fields: Vec<TreeField>,
    /// The field of each file and its number in the listing, sorted by location, key and field.
    members: Vec<(u16, u32)>,
    /// The position in `members` at which each sample begins.
    starts: Vec<u32>,
}

/// Splits a path into key and field.
pub(super) type Split = fn(&str) -> (&str, &str);

/// Splits a path at the last dot of the name, unless the name begins or ends with that dot.
pub(super) fn by_stem(path: &str) -> (&str, &str) {
    at_dot(path, |name| name.rfind('.').filter(|dot| *dot > 0))
}

/// Splits a path at the first dot of the name, as tar shards do. A dot at the very beginning does not count, and the
/// path is not split if the name ends with the dot.
pub(super) fn by_key(path: &str) -> (&str, &str) {
    at_dot(path, |name| {
        let mut dots = name.match_indices('.').map(|(dot, _)| dot);
        dots.find(|dot| *dot > 0)
    })
}

fn at_dot(path: &str, find: impl Fn(&str) -> Option<usize>) -> (&str, &str) {
    let start = path.rfind('/').map_or(0, |at| at + 1);
    let dot = path.get(start..).and_then(find).map(|dot| start + dot);
    match dot.map(|dot| (path.get(..dot), path.get(dot + 1..))) {
        Some((Some(key), Some(field))) if !field.is_empty() => (key, field),
        _ => (path, DATA),
    }
}

/// Does not split: the whole path is the key.
pub(super) fn whole(path: &str) -> (&str, &str) {
    (path, DATA)
}

fn too_many() -> Error {
    error::bug("more than four billion files")
}

impl Samples {
    /// Groups files that have the same key by `split`. `ends` are the ends of the locations in the listing.
    pub(super) fn new(
        listing: &[Listed],
        ends: &[usize],
        split: Split,
        key_column: &str,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (path, _) in listing {
            *counts.entry(split(path).1).or_default() += 1;
        }
        error::check_limit("columns", counts.len() as u64, limits.columns, || {
            "file extensions".to_owned()
        })?;
        check_fields(listing, split, &counts, key_column)?;
        let numbers: BTreeMap<&str, u16> = counts
            .keys()
            .zip(0..=u16::MAX)
            .map(|(name, number)| (*name, number))
            .collect();
        let fields = counts.iter().map(|(name, samples)| TreeField {
            name: (*name).to_owned(),
            samples: *samples,
        });
        let mut samples = Self {
            split,
            fields: fields.collect(),
            members: Vec::with_capacity(listing.len()),
            starts: Vec::new(),
        };
        let path = |number: &u32| path_of(listing, *number as usize);
        let mut next = 0;
        for end in ends {
            let end = u32::try_from(*end).map_err(|_| too_many())?;
            let mut order: Vec<u32> = (next..end).collect();
            next = end;
            order.par_sort_unstable_by(|a, b| split(path(a)).cmp(&split(path(b))));
            let mut last: Option<(&str, &str, &str)> = None;
            for number in order {
                let own = path(&number);
                let (key, field) = split(own);
                if let Some((last_key, last_field, last_path)) = last
                    && last_key == key
                    && last_field == field
                {
                    return Err(SourceProblem::TreeCollision.at(
                        own,
                        format!(
                            "is the field `{}` of the sample `{}`, and so is {}",
                            escape(field),
                            escape(key),
                            escape(last_path)
                        ),
                    ));
                }
                if last.is_none_or(|(last_key, _, _)| last_key != key) {
                    let start = u32::try_from(samples.members.len());
                    samples.starts.push(start.map_err(|_| too_many())?);
                }
                let field_number = numbers.get(field).copied().unwrap_or_default();
                samples.members.push((field_number, number));
                last = Some((key, field, own));
            }
        }
        if ends.len() > 1 {
            samples.check_keys(listing)?;
        }
        Ok(samples)
    }

    /// Checks that no two locations share a key.
    fn check_keys(&self, listing: &[Listed]) -> Result<(), Error> {
        let path = |sample: usize| {
            self.first_file(sample)
                .map_or("", |file| path_of(listing, file))
        };
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.par_sort_by(|a, b| self.key_of(path(*a)).cmp(self.key_of(path(*b))));
        for (first, second) in order.iter().zip(order.iter().skip(1)) {
            let key = self.key_of(path(*first));
            if key == self.key_of(path(*second)) {
                return Err(SourceProblem::TreeCollision.at(
                    path(*second),
                    format!("the key `{}` is in two locations", escape(key)),
                ));
            }
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns the fields, sorted by the bytes of their names.
    pub(super) fn fields(&self) -> &[TreeField] {
        &self.fields
    }

    /// Returns the key of the sample that a path belongs to.
    pub(super) fn key_of<'a>(&self, path: &'a str) -> &'a str {
        (self.split)(path).0
    }

    /// Returns the fields of a sample with their files.
    pub(super) fn members(&self, sample: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let start_of = |sample: usize| {
            let start = self.starts.get(sample);
            start.map_or(self.members.len(), |start| *start as usize)
        };
        let members = self.members.get(start_of(sample)..start_of(sample + 1));
        let members = members.unwrap_or_default().iter();
        members.map(|(field, file)| (usize::from(*field), *file as usize))
    }

    /// Returns the first file of a sample.
    pub(super) fn first_file(&self, sample: usize) -> Option<usize> {
        self.members(sample).next().map(|(_, file)| file)
    }
}

/// Checks the field names, because fields become columns. None may equal the key column, and no two may differ only in
/// case.
fn check_fields(
    listing: &[Listed],
    split: Split,
    counts: &BTreeMap<&str, u64>,
    key_column: &str,
) -> Result<(), Error> {
    let example = |field: &str| {
        let found = listing.iter().find(|(path, _)| split(path).1 == field);
        found
            .map(|(path, _)| String::from(&**path))
            .unwrap_or_default()
    };
    if counts.contains_key(key_column) {
        return Err(SourceProblem::TreeCollision.at(
            example(key_column),
            format!(
                "the field `{0}` is called as the key column `{0}`",
                escape(key_column)
            ),
        ));
    }
    let mut folded: BTreeMap<String, &str> = BTreeMap::new();
    for name in counts.keys() {
        if let Some(other) = folded.insert(name.to_lowercase(), name) {
            return Err(SourceProblem::TreeCollision.at(
                example(name),
                format!(
                    "the extensions `{}` and `{}` (of {}) differ only by case",
                    escape(name),
                    escape(other),
                    escape(&example(other))
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::FileVersion;

    fn listing(paths: &[&str]) -> Vec<Listed> {
        let version = FileVersion {
            bytes: 1,
            mtime_ns: 0,
        };
        paths.iter().map(|path| ((*path).into(), version)).collect()
    }

    fn shown(samples: &Samples, listing: &[Listed]) -> Vec<(String, Vec<String>)> {
        (0..samples.len())
            .map(|sample| {
                let first = samples.first_file(sample).unwrap();
                let key = samples.key_of(path_of(listing, first)).to_owned();
                let fields = samples
                    .members(sample)
                    .map(|(field, _)| samples.fields()[field].name.clone());
                (key, fields.collect())
            })
            .collect()
    }

    #[test]
    fn by_stem_splits_paths_at_the_last_extension() {
        for (path, key, field) in [
            ("a/001.jpg", "a/001", "jpg"),
            ("001", "001", "data"),
            ("a.b/001", "a.b/001", "data"),
            ("a/.x", "a/.x", "data"),
            ("a/.x.txt", "a/.x", "txt"),
            ("x.tar.gz", "x.tar", "gz"),
            ("x.", "x.", "data"),
            ("x..y", "x.", "y"),
        ] {
            assert_eq!(by_stem(path), (key, field), "{path}");
        }
    }

    #[test]
    fn by_key_splits_paths_at_the_first_dot() {
        for (path, key, field) in [
            ("a/001.seg.png", "a/001", "seg.png"),
            ("a.b/001.jpg", "a.b/001", "jpg"),
            ("001", "001", "data"),
            ("a.b/001", "a.b/001", "data"),
            ("a/.x", "a/.x", "data"),
            ("a/.x.txt.gz", "a/.x", "txt.gz"),
            ("x.", "x.", "data"),
            ("x..y", "x", ".y"),
            ("\u{e9}.y", "\u{e9}", "y"),
            ("a/", "a/", "data"),
            ("", "", "data"),
        ] {
            assert_eq!(by_key(path), (key, field), "{path}");
        }
        let listing = listing(&["1.jpg", "1.seg.jpg", "1.txt", "2.jpg", "2.seg.jpg"]);
        let samples = Samples::new(&listing, &[5], by_key, "__key__", &Limits::default());
        let found = shown(&samples.unwrap(), &listing);
        assert_eq!(found[1].1, ["jpg", "seg.jpg"]);
        assert_eq!((found.len(), found[0].1.len()), (2, 3));
    }

    #[test]
    fn files_with_a_common_stem_are_one_sample() {
        let listing = listing(&[
            "a/001",
            "a/001-b.txt",
            "a/001.jpg",
            "a/001.jpg.txt",
            "a/001.json",
            "b.txt",
        ]);
        let samples = Samples::new(&listing, &[6], by_stem, "__key__", &Limits::default()).unwrap();
        let fields = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&samples, &listing),
            [
                ("a/001".to_owned(), fields(&["data", "jpg", "json"])),
                ("a/001-b".to_owned(), fields(&["txt"])),
                ("a/001.jpg".to_owned(), fields(&["txt"])),
                ("b".to_owned(), fields(&["txt"])),
            ]
        );
        assert_eq!(
            samples.fields()[3],
            TreeField {
                name: "txt".to_owned(),
                samples: 3
            }
        );
        let samples = Samples::new(&listing, &[6], whole, "__key__", &Limits::default()).unwrap();
        assert_eq!(samples.len(), 6);
        assert_eq!(
            shown(&samples, &listing)[2],
            ("a/001.jpg".to_owned(), fields(&["data"]))
        );
    }

    #[test]
    fn colliding_keys_and_fields_are_errors() {
        let limits = Limits::default();
        for paths in [
            &["a", "a.data"][..],
            &["a.jpg", "a.JPG"],
            &["a.jpg", "b.JPG"],
            &["a.__key__"],
        ] {
            let listing = listing(paths);
            let ends = [listing.len()];
            let error = Samples::new(&listing, &ends, by_stem, "__key__", &limits).unwrap_err();
            assert_eq!(error.id(), "tree-collision", "{paths:?}");
        }
        let both = listing(&["a.jpg", "c.jpg", "b.jpg", "c.png"]);
        let error = Samples::new(&both, &[2, 4], by_stem, "__key__", &limits).unwrap_err();
        assert_eq!(error.to_string(), "the key `c` is in two locations");
        let samples = Samples::new(&both, &[2, 4], whole, "__key__", &Limits::default()).unwrap();
        assert_eq!(
            (0..4)
                .map(|sample| samples.first_file(sample).unwrap())
                .collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert_eq!(
            Samples::new(&both, &[2], whole, "data", &Limits::default())
                .unwrap_err()
                .id(),
            "tree-collision"
        );
    }
}
