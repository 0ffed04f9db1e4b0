//! Tests Parquet: order, columns, partitions, statistics and batch sizes.

use std::fs;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, DictionaryArray, FixedSizeListArray,
    Int64Array, ListArray, StringArray, StringViewArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Int64Type, Schema};
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use shardmill_source::{SchemaRule, SelectColumn, SourceKind, SourceOptions, open};

use crate::help::{
    TestDir, array, batch, batches, open_one, open_with, read, refused, rows_per_group,
};

fn ids(range: std::ops::Range<i64>) -> ArrayRef {
    array(Int64Array::from_iter_values(range))
}

#[test]
fn units_are_row_groups_in_file_and_row_order() {
    let dir = TestDir::new();
    dir.parquet(
        "d/b.parquet",
        &batch(vec![("id", ids(100..250))]),
        rows_per_group(60),
    );
    dir.parquet(
        "d/a.parquet",
        &batch(vec![("id", ids(0..100))]),
        rows_per_group(60),
    );
    dir.write("d/_SUCCESS", "");
    dir.write("d/.a.parquet.crc", "x");
    let source = open_one(&dir.path("d"));
    let units: Vec<_> = source
        .units()
        .iter()
        .map(|unit| (unit.file, unit.first_row, unit.rows))
        .collect();
    assert_eq!(
        units,
        [
            (Some(0), Some(0), Some(60)),
            (Some(0), Some(60), Some(40)),
            (Some(1), Some(0), Some(60)),
            (Some(1), Some(60), Some(60)),
            (Some(1), Some(120), Some(30)),
        ]
    );
    assert_eq!(read(source.as_ref()).column(0), &ids(0..250));
    let description = source.description();
    assert_eq!(
        (
            description.kind,
            description.rows,
            description.query.clone()
        ),
        (SourceKind::Parquet, Some(250), None)
    );
    assert!(
        description.files[0].path.ends_with("d/a.parquet"),
        "{description:?}"
    );
    assert_eq!(
        description.bytes,
        description.files.iter().map(|file| file.bytes).sum::<u64>()
    );
    // Several threads read the same rows, with units in any order.
    let expected = batches(source.as_ref()).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let source = Arc::clone(&source);
            std::thread::spawn(move || batches(source.as_ref()).unwrap())
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), expected);
    }
}

#[test]
fn columns_are_selected_by_name_in_requested_order() {
    let dir = TestDir::new();
    let all = batch(vec![
        ("a", ids(0..10)),
        (
            "b",
            array(StringArray::from_iter_values(
                (0..10).map(|i| format!("b{i}")),
            )),
        ),
        ("c", ids(10..20)),
    ]);
    let path = dir.parquet("x.parquet", &all, WriterProperties::default());
    let choose = |names: &[&str]| {
        let columns = names
            .iter()
            .map(|name| SelectColumn::named(*name))
            .collect();
        open_with(&path, |options| options.query.columns = columns)
    };
    let source = choose(&["c", "b"]).unwrap();
    let found = read(source.as_ref());
    assert_eq!(
        (found.column(0), found.column(1)),
        (all.column(2), all.column(1))
    );
    assert_eq!(found.schema().field(0).name(), "c");
    let error = choose(&["B"]).err().unwrap();
    assert_eq!(
        (error.id(), error.hint().unwrap()),
        ("source-column", "did you mean `b`?")
    );
    assert_eq!(
        choose(&["a", "a"]).err().unwrap().id(),
        "source-duplicate-column"
    );
}

#[test]
fn batches_have_about_the_requested_size() {
    let dir = TestDir::new();
    let wide = array(BinaryArray::from_iter_values(
        (0..2000).map(|i| vec![i as u8; 10_000]),
    ));
    let path = dir.parquet(
        "x.parquet",
        &batch(vec![("v", wide.clone())]),
        WriterProperties::default(),
    );
    let source = open_with(&path, |options| options.resources.batch_bytes = 1 << 20).unwrap();
    let found = batches(source.as_ref()).unwrap();
    let max = found.iter().map(|batch| batch.num_rows()).max().unwrap();
    assert!(
        (50..=150).contains(&max),
        "{max} rows of 10 kB in a batch of 1 MiB"
    );
    assert_eq!(read(source.as_ref()).column(0), &wide);
}

