//! The record that a dataset keeps about its table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shardmill_source::DeltaFile;
use shardmill_writer::{Content, UnitSamples};

use super::ranges::Ranges;
use crate::report::IncrementReport;

/// Files of the table, and the samples that come from their rows. If there are several files, their rows were moved
/// after the conversion, so it is unknown which file has which sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileSamples {
    #[serde(with = "files")]
    pub(crate) files: Vec<DeltaFile>,
    pub(crate) samples: Ranges,
}

/// One run that changed the dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Generation {
    /// The version of the table.
    pub(crate) version: u64,
    pub(crate) timestamp: Option<String>,
    /// The number of samples and shards in the index after this run.
    pub(crate) samples: u64,
    pub(crate) shards: u64,
    /// The number of samples that the table no longer had since the previous generation.
    pub(crate) tombstones: u64,
    /// The content of the samples in the table.
    pub(crate) content: String,
}

/// The complete record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    increments: u64,
    /// The id of the table.
    pub(crate) table: String,
    pub(crate) config: Value,
    pub(crate) config_fingerprint: String,
    /// The hash of the index that the record describes.
    pub(crate) index: String,
    /// The generations. There is at least one; the last one is current.
    pub(crate) generations: Vec<Generation>,
    pub(crate) all_file_samples: Vec<FileSamples>,
    /// All samples that are no longer in the table.
    pub(crate) tombstones: Ranges,
}

impl Record {
    /// Creates a record without generations.
    pub(crate) fn new(table: &str, config: Value, config_fingerprint: &str) -> Self {
        Self {
            increments: 1,
            table: table.to_owned(),
            config,
            config_fingerprint: config_fingerprint.to_owned(),
            index: String::new(),
            generations: Vec::new(),
            all_file_samples: Vec::new(),
            tombstones: Ranges::default(),
        }
    }

    /// Parses a record, and checks that every sample occurs exactly once.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if record.increments != 1 {
            return Err(format!("its version is {}, not 1", record.increments));
        }
        let Some(last) = record.generations.last() else {
            return Err("it has no generation".to_owned());
        };
        if Content::parse(&last.content).is_none() {
            return Err("its content is no hash".to_owned());
        }
        record.check(last.samples)?;
        Ok(record)
    }

    /// Checks that every sample below `samples` occurs exactly once.
    fn check(&self, samples: u64) -> Result<(), String> {
        let file_ranges = self
            .all_file_samples
            .iter()
            .map(|file_samples| &file_samples.samples);
        let all: Vec<&Ranges> = file_ranges.chain([&self.tombstones]).collect();
        if !all.iter().all(|ranges| ranges.is_sound(samples)) {
            return Err("it names samples that are not there, or in disorder".to_owned());
        }
        let sum: u64 = all.iter().map(|ranges| ranges.len()).sum();
        if sum != samples || Ranges::union(all).len() != sum {
            return Err("it does not name every sample once".to_owned());
        }
        Ok(())
    }

    /// Returns the record as JSON.
    pub(crate) fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Returns the list of samples that are no longer in the table, which readers leave out.
    pub(crate) fn tombstones_json(&self) -> String {
        let value = json!({
            "tombstones": 1,
            "generation": self.generations.len(),
            "version": self.generations.last().map(|last| last.version),
            "count": self.tombstones.len(),
            "samples": self.tombstones,
        });
        format!("{value}\n")
    }

    /// Records a later version of the table with the same rows.
    pub(crate) fn has_seen(&mut self, version: u64, timestamp: Option<String>) {
        if let Some(last) = self.generations.last_mut() {
            last.version = version;
            last.timestamp = timestamp;
        }
    }

    /// Returns the table version of the dataset.
    pub(crate) fn version(&self) -> u64 {
        self.last().map_or(0, |last| last.version)
    }

    /// Returns the current generation.
    pub(crate) fn last(&self) -> Option<&Generation> {
        self.generations.last()
    }

    /// Describes the last generation.
    pub(crate) fn report(&self) -> IncrementReport {
        let last = self.last();
        let before = self.generations.iter().rev().nth(1);
        let since = |now: Option<u64>, before: Option<u64>| {
            now.unwrap_or(0).saturating_sub(before.unwrap_or(0))
        };
        IncrementReport {
            generation: self.generations.len(),
            version: self.version(),
            from_version: before.map(|before| before.version),
            added_samples: since(
                last.map(|last| last.samples),
                before.map(|before| before.samples),
            ),
            added_shards: since(
                last.map(|last| last.shards),
                before.map(|before| before.shards),
            ),
            tombstones: last.map_or(0, |last| last.tombstones),
            all_tombstones: self.tombstones.len(),
            restored_tombstones: false,
        }
    }

    /// Returns the content of the samples in the table.
    pub(crate) fn content(&self) -> Content {
        let last = self.last();
        last.and_then(|last| Content::parse(&last.content))
            .unwrap_or_default()
    }
}

