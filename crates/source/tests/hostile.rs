//! Tests damaged and hostile files: they give an error or rows, but never a panic, a hang or a large allocation.

use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, BinaryArray, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::schema::types::ColumnPath;
use shardmill_core::ErrorKind;

use crate::help::{TestDir, array, batch, check_error, open_one, parquet_bytes, refused, try_read};

fn small() -> RecordBatch {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..200).map(|i| (i % 9 > 0).then(|| (0..i % 4).map(Some).collect::<Vec<_>>())),
    );
    let text = (0..200).map(|i| (i % 5 > 0).then(|| format!("text number {}", i % 37)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", array(Int64Array::from_iter_values(0..200))),
        ("text", array(StringArray::from_iter(text))),
        ("list", array(list)),
        (
            "bytes",
            array(BinaryArray::from_iter_values(
                (0..200_u8).map(|i| vec![i; usize::from(i % 11)]),
            )),
        ),
    ];
    batch(columns)
}

fn variants() -> Vec<WriterPropertiesBuilder> {
    let base = || {
        WriterProperties::builder()
            .set_max_row_group_row_count(Some(120))
            .set_data_page_row_count_limit(50)
    };
    vec![
        base().set_compression(Compression::SNAPPY),
        base()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_writer_version(WriterVersion::PARQUET_2_0),
        base().set_compression(Compression::GZIP(GzipLevel::default())),
        base()
            .set_dictionary_enabled(false)
            .set_column_encoding(ColumnPath::from("text"), Encoding::DELTA_BYTE_ARRAY)
            .set_column_encoding(ColumnPath::from("bytes"), Encoding::DELTA_LENGTH_BYTE_ARRAY)
            .set_column_encoding(ColumnPath::from("id"), Encoding::DELTA_BINARY_PACKED),
    ]
}

/// A small random number generator, so that every run flips the same bits.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn within_time<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{what} took {:?}",
        start.elapsed()
    );
    result
}