#[test]
fn batch_size_counts_expanded_dictionary_values() {
    // A file of a few kilobytes with 400 MB of values.
    let dir = TestDir::new();
    let value = "x".repeat(200_000);
    let large = array(StringArray::from_iter_values(
        (0..2000).map(|_| value.as_str()),
    ));
    let path = dir.parquet(
        "x.parquet",
        &batch(vec![("v", large)]),
        WriterProperties::default(),
    );
    assert!(fs::metadata(&path).unwrap().len() < 1_000_000);
    let source = open_with(&path, |options| options.resources.batch_bytes = 1 << 20).unwrap();
    let mut rows = source.open_unit(0).unwrap();
    let mut count = 0;
    while let Some(batch) = rows.next_batch().unwrap() {
        assert!(batch.num_rows() <= 8, "{} rows", batch.num_rows());
        count += batch.num_rows();
    }
    assert_eq!(count, 2000);
}

#[test]
fn all_types_and_codecs_round_trip() {
    let dir = TestDir::new();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>((0..500).map(|i| {
        if i % 7 == 0 {
            None
        } else {
            Some((0..i % 5).map(Some).collect::<Vec<_>>())
        }
    }));
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..500).map(|i| Some([Some(i), Some(-i)])),
        2,
    );
    let fields = Fields::from(vec![Field::new("x", DataType::Int64, false)]);
    let structs = StructArray::new(fields, vec![ids(0..500)], None);
    let all = batch(vec![
        ("list", array(list)),
        ("fixed", array(fixed)),
        ("struct", array(structs)),
        (
            "text",
            array(StringArray::from_iter(
                (0..500).map(|i| (i % 3 > 0).then(|| format!("text {i}"))),
            )),
        ),
    ]);
    for (number, (codec, version)) in [
        (Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0),
        (Compression::SNAPPY, WriterVersion::PARQUET_1_0),
        (
            Compression::GZIP(GzipLevel::default()),
            WriterVersion::PARQUET_2_0,
        ),
        (
            Compression::BROTLI(Default::default()),
            WriterVersion::PARQUET_2_0,
        ),
        (Compression::LZ4, WriterVersion::PARQUET_1_0),
        (Compression::LZ4_RAW, WriterVersion::PARQUET_2_0),
        (
            Compression::ZSTD(ZstdLevel::default()),
            WriterVersion::PARQUET_2_0,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_writer_version(version)
            .set_dictionary_enabled(number % 2 == 0)
            .set_data_page_row_count_limit(100)
            .build();
        let path = dir.parquet(&format!("{number}.parquet"), &all, properties);
        let source = open_with(&path, |options| options.resources.batch_bytes = 1000).unwrap();
        assert_eq!(read(source.as_ref()).columns(), all.columns(), "{codec:?}");
    }
}

#[test]
fn dictionaries_and_views_are_read_as_plain_values() {
    let dir = TestDir::new();
    let words = ["a", "b", "a"];
    let dictionary: DictionaryArray<Int32Type> = words.into_iter().collect();
    let all = batch(vec![
        ("dictionary", array(dictionary)),
        ("view", array(StringViewArray::from_iter_values(words))),
    ]);
    let source = open_one(&dir.parquet("x.parquet", &all, WriterProperties::default()));
    let plain = array(StringArray::from_iter_values(words));
    assert_eq!(read(source.as_ref()).columns(), [plain.clone(), plain]);
}

