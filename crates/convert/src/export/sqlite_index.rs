//! Creates `index.sqlite`, the SQLite database of Energon.

use rusqlite::{Connection, Error, MAIN_DB};
use shardmill_webdataset::sidecar::energon::{INDEXES, Rows, TABLES};

/// Returns the database file for these rows. It is built in memory, and the same rows give the same bytes.
///
/// # Errors
///
/// Returns the error of SQLite, for example if memory runs out.
pub(super) fn index(rows: &Rows<'_>) -> Result<Vec<u8>, Error> {
    let mut base = Connection::open_in_memory()?;
    let all = base.transaction()?;
    all.execute_batch(TABLES)?;
    {
        let mut insert = all.prepare("INSERT INTO samples VALUES (?, ?, ?, ?, ?)")?;
        for row in &rows.samples {
            insert.execute((
                number(row.tar_file_id)?,
                row.sample_key,
                number(row.sample_index)?,
                number(row.byte_offset)?,
                number(row.byte_size)?,
            ))?;
        }
        let mut insert = all.prepare("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)")?;
        for row in &rows.parts {
            insert.execute((
                number(row.tar_file_id)?,
                number(row.sample_index)?,
                row.part_name,
                number(row.content_byte_offset)?,
                number(row.content_byte_size)?,
            ))?;
        }
    }
    // Creating the indexes after the rows sorts once, which is faster than inserting in order.
    all.execute_batch(INDEXES)?;
    all.commit()?;
    Ok(base.serialize(MAIN_DB)?.to_vec())
}

fn number(value: u64) -> Result<i64, Error> {
    i64::try_from(value).map_err(|error| Error::ToSqlConversionFailure(error.into()))
}

#[cfg(test)]
mod tests {
    use shardmill_webdataset::sidecar::energon::{PartRow, SampleRow};

    use super::*;

    #[test]
    fn equal_rows_give_equal_index_bytes() {
        let rows = Rows {
            samples: vec![SampleRow {
                tar_file_id: 1,
                sample_key: "d/\u{e4}'",
                sample_index: 2,
                byte_offset: 512,
                byte_size: 1024,
            }],
            parts: vec![PartRow {
                tar_file_id: 1,
                sample_index: 2,
                part_name: "seg.png",
                content_byte_offset: 1024,
                content_byte_size: 3,
            }],
        };
        let bytes = index(&rows).unwrap();
        assert_eq!(index(&rows).unwrap(), bytes);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.sqlite");
        std::fs::write(&path, bytes).unwrap();
        let base = Connection::open(path).unwrap();
        let found = base.query_row("SELECT * FROM samples JOIN sample_parts", [], |row| {
            Ok((
                row.get::<_, String>(1)?,
                row.get::<_, i64>(3)?,
                row.get::<_, String>(7)?,
            ))
        });
        assert_eq!(
            found.unwrap(),
            ("d/\u{e4}'".to_owned(), 512, "seg.png".to_owned())
        );
        let names = "SELECT group_concat(name, ' ' ORDER BY name) FROM sqlite_master";
        let names: String = base.query_row(names, [], |row| row.get(0)).unwrap();
        assert_eq!(
            names,
            "idx_sample_parts_full idx_sample_parts_seq idx_samples_by_tar_and_idx sample_parts samples sqlite_autoindex_samples_1"
        );
    }

    #[test]
    fn number_beyond_sqlite_range_is_an_error() {
        let rows = Rows {
            samples: Vec::new(),
            parts: vec![PartRow {
                tar_file_id: u64::MAX,
                sample_index: 0,
                part_name: "txt",
                content_byte_offset: 0,
                content_byte_size: 0,
            }],
        };
        assert!(index(&rows).is_err());
    }
}