#[test]
fn truncated_parquet_file_is_an_error_at_every_length() {
    let dir = TestDir::new();
    let bytes = parquet_bytes(&small(), variants().remove(0).build());
    let path = dir.path("x.parquet");
    for length in 0..bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let error = check_error(try_read(&path).unwrap_err());
        let id = error.id();
        assert!(
            ["parquet-truncated", "parquet-magic", "parquet-footer"].contains(&id),
            "{length}: {id}: {error}"
        );
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn flipped_bits_give_an_error_or_rows() {
    let dir = TestDir::new();
    let path = dir.path("x.parquet");
    let (mut errors, mut read) = (0, 0);
    for (number, properties) in variants().into_iter().enumerate() {
        let bytes = parquet_bytes(&small(), properties.build());
        let mut numbers = Numbers(number as u64);
        for _ in 0..500 {
            let mut broken = bytes.clone();
            let at = numbers.below(bytes.len());
            broken[at] ^= 1 << numbers.below(8);
            std::fs::write(&path, &broken).unwrap();
            match within_time("a flipped byte", || try_read(&path)) {
                Ok(_) => read += 1,
                Err(error) => {
                    errors += 1;
                    let error = check_error(error);
                    let kind = error.kind();
                    assert!(
                        matches!(
                            kind,
                            ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::InvalidInput
                        ),
                        "{at}: {error}"
                    );
                }
            }
        }
    }
    println!("2000 flipped bits: {errors} errors, {read} read");
    assert!(errors > 500, "{errors}");
}

#[test]
fn overwritten_ranges_give_an_error_or_rows() {
    let dir = TestDir::new();
    let path = dir.path("x.parquet");
    for (number, properties) in variants().into_iter().enumerate() {
        let bytes = parquet_bytes(&small(), properties.build());
        let mut numbers = Numbers(100 + number as u64);
        for _ in 0..300 {
            let mut broken = bytes.clone();
            let at = numbers.below(bytes.len());
            let end = (at + 1 + numbers.below(16)).min(bytes.len());
            let fill = [0x00, 0x7f, 0x80, 0xff][numbers.below(4)];
            broken[at..end].fill(fill);
            std::fs::write(&path, &broken).unwrap();
            let result = within_time("an overwritten range", || try_read(&path));
            let _ = result.map_err(check_error);
        }
    }
}

#[test]
fn non_parquet_or_encrypted_file_is_an_error() {
    let dir = TestDir::new();
    let path = dir.write("x.parquet", "<!DOCTYPE html><html>not found</html>");
    assert_eq!(refused(&path, |_| {}).id(), "parquet-magic");
    let path = dir.write("x.parquet", b"PARE\0\0\0\0\0\0\0\0PARE");
    let error = refused(&path, |_| {});
    assert_eq!(
        (error.id(), error.kind()),
        ("parquet-encrypted", ErrorKind::Unsupported)
    );
    let path = dir.write("x.parquet", "");
    assert_eq!(refused(&path, |_| {}).id(), "parquet-truncated");
    let mut bytes = parquet_bytes(&small(), WriterProperties::default());
    let end = bytes.len();
    bytes[end - 8..end - 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    let error = refused(&dir.write("x.parquet", &bytes), |_| {});
    assert_eq!(error.id(), "parquet-limit");
    bytes[end - 8..end - 4].copy_from_slice(&1_000_000_u32.to_le_bytes());
    let error = refused(&dir.write("x.parquet", &bytes), |_| {});
    assert_eq!(error.id(), "parquet-footer");
    assert!(
        error.to_string().contains("claims 1000000 bytes"),
        "{error}"
    );
}

/// Builds a file around a footer.
fn around(footer: &[u8]) -> Vec<u8> {
    let mut bytes = b"PAR1".to_vec();
    bytes.extend(footer);
    bytes.extend((footer.len() as u32).to_le_bytes());
    bytes.extend(b"PAR1");
    bytes
}

#[test]
fn footers_with_huge_counts_or_depth_are_errors() {
    let dir = TestDir::new();
    // Version 1, a schema of one root, and then a claim of about two billion row groups.
    let schema = [0x15, 2, 0x19, 0x1c, 0x48, 1, b'r', 0x15, 0, 0];
    let mut groups = schema.to_vec();
    groups.extend([0x16, 0, 0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]);
    groups.extend([0; 64]);
    // A schema as deep as it is long, and a column that claims about two billion children.
    let mut deep = vec![0x15, 2, 0x19, 0xfc, 0xc0, 0x9a, 0x0c];
    for _ in 0..200_000 {
        deep.extend([0x48, 1, b'r', 0x15, 2, 0]);
    }
    let children = [
        0x15, 2, 0x19, 0x1c, 0x48, 1, b'r', 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0,
    ];
    // An unknown field full of lists of booleans, 2^31 each.
    let mut endless = vec![0x15, 2, 0xd9];
    endless.extend([0xf9, 0x80, 0x08]);
    for _ in 0..1024 {
        endless.extend([0xf1, 0xff, 0xff, 0xff, 0xff, 0x07]);
    }
    for (what, footer) in [
        ("groups", &groups[..]),
        ("deep", &deep),
        ("children", &children),
        ("endless", &endless),
    ] {
        let path = dir.write("x.parquet", around(footer));
        let error = within_time(what, || refused(&path, |_| {}));
        assert_eq!(error.id(), "parquet-footer", "{what}: {error}");
    }
}

/// Replaces the only occurrence of `from`.
fn patch(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let dirs: Vec<usize> = bytes
        .windows(from.len())
        .enumerate()
        .filter(|(_, window)| *window == from)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(dirs.len(), 1, "{from:?}");
    bytes[dirs[0]..dirs[0] + to.len()].copy_from_slice(to);
}

fn zigzag(value: u32) -> Vec<u8> {
    let mut value = u64::from(value) << 1;
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f | 0x80) as u8);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[test]
fn pages_that_claim_too_large_size_are_errors() {
    // A small page that claims 2 GB. The claimed size takes five bytes in the header, so the page is written with an
    // actual size that takes as many.
    let dir = TestDir::new();
    let values = array(BinaryArray::from_iter_values(vec![vec![7_u8; 300_000_000]]));
    for (codec, id) in [
        (Compression::SNAPPY, "parquet-corrupt"),
        (Compression::LZ4_RAW, "parquet-corrupt"),
        (Compression::ZSTD(ZstdLevel::default()), "parquet-limit"),
    ] {
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None)
            .build();
        let mut bytes = parquet_bytes(&batch(vec![("v", values.clone())]), properties);
        let honest = 300_000_004;
        let from: Vec<u8> = [vec![0x15, 0x00, 0x15], zigzag(honest)].concat();
        let to: Vec<u8> = [vec![0x15, 0x00, 0x15], zigzag(2_000_000_000)].concat();
        patch(&mut bytes, &from, &to);
        if id == "parquet-corrupt" {
            // Below the limit for pages, but more than the codec can expand so few bytes to.
            let to: Vec<u8> = [vec![0x15, 0x00, 0x15], zigzag(1_000_000_000)].concat();
            patch(
                &mut bytes,
                &[vec![0x15, 0x00, 0x15], zigzag(2_000_000_000)].concat(),
                &to,
            );
        }
        let path = dir.write("x.parquet", &bytes);
        let error = within_time("a page bomb", || check_error(try_read(&path).unwrap_err()));
        // Snappy compresses zeros 21 to 1, so its page is small enough to detect the claim; LZ4 compresses 250 to 1.
        if codec != Compression::LZ4_RAW {
            assert_eq!(error.id(), id, "{codec:?}: {error}");
        }
        assert!(
            error.object().unwrap().contains("column `v`"),
            "{:?}",
            error.object()
        );
    }
}

