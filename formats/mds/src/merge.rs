//! Several indexes as one.

use shardmill_core::check_relative_path;

use crate::index::{Index, IndexError, Place, check_unique};

impl Index {
    /// One index of all the shards, in order. Each part comes with its folder relative to that of the result, `""`
    /// for the same one; the whole of it is put before the file names.
    ///
    /// COMPAT: the original puts only the last folder there, so that partitions two levels down cannot be found.
    ///
    /// Written with [`to_merged_json`](Self::to_merged_json), the result is the original's, byte by byte, for
    /// partitions one level down.
    ///
    /// # Errors
    ///
    /// [`IndexError::Path`] when a name may not be a path or would leave the folder of the result,
    /// [`IndexError::DuplicateShard`] when two shards have a file in common (`Corrupt`).
    pub fn merge(parts: Vec<(String, Self)>) -> Result<Self, IndexError> {
        let mut shards = Vec::with_capacity(parts.iter().map(|(_, index)| index.shards.len()).sum());
        for (folder, index) in parts {
            let folder = folder.trim_end_matches('/');
            for mut shard in index.shards {
                let number = shards.len() as u64;
                if !folder.is_empty() {
                    for (field, file) in shard.files_mut() {
                        let name = format!("{folder}/{}", file.basename);
                        check_relative_path(&name).map_err(|problem| IndexError::Path {
                            place: Place {
                                shard: Some(number),
                                field: format!("{field}.basename"),
                            },
                            name: name.chars().take(300).collect(),
                            problem,
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