#[test]
fn hive_partition_directories_become_columns() {
    let dir = TestDir::new();
    for (directory, from) in [
        ("k=10/l=x", 0),
        ("k=9/l=a%2Fb", 2),
        ("k=9/l=__HIVE_DEFAULT_PARTITION__", 4),
    ] {
        dir.parquet(
            &format!("d/{directory}/0.parquet"),
            &batch(vec![("id", ids(from..from + 2))]),
            WriterProperties::default(),
        );
    }
    let source = open_one(&dir.path("d"));
    let found = read(source.as_ref());
    let names: Vec<_> = source
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    assert_eq!(names, ["id", "k", "l"]);
    assert_eq!(
        found.column(1).as_primitive::<Int64Type>(),
        &Int64Array::from(vec![10, 10, 9, 9, 9, 9])
    );
    assert_eq!(
        found.column(2).as_string::<i32>(),
        &StringArray::from(vec![
            Some("x"),
            Some("x"),
            None,
            None,
            Some("a/b"),
            Some("a/b")
        ])
    );
    assert_eq!(
        (source.null_count(1), source.null_count(2)),
        (Some(0), Some(2))
    );
    let first = source.first_null(2).unwrap().unwrap();
    assert!(
        first.to_string().contains("__HIVE_DEFAULT_PARTITION__") && first.row == 0,
        "{first}"
    );
    // Only the partition columns: of the file itself, only the number of rows is needed.
    let columns = vec![SelectColumn::named("k")];
    let source = open_with(&dir.path("d"), |options| options.query.columns = columns).unwrap();
    assert_eq!(read(source.as_ref()).num_rows(), 6);
    // A pattern keeps the keys of components with a wildcard.
    let source = open_one(&dir.path("d/k=*/l=x"));
    assert_eq!(source.schema().fields().len(), 3);
    dir.parquet(
        "d/k=9/l=x/1.parquet",
        &batch(vec![("k", ids(0..1)), ("id", ids(0..1))]),
        WriterProperties::default(),
    );
    // Both files and directories have the column, whether or not all files do.
    assert_eq!(refused(&dir.path("d"), |_| {}).id(), "source-partition");
    dir.parquet(
        "e/k=1/0.parquet",
        &batch(vec![("k", ids(0..1))]),
        WriterProperties::default(),
    );
    let error = refused(&dir.path("e"), |_| {});
    assert_eq!(error.id(), "source-partition");
    assert!(error.to_string().contains("`k`"), "{error}");
    dir.parquet(
        "f/k=1/0.parquet",
        &batch(vec![("id", ids(0..1))]),
        WriterProperties::default(),
    );
    dir.parquet(
        "f/0.parquet",
        &batch(vec![("id", ids(0..1))]),
        WriterProperties::default(),
    );
    assert_eq!(refused(&dir.path("f"), |_| {}).id(), "source-partition");
}

#[test]
fn columns_are_matched_by_name_and_mismatches_are_errors() {
    let dir = TestDir::new();
    let nullable = |values: Vec<Option<i64>>| array(Int64Array::from(values));
    let text = |values: Vec<&str>| array(StringArray::from(values));
    let first = batch(vec![
        ("id", nullable(vec![Some(1), None])),
        ("text", text(vec!["a", "b"])),
    ]);
    dir.parquet("d/0.parquet", &first, WriterProperties::default());
    // Another order of columns, and large text.
    let second = batch(vec![
        (
            "text",
            array(arrow::array::LargeStringArray::from(vec!["c"])),
        ),
        ("id", ids(7..8)),
    ]);
    dir.parquet("d/1.parquet", &second, WriterProperties::default());
    let source = open_one(&dir.path("d"));
    let found = read(source.as_ref());
    assert_eq!(
        found.column(0).as_primitive::<Int64Type>(),
        &Int64Array::from(vec![Some(1), None, Some(7)])
    );
    assert_eq!(source.schema().field(1).data_type(), &DataType::LargeUtf8);
    assert_eq!(found.column(1).as_string::<i64>().value(2), "c");
    assert_eq!(source.null_count(0), Some(1));

    // With the option, a nullable column that a file lacks is null there.
    let schema = Schema::new(vec![Field::new("text", DataType::Utf8, true)]);
    let only =
        arrow::array::RecordBatch::try_new(Arc::new(schema), vec![text(vec!["d", "e"])]).unwrap();
    dir.parquet("d/2.parquet", &only, WriterProperties::default());
    assert_eq!(
        refused(&dir.path("d"), |_| {}).id(),
        "parquet-missing-column"
    );
    let union = |options: &mut SourceOptions| options.schema.rule = SchemaRule::Union;
    let source = open_with(&dir.path("d"), union).unwrap();
    assert_eq!(source.null_count(0), Some(3));
    assert_eq!(read(source.as_ref()).column(0).null_count(), 3);

    dir.parquet(
        "d/3.parquet",
        &batch(vec![("id", text(vec!["x"])), ("text", text(vec!["x"]))]),
        WriterProperties::default(),
    );
    let error = refused(&dir.path("d"), union);
    assert_eq!(error.id(), "parquet-schema-mismatch");
    assert!(error.object().unwrap().ends_with("3.parquet"));
    assert!(
        error
            .to_string()
            .starts_with("column `id` is Utf8, but Int64 in "),
        "{error}"
    );

    let strict = |name: &str| Field::new(name, DataType::Int64, false);
    let required = |names: &[&str]| {
        let schema = Schema::new(names.iter().map(|name| strict(name)).collect::<Vec<_>>());
        arrow::array::RecordBatch::try_new(
            Arc::new(schema),
            names.iter().map(|_| ids(0..1)).collect(),
        )
        .unwrap()
    };
    dir.parquet(
        "e/0.parquet",
        &required(&["a", "b"]),
        WriterProperties::default(),
    );
    dir.parquet(
        "e/1.parquet",
        &required(&["a"]),
        WriterProperties::default(),
    );
    assert_eq!(
        refused(&dir.path("e"), |_| {}).id(),
        "parquet-missing-column"
    );
    dir.parquet(
        "e/1.parquet",
        &required(&["a", "b", "c"]),
        WriterProperties::default(),
    );
    let error = refused(&dir.path("e"), |_| {});
    assert_eq!(error.id(), "parquet-extra-column");
    assert!(error.to_string().contains("`c`"), "{error}");
}