#[test]
fn corrupt_page_error_names_file_row_group_and_column() {
    let dir = TestDir::new();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(100))
        .build();
    let mut bytes = parquet_bytes(&small(), properties);
    let source = open_one(&dir.write("x.parquet", &bytes));
    assert_eq!(source.units().len(), 2);
    // The column `text` is the second: its first page header follows the pages of `id`.
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&std::fs::File::open(dir.path("x.parquet")).unwrap())
        .unwrap();
    let (start, length) = metadata.row_group(1).column(1).byte_range();
    for at in start + 30..start + length - 10 {
        bytes[at as usize] = 0xff;
    }
    let path = dir.write("x.parquet", &bytes);
    let error = check_error(try_read(&path).unwrap_err());
    assert_eq!(error.id(), "parquet-corrupt");
    let object = error.object().unwrap();
    assert!(
        object.ends_with("x.parquet row group 1 column `text`"),
        "{object}: {error}"
    );
}

#[test]
fn unsupported_codec_is_an_error_naming_it() {
    // Change the codec of a column to LZO (3): field 4 of its metadata.
    let dir = TestDir::new();
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .build();
    let mut bytes = parquet_bytes(
        &batch(vec![("v", array(Int64Array::from(vec![1, 2, 3])))]),
        properties,
    );
    // path_in_schema ["v"], codec 2 (zigzag 4), num_values 3 (zigzag 6).
    patch(
        &mut bytes,
        &[0x19, 0x18, 0x01, b'v', 0x15, 4, 0x16, 6],
        &[0x19, 0x18, 0x01, b'v', 0x15, 6, 0x16, 6],
    );
    let path = dir.write("x.parquet", &bytes);
    let error = check_error(try_read(&path).unwrap_err());
    assert_eq!(
        (error.id(), error.kind()),
        ("parquet-codec", ErrorKind::Unsupported)
    );
    assert!(
        error.to_string().contains("`v` is compressed with LZO"),
        "{error}"
    );
}

#[test]
fn gzip_page_larger_than_declared_is_an_error() {
    use std::io::Write as _;
    // 1.5 MB of gzip that expand to 1.5 GB, in a page that claims 100 bytes.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeroes = vec![0; 1 << 20];
    for _ in 0..1500 {
        gzip.write_all(&zeroes).unwrap();
    }
    let body = gzip.finish().unwrap();
    assert!(body.len() > 1 << 20);
    let mut page = vec![0x15, 0, 0x15];
    page.extend(zigzag(100));
    page.push(0x15);
    page.extend(zigzag(body.len() as u32));
    page.extend([0x2c, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
    page.extend(&body);
    let size = page.len() as u32;
    let mut footer = vec![0x15, 2, 0x19, 0x2c];
    footer.extend([0x48, 1, b'r', 0x15, 2, 0]);
    footer.extend([0x15, 4, 0x25, 0, 0x18, 1, b'v', 0]);
    footer.extend([0x16, 6, 0x19, 0x1c]);
    // One row group: columns, total size, rows.
    footer.extend([
        0x19, 0x1c, 0x26, 8, 0x1c, 0x15, 4, 0x19, 0x15, 0, 0x19, 0x18, 1, b'v', 0x15, 4, 0x16, 6,
        0x16,
    ]);
    footer.extend(zigzag(size));
    footer.push(0x16);
    footer.extend(zigzag(size));
    footer.extend([0x26, 8, 0, 0, 0x16, 8, 0x16, 6, 0, 0]);
    let mut bytes = b"PAR1".to_vec();
    bytes.extend(&page);
    bytes.extend(&footer);
    bytes.extend((footer.len() as u32).to_le_bytes());
    bytes.extend(b"PAR1");
    let dir = TestDir::new();
    let path = dir.write("x.parquet", &bytes);
    let error = within_time("a gzip bomb", || check_error(try_read(&path).unwrap_err()));
    assert_eq!(error.id(), "parquet-corrupt");
    assert!(
        error.to_string().contains("expands beyond the 100 bytes"),
        "{error}"
    );
}

#[test]
fn corrupt_arrow_files_give_an_error_or_rows() {
    let dir = TestDir::new();
    let all = small();
    let mut file = FileWriter::try_new(Vec::new(), &all.schema()).unwrap();
    file.write(&all).unwrap();
    let file = file.into_inner().unwrap();
    let mut stream = StreamWriter::try_new(Vec::new(), &all.schema()).unwrap();
    stream.write(&all).unwrap();
    stream.write(&all).unwrap();
    let stream = stream.into_inner().unwrap();
    let path = dir.path("x.arrow");
    for (number, bytes) in [file, stream].into_iter().enumerate() {
        let mut numbers = Numbers(7 + number as u64);
        for _ in 0..400 {
            let mut broken = bytes.clone();
            let at = numbers.below(bytes.len());
            let end = (at + 1 + numbers.below(8)).min(bytes.len());
            let fill = [0x00, 0x7f, 0x80, 0xff][numbers.below(4)];
            broken[at..end].fill(fill);
            std::fs::write(&path, &broken).unwrap();
            let _ = within_time("an Arrow file", || try_read(&path)).map_err(check_error);
            let cut = numbers.below(bytes.len());
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let result = within_time("an Arrow file", || try_read(&path)).map_err(check_error);
            assert!(number == 1 || result.is_err(), "cut at {cut}");
        }
    }
}
