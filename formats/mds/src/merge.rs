//! Merges several indexes into one.

use shardmill_core::check_relative_path;

use crate::error::{IndexPosition, MdsError};
use crate::index::{Index, check_unique};
use crate::shown::shorten;

impl Index {
    /// Merges indexes into one that lists all their shards, in order. Each index comes with its folder relative to that
    /// of the result, or `""` for the same folder. The whole folder path is prepended to the file names.
    ///
    /// COMPAT: the original prepends only the last folder, so partitions two levels down cannot be found.
    ///
    /// Written with [`to_merged_json`](Self::to_merged_json), the result equals the original's byte for byte for
    /// partitions one level down.
    ///
    /// # Errors
    ///
    /// [`MdsError::Path`] when a name is not a valid path or would leave the folder of the result,
    /// [`MdsProblem::DuplicateShard`](crate::MdsProblem::DuplicateShard) when two shards share a file (`Corrupt`).
    pub fn merge(parts: Vec<(String, Self)>) -> Result<Self, MdsError> {
        let mut shards =
            Vec::with_capacity(parts.iter().map(|(_, index)| index.shards.len()).sum());
        for (folder, index) in parts {
            let folder = folder.trim_end_matches('/');
            for mut shard in index.shards {
                let number = shards.len() as u64;
                if !folder.is_empty() {
                    for (field, file) in shard.files_mut() {
                        let name = format!("{folder}/{}", file.basename);
                        check_relative_path(&name).map_err(|problem| {
                            let name = shorten(&name);
                            MdsError::Path { name, problem }.at(IndexPosition {
                                shard: Some(number),
                                field: format!("{field}.basename"),
                            })
                        })?;
                        file.basename = name.into();
                    }
                }
                shards.push(shard);
            }
        }
        check_unique(&shards)?;
        Ok(Self { shards })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::{Diagnostic as _, Limits};

    use super::*;
    use crate::testdata::datasets;

    fn parse(json: &[u8]) -> Index {
        Index::parse(json, &Limits::default()).unwrap()
    }

    #[test]
    fn merged_index_matches_mosaicml_streaming() {
        let dataset = datasets()
            .into_iter()
            .find(|dataset| dataset.name == "merged")
            .unwrap();
        let part = |folder: &str| {
            let json = &dataset.files[format!("{folder}/index.json").as_str()];
            (folder.to_owned(), parse(json))
        };
        let merged = Index::merge(vec![part("a"), part("b")]).unwrap();
        assert_eq!(merged.to_merged_json(), dataset.index);
        assert_eq!(merged.samples(), 16);
        for shard in &merged.shards {
            assert!(dataset.files.contains_key(&*shard.raw_data.basename));
        }
    }

    #[test]
    fn merge_keeps_the_full_folder_path() {
        for dataset in datasets() {
            let index = parse(dataset.index.as_bytes());
            let names = |index: &Index| -> Vec<String> {
                let files = index.shards.iter().flat_map(|shard| shard.files());
                files.map(|(_, file)| file.basename.to_string()).collect()
            };
            let merged = Index::merge(vec![
                (String::new(), index.clone()),
                ("x/y/".to_owned(), index.clone()),
            ])
            .unwrap();
            let expected: Vec<String> = names(&index)
                .into_iter()
                .chain(names(&index).into_iter().map(|name| format!("x/y/{name}")))
                .collect();
            assert_eq!(names(&merged), expected, "{}", dataset.name);
            assert_eq!(merged.samples(), 2 * index.samples());
            assert_eq!(parse(merged.to_merged_json().as_bytes()), merged);
        }
    }

    #[test]
    fn merge_with_invalid_or_duplicate_folders_is_rejected() {
        let dataset = datasets().remove(0);
        let index = parse(dataset.index.as_bytes());
        let merge = |folders: &[&str]| {
            let parts = folders
                .iter()
                .map(|folder| ((*folder).to_owned(), index.clone()))
                .collect();
            Index::merge(parts).map(|_| ()).map_err(|error| error.id())
        };
        assert_eq!(merge(&["a", "b"]), Ok(()));
        assert_eq!(merge(&["a", "a/"]), Err("index-duplicate-shard"));
        assert_eq!(merge(&["../a"]), Err("path-traversal"));
        assert_eq!(merge(&["/a"]), Err("path-absolute"));
        assert_eq!(merge(&["a//b"]), Err("path-traversal"));
        assert_eq!(merge(&["a\n"]), Err("path-character"));
        assert_eq!(Index::merge(Vec::new()), Ok(Index::default()));
    }

    proptest! {
        #[test]
        fn merge_changes_only_file_names(one in crate::index::strategy::index(), two in crate::index::strategy::index()) {
            let merged = Index::merge(vec![("1".to_owned(), one.clone()), ("2".to_owned(), two.clone())]).unwrap();
            prop_assert_eq!(merged.shards.len(), one.shards.len() + two.shards.len());
            for (number, (after, before)) in merged.shards.iter().zip(one.shards.iter().chain(&two.shards)).enumerate() {
                let folder = if number < one.shards.len() { "1/" } else { "2/" };
                prop_assert_eq!((&after.config, after.samples), (&before.config, before.samples));
                for ((field, after), (same, before)) in after.files().zip(before.files()) {
                    prop_assert_eq!(field, same);
                    prop_assert_eq!((after.bytes, &after.hashes), (before.bytes, &before.hashes));
                    prop_assert_eq!(after.basename.strip_prefix(folder), Some(&*before.basename));
                }
            }
        }
    }
}
