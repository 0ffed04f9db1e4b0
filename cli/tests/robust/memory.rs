//! Checks that the memory of a conversion does not depend on the size of its input.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use shardmill_testing::draw::Draw;

use crate::lab::{Lab, Setting};

const MAX_BYTES: u64 = 512 << 20;

/// Writes a Parquet file of about `megabytes` of text, bytes and numbers.
fn table(path: &Path, megabytes: u64) {
    const ROWS: usize = 8000;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(64_000))
        .build();
    let mut writer: Option<ArrowWriter<File>> = None;
    let mut draw = Draw::new(megabytes);
    let mut written = 0;
    while written < megabytes << 20 {
        let texts: Vec<String> = (0..ROWS).map(|_| draw.text(900)).collect();
        let blobs: Vec<Vec<u8>> = (0..ROWS).map(|_| draw.bytes(100)).collect();
        let columns: [(&str, ArrayRef); 3] = [
            ("blob", Arc::new(BinaryArray::from_iter_values(&blobs))),
            (
                "id",
                Arc::new(Int64Array::from_iter_values(
                    (0..ROWS as i64).map(|row| row * 3),
                )),
            ),
            ("text", Arc::new(StringArray::from_iter_values(&texts))),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, column)| (name, column, false)),
        )
        .unwrap();
        let writer = writer.get_or_insert_with(|| {
            ArrowWriter::try_new(
                File::create(path).unwrap(),
                batch.schema(),
                Some(properties.clone()),
            )
            .unwrap()
        });
        writer.write(&batch).unwrap();
        written += (ROWS * 1008) as u64;
    }
    writer.unwrap().close().unwrap();
}

/// The sizes in megabytes come from `SHARDMILL_MEMORY` (`256,1024,4096`).
#[test]
#[ignore = "converts gigabytes"]
fn memory_does_not_grow_with_the_input() {
    let sizes = std::env::var("SHARDMILL_MEMORY").unwrap_or_else(|_| "256,1024,4096".to_owned());
    let sizes: Vec<u64> = sizes.split(',').map(|size| size.parse().unwrap()).collect();
    let settings: [Setting; 3] = [
        Setting {
            name: "none",
            source: "rows.parquet",
            options: &["--compression", "none", "--hashes", "none"],
            folders: &[""],
        },
        Setting {
            name: "zstd:3 and sha256",
            source: "rows.parquet",
            options: &[],
            folders: &[""],
        },
        Setting {
            name: "splits",
            source: "rows.parquet",
            options: &["--split", "a=0.5,b=0.3,c=0.2"],
            folders: &["a", "b", "c"],
        },
    ];
    let lab = Lab::new(&[]);
    let mut peaks = vec![Vec::new(); settings.len()];
    for size in &sizes {
        table(&lab.at("rows.parquet"), *size);
        for (setting, peaks) in settings.iter().zip(&mut peaks) {
            let ended = lab.ok(setting, "dest", &["--jobs", "2"]);
            println!(
                "memory: {}, {size} MB: {} MiB in {:.1} s",
                setting.name,
                ended.peak_bytes >> 20,
                ended.wall.as_secs_f64()
            );
            peaks.push(ended.peak_bytes);
            lab.remove("dest");
        }
    }
    for (setting, peaks) in settings.iter().zip(&peaks) {
        let (min, max) = (peaks.iter().min().unwrap(), peaks.iter().max().unwrap());
        assert!(max * 10 <= min * 11, "{}: {peaks:?}", setting.name);
        assert!(*max <= MAX_BYTES, "{}: {} MiB", setting.name, max >> 20);
    }
}