#[test]
fn nulls_are_counted_from_statistics_and_located_by_reading() {
    let dir = TestDir::new();
    let values = (0..1000).map(|i| (i != 730 && i != 731).then_some(i));
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..1000).map(|i| (i != 5).then(|| vec![Some(i)])),
    );
    let all = batch(vec![
        ("v", array(Int64Array::from_iter(values))),
        ("list", array(list)),
        ("full", ids(0..1000)),
    ]);
    let path = dir.parquet("x.parquet", &all, rows_per_group(100));
    let source = open_one(&path);
    assert_eq!(
        (
            source.null_count(0),
            source.null_count(1),
            source.null_count(2)
        ),
        (Some(2), None, Some(0))
    );
    let first = source.first_null(0).unwrap().unwrap();
    assert_eq!(
        (first.row, first.file.as_deref().unwrap()),
        (730, source.description().files[0].path.as_str())
    );
    assert_eq!(source.first_null(1).unwrap().unwrap().row, 5);
    assert_eq!(source.first_null(2).unwrap(), None);
    let properties = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let source = open_one(&dir.parquet("y.parquet", &all, properties));
    assert_eq!(source.null_count(0), None);
    assert_eq!(source.first_null(0).unwrap().unwrap().row, 730);
}

#[test]
fn file_changed_while_reading_is_an_error() {
    let dir = TestDir::new();
    let path = dir.parquet(
        "x.parquet",
        &batch(vec![("id", ids(0..10))]),
        WriterProperties::default(),
    );
    let source = open_one(&path);
    let mut rows = source.open_unit(0).unwrap();
    dir.parquet(
        "x.parquet",
        &batch(vec![("id", ids(0..11))]),
        WriterProperties::default(),
    );
    let error = source.open_unit(0).err().unwrap();
    assert_eq!(error.id(), "source-changed");
    // An open reader returns its rows or reports the change, but never ends normally.
    let mut last = rows.next_batch();
    while let Ok(Some(_)) = last {
        last = rows.next_batch();
    }
    assert_eq!(last.unwrap_err().id(), "source-changed");
    fs::remove_file(&path).unwrap();
    assert_eq!(source.open_unit(0).err().unwrap().id(), "not-found");
}

#[test]
fn empty_files_and_row_groups_are_read() {
    let dir = TestDir::new();
    let empty = batch(vec![("id", ids(0..0))]);
    let path = dir.parquet("d/0.parquet", &empty, WriterProperties::default());
    let source = open_one(&path);
    assert_eq!(
        (source.units().len(), source.description().rows),
        (0, Some(0))
    );
    dir.parquet(
        "d/1.parquet",
        &batch(vec![("id", ids(0..3))]),
        WriterProperties::default(),
    );
    assert_eq!(read(open_one(&dir.path("d")).as_ref()).num_rows(), 3);
}

#[test]
fn dataset_of_many_files_is_read_completely() {
    // 600 files: more than are read at a time, with the same footers in another order of files.
    let dir = TestDir::new();
    let one = crate::help::parquet_bytes(
        &batch(vec![("id", ids(0..2)), ("b", ids(0..2))]),
        WriterProperties::default(),
    );
    for number in 0..600 {
        dir.write(&format!("d/{number:04}.parquet"), &one);
    }
    for jobs in [1, 3] {
        let mut options = SourceOptions::default();
        options.resources.jobs = jobs;
        let source = open(&[dir.path("d").into()], &options).unwrap();
        assert_eq!(
            (source.units().len(), source.description().rows),
            (600, Some(1200))
        );
        assert_eq!(read(source.as_ref()).num_rows(), 1200);
    }
}