/// Returns the samples of each file, collected from its units.
pub(crate) fn all_file_samples<'a>(
    files: &[DeltaFile],
    units: impl IntoIterator<Item = (usize, &'a UnitSamples)>,
) -> Vec<FileSamples> {
    let mut by_file: BTreeMap<usize, Vec<&UnitSamples>> = BTreeMap::new();
    for (file, unit) in units {
        by_file.entry(file).or_default().push(unit);
    }
    let own = files.iter().enumerate().map(|(number, file)| {
        let units = by_file.remove(&number).unwrap_or_default();
        let known = units.iter().flat_map(|unit| &unit.known);
        let known = known.map(|number| *number..*number + 1);
        let added = units.iter().map(|unit| unit.first..unit.first + unit.added);
        FileSamples {
            files: vec![file.clone()],
            samples: Ranges::of(known.chain(added)),
        }
    });
    own.collect()
}

/// Serializes files as pairs of path and deletion vector.
mod files {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use shardmill_source::DeltaFile;

    pub(super) fn serialize<S: Serializer>(
        files: &[DeltaFile],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(files.iter().map(|file| (&file.path, &file.deletion)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<DeltaFile>, D::Error> {
        let pairs = Vec::<(String, Option<String>)>::deserialize(deserializer)?;
        let files = pairs.into_iter();
        Ok(files
            .map(|(path, deletion)| DeltaFile { path, deletion })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let file = |path: &str, deletion: Option<&str>| DeltaFile {
            path: path.to_owned(),
            deletion: deletion.map(str::to_owned),
        };
        Record {
            index: "abc".to_owned(),
            generations: vec![Generation {
                version: 4,
                timestamp: None,
                samples: 10,
                shards: 2,
                tombstones: 3,
                content: Content::default().to_string(),
            }],
            all_file_samples: all_file_samples(
                &[file("a", None), file("b", Some("u@1")), file("c", None)],
                [
                    (
                        0,
                        &UnitSamples {
                            first: 0,
                            added: 3,
                            known: Vec::new(),
                        },
                    ),
                    (
                        1,
                        &UnitSamples {
                            first: 5,
                            added: 2,
                            known: vec![9, 3],
                        },
                    ),
                ],
            ),
            tombstones: Ranges::of([4..5, 7..9]),
            ..Record::new("id", json!({"to": "mds"}), "f")
        }
    }

    #[test]
    fn increment_record_round_trips() {
        let record = record();
        let text = record.to_json();
        assert_eq!(Record::parse(text.as_bytes()).unwrap(), record);
        let samples: Vec<String> = record
            .all_file_samples
            .iter()
            .map(|file_samples| serde_json::to_string(&file_samples.samples).unwrap())
            .collect();
        assert_eq!(samples, ["[[0,3]]", "[[3,4],[5,7],[9,10]]", "[]"]);
        let list: Value = serde_json::from_str(&record.tombstones_json()).unwrap();
        assert_eq!(list["count"], 3);
        assert_eq!(list["samples"], json!([[4, 5], [7, 9]]));
    }

    #[test]
    fn inconsistent_increment_record_is_an_error() {
        type Change = fn(&mut Record);
        let cases: [(Change, &str); 6] = [
            (|record| record.increments = 2, "version is 2"),
            (|record| record.generations.clear(), "no generation"),
            (|record| record.generations[0].content.clear(), "no hash"),
            (
                |record| record.generations[0].samples = 11,
                "every sample once",
            ),
            (|record| record.generations[0].samples = 9, "not there"),
            (
                |record| record.tombstones = Ranges::of([4..5, 8..10]),
                "every sample once",
            ),
        ];
        for (change, reason) in cases {
            let mut record = record();
            change(&mut record);
            let error = Record::parse(record.to_json().as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(Record::parse(b"{}").is_err());
    }
}