#[test]
fn hugging_face_image_structs_are_read_as_bytes() {
    let dir = TestDir::new();
    let bytes: ArrayRef = array(BinaryArray::from_opt_vec(vec![
        Some(b"one"),
        Some(b"two"),
        None,
        Some(b"four"),
    ]));
    let path: ArrayRef = array(StringArray::from(vec![Some("1.jpg"), None, None, None]));
    let children = |names: [&str; 2]| -> Fields {
        let [bytes, path] = names;
        vec![
            Field::new(bytes, DataType::Binary, true),
            Field::new(path, DataType::Utf8, true),
        ]
        .into()
    };
    let structs = |names, valid: [bool; 4]| -> ArrayRef {
        let columns = vec![Arc::clone(&bytes), Arc::clone(&path)];
        array(StructArray::new(
            children(names),
            columns,
            Some(valid.to_vec().into()),
        ))
    };
    let table = batch(vec![
        ("id", ids(0..4)),
        (
            "image",
            structs(["bytes", "path"], [true, false, true, true]),
        ),
        ("other", structs(["bytes", "name"], [true; 4])),
    ]);
    let file = dir.parquet("f.parquet", &table, rows_per_group(3));
    let source = open_one(&file);
    assert_eq!(source.schema().field(1).data_type(), &DataType::Binary);
    assert!(source.schema().field(1).is_nullable());
    assert!(matches!(
        source.schema().field(2).data_type(),
        DataType::Struct(_)
    ));
    let rows = read(source.as_ref());
    let found = rows.column(1).as_binary::<i32>();
    let found: Vec<_> = found.iter().collect();
    // Null if the struct is null, or if its bytes are.
    assert_eq!(found, [Some(b"one".as_slice()), None, None, Some(b"four")]);
    assert_eq!(source.null_count(1), None);
    assert_eq!(source.first_null(1).unwrap().unwrap().row, 1);
    // Expressions can access the struct.
    let source = open_with(&file, |options| {
        options.query.select = Some("arrow_cast(image.path, 'Utf8') AS path, image".to_owned());
        options.query.filter = Some("image.path IS NOT NULL".to_owned());
    });
    let rows = read(source.unwrap().as_ref());
    let paths: Vec<_> = rows.column(0).as_string::<i32>().iter().collect();
    assert_eq!(paths, [Some("1.jpg")]);
    assert_eq!(rows.schema().field(1).data_type(), &DataType::Binary);
}

/// Returns the path of a file in `fixtures/parquet`.
fn fixture(name: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/parquet");
    folder.join(name)
}

#[test]
fn int96_timestamps_keep_their_date() {
    let expected = [
        "0001-01-01T00:00:00",
        "1600-02-29T12:30:15.250",
        "2024-05-06T07:08:09.123456",
        "9999-12-31T23:59:59.999999",
    ];
    for name in ["int96.parquet", "int96-schema.parquet"] {
        let found = read(open_one(&fixture(name)).as_ref());
        let column = |name: &str| found.column_by_name(name).unwrap();
        let lists = column("l").as_list::<i32>().values();
        let structs = column("s").as_struct().column(0);
        for times in [column("t"), lists, structs] {
            let text = arrow::compute::cast(times, &DataType::Utf8).unwrap();
            assert_eq!(
                text.as_string::<i32>(),
                &StringArray::from(expected.to_vec()),
                "{name}"
            );
        }
    }
}

#[test]
fn page_checksums_are_verified() {
    for name in ["checksums-1.0.parquet", "checksums-2.0.parquet"] {
        let dir = TestDir::new();
        let mut bytes = fs::read(fixture(name)).unwrap();
        let value = 1042_i64.to_le_bytes();
        let at = bytes.windows(8).position(|found| found == value).unwrap();
        let source = open_one(&dir.write("whole.parquet", &bytes));
        assert_eq!(read(source.as_ref()).num_rows(), 100);
        bytes[at] ^= 1;
        let source = open_one(&dir.write("damaged.parquet", &bytes));
        let error = batches(source.as_ref()).unwrap_err();
        assert!(error.to_string().contains("CRC"), "{name}: {error}");
        assert_eq!(error.kind(), shardmill_core::ErrorKind::Corrupt);
    }
}
