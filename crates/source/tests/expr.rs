//! Tests `--where`, `--select` and computed columns.

use arrow::array::{Array as _, ArrayRef, AsArray as _, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use parquet::file::properties::WriterProperties;
use shardmill_source::{SelectColumn, SourceOptions};

use crate::help::{TestDir, array, batch, batches, open_with, read, refused, rows_per_group};

fn table(dir: &TestDir) -> std::path::PathBuf {
    let text = (0..1000).map(|i| (i % 10 != 3).then(|| format!("Text {i}")));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", array(Int64Array::from_iter_values(0..1000))),
        ("Text", array(StringArray::from_iter(text))),
        (
            "score",
            array(Float64Array::from_iter_values(
                (0..1000).map(|i| if i == 999 { f64::NAN } else { f64::from(i) }),
            )),
        ),
        (
            "odd name",
            array(Int64Array::from_iter_values((0..1000).map(|i| i % 7))),
        ),
    ];
    dir.parquet("x.parquet", &batch(columns), rows_per_group(100))
}

fn int(found: &arrow::array::RecordBatch, column: usize) -> Vec<i64> {
    found
        .column(column)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

#[test]
fn filter_keeps_matching_rows_of_each_unit() {
    let dir = TestDir::new();
    let path = table(&dir);
    let source = open_with(&path, |options| {
        options.query.filter = Some("id % 250 = 7 AND Text IS NOT NULL".to_owned())
    })
    .unwrap();
    assert_eq!(int(&read(source.as_ref()), 0), [7, 257, 507, 757]);
    assert_eq!(source.schema().fields().len(), 4);
    assert_eq!(
        (
            source.description().rows,
            source.units()[0].rows,
            source.units()[0].first_row
        ),
        (None, None, None)
    );
    assert_eq!(
        source.description().query.as_deref(),
        Some("SELECT * FROM source WHERE id % 250 = 7 AND Text IS NOT NULL")
    );
}

#[test]
fn statistics_prune_row_groups_without_losing_rows() {
    let dir = TestDir::new();
    let path = table(&dir);
    for (filter, units, ids) in [
        ("id >= 950", 1, (950..1000).collect::<Vec<_>>()),
        ("id = 150 OR id = 850", 2, vec![150, 850]),
        ("id IN (5, 6)", 1, vec![5, 6]),
        ("id > 5000", 0, vec![]),
        // As text, 404 also lies between 0 and 99.
        ("Text = 'Text 404'", 2, vec![404]),
        // NaN is greater than any number, and statistics do not cover it.
        ("score > 998.5", 10, vec![999]),
        ("id + 1 > 999", 10, vec![999]),
        (
            "id >= 950 AND \"odd name\" < 1",
            1,
            vec![952, 959, 966, 973, 980, 987, 994],
        ),
    ] {
        let source = open_with(&path, |options| {
            options.query.filter = Some(filter.to_owned())
        })
        .unwrap();
        let found: Vec<i64> = batches(source.as_ref())
            .unwrap()
            .iter()
            .flat_map(|batch| int(batch, 0))
            .collect();
        assert_eq!(found, ids, "{filter}");
        assert!(
            source.units().len() <= units.max(1) || units == 10,
            "{filter}: {} units",
            source.units().len()
        );
        assert_eq!(source.units().len(), units, "{filter}");
    }
}

#[test]
fn select_picks_computes_and_renames_columns() {
    let dir = TestDir::new();
    let path = table(&dir);
    let source = open_with(&path, |options| {
        options.query.select = Some("lower(Text) AS text, id * 2 AS twice, source.id".to_owned());
        options.query.filter = Some("id < 5".to_owned());
    })
    .unwrap();
    let found = read(source.as_ref());
    let names: Vec<_> = source
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    assert_eq!(names, ["text", "twice", "id"]);
    assert_eq!(
        found.column(0).as_string::<i32>(),
        &StringArray::from(vec![
            Some("text 0"),
            Some("text 1"),
            Some("text 2"),
            None,
            Some("text 4")
        ])
    );
    assert_eq!(
        (int(&found, 1), int(&found, 2)),
        (vec![0, 2, 4, 6, 8], vec![0, 1, 2, 3, 4])
    );

    let source = open_with(&path, |options| {
        options.query.select = Some("* EXCLUDE (Text, score)".to_owned())
    })
    .unwrap();
    assert_eq!(source.schema().fields().len(), 2);

    let columns = vec![
        SelectColumn::named("odd name"),
        crate::computed("n", "length(Text)"),
    ];
    let source = open_with(&path, |options| options.query.columns = columns).unwrap();
    assert_eq!(
        source.description().query.as_deref(),
        Some("SELECT \"odd name\", length(Text) AS \"n\" FROM source")
    );
    assert_eq!(read(source.as_ref()).num_rows(), 1000);
    assert_eq!(source.units()[3].first_row, Some(300));

    // Columns computed from the result of a select list.
    let source = open_with(&path, |options| {
        options.query.select = Some("id AS a, id + 1 AS b".to_owned());
        options.query.columns = vec![crate::computed("c", "a + b"), SelectColumn::named("a")];
    })
    .unwrap();
    let found = read(source.as_ref());
    assert_eq!((int(&found, 0)[10], int(&found, 1)[10]), (21, 10));
    assert_eq!(
        source.description().query.as_deref(),
        Some("SELECT a + b AS \"c\", \"a\" FROM (SELECT id AS a, id + 1 AS b FROM source)")
    );
    // No column of the table is read, only its number of rows.
    let source = open_with(&path, |options| {
        options.query.select = Some("1 AS one".to_owned())
    })
    .unwrap();
    assert_eq!(int(&read(source.as_ref()), 0), vec![1; 1000]);
}

#[test]
fn nulls_are_counted_and_located_in_selected_columns() {
    let dir = TestDir::new();
    let path = table(&dir);
    let source = open_with(&path, |options| {
        options.query.select = Some("Text AS t, upper(Text) AS u, id".to_owned())
    })
    .unwrap();
    assert_eq!(
        (
            source.null_count(0),
            source.null_count(1),
            source.null_count(2)
        ),
        (Some(100), None, Some(0))
    );
    assert_eq!(source.first_null(0).unwrap().unwrap().row, 3);
    assert_eq!(source.first_null(1).unwrap().unwrap().row, 3);
    let source = open_with(&path, |options| {
        options.query.filter = Some("id > 400 AND id % 3 = 2".to_owned())
    })
    .unwrap();
    assert_eq!(source.null_count(1), None);
    // The first of 401, 404, 407, … that ends in 3.
    let first = source.first_null(1).unwrap().unwrap();
    assert_eq!(first.row, 413);
    assert_eq!(source.null_count(0), Some(0));
}

#[test]
fn expressions_that_are_not_row_functions_are_rejected() {
    let dir = TestDir::new();
    let path = table(&dir);
    let filter = |text: &str| {
        let text = text.to_owned();
        refused(&path, |options: &mut SourceOptions| {
            options.query.filter = Some(text)
        })
    };
    for (text, id) in [
        ("id >", "sql-syntax"),
        ("id > 1 id", "sql-syntax"),
        ("nope > 1", "source-column"),
        ("text = 'x'", "source-column"),
        ("nosuchfunction(id) > 1", "sql-plan"),
        ("id", "sql-plan"),
        ("id + 1", "sql-plan"),
        ("max(id) > 3", "sql-refused"),
        ("id > (SELECT avg(id) FROM source)", "sql-refused"),
        ("row_number() OVER () > 3", "sql-refused"),
        ("now() > '2020-01-01'", "sql-refused"),
        ("uuid() = 'x'", "sql-refused"),
    ] {
        let error = filter(text);
        assert_eq!(error.id(), id, "{text}: {error}");
        assert_eq!(error.object(), Some("--where"), "{text}");
    }
    assert_eq!(filter("text = 'x'").hint(), Some("did you mean `Text`?"));
    assert!(filter("max(id) > 3").hint().unwrap().contains("--sql"));
    let select = |text: &str| {
        let text = text.to_owned();
        refused(&path, |options: &mut SourceOptions| {
            options.query.select = Some(text)
        })
    };
    assert_eq!(select("id, id").id(), "source-duplicate-column");
    assert_eq!(select("id + 1").id(), "sql-plan");
    assert!(select("id + 1").to_string().contains("`id + 1 AS name`"));
    assert_eq!(select("* EXCLUDE nope").id(), "source-column");
    assert_eq!(select("count(*) AS n").id(), "sql-refused");
    assert_eq!(select("id FROM source").id(), "sql-syntax");
}

#[test]
fn runtime_error_in_expression_names_the_option() {
    let dir = TestDir::new();
    let path = table(&dir);
    let source = open_with(&path, |options| {
        options.query.select = Some("CAST(Text AS BIGINT) AS n".to_owned())
    })
    .unwrap();
    let error = crate::help::check_error(batches(source.as_ref()).unwrap_err());
    assert_eq!((error.id(), error.object()), ("sql-run", Some("--select")));
    assert!(error.to_string().contains("Text 0"), "{error}");
}

#[test]
fn only_needed_columns_are_read() {
    // The column `bad` is overwritten, so reading it fails.
    let dir = TestDir::new();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("good", array(Int64Array::from_iter_values(0..10))),
        (
            "bad",
            array(StringArray::from_iter_values(
                (0..10).map(|i| format!("value {i}")),
            )),
        ),
    ];
    let path = dir.parquet("x.parquet", &batch(columns), WriterProperties::default());
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&std::fs::File::open(&path).unwrap())
        .unwrap();
    let (start, length) = metadata.row_group(0).column(1).byte_range();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[start as usize..(start + length) as usize].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let source = open_with(&path, |options| {
        options.query.filter = Some("good > 5".to_owned())
    })
    .unwrap();
    assert_eq!(
        batches(source.as_ref()).unwrap_err().id(),
        "parquet-corrupt"
    );
    let source = open_with(&path, |options| {
        options.query.filter = Some("good > 5".to_owned());
        options.query.select = Some("good".to_owned());
    })
    .unwrap();
    assert_eq!(int(&read(source.as_ref()), 0), [6, 7, 8, 9]);
    let source = open_with(&path, |options| {
        options.query.sql = Some("SELECT sum(good) AS s FROM source".to_owned())
    })
    .unwrap();
    let found = read(source.as_ref());
    assert_eq!(found.schema().field(0).data_type(), &DataType::Int64);
    assert_eq!(int(&found, 0), [45]);
    assert_eq!(found.column(0).null_count(), 0);
}

#[test]
fn integer_overflow_in_expression_is_an_error() {
    let dir = TestDir::new();
    let path = table(&dir);
    for text in [
        "id + 9223372036854775000",
        "-9223372036854775000 - id",
        "id * 9223372036854775000",
    ] {
        let source = open_with(&path, |options| {
            options.query.select = Some(format!("{text} AS n"));
        });
        let error = batches(source.unwrap().as_ref()).unwrap_err();
        assert_eq!(error.id(), "sql-run", "{text}: {error}");
    }
    let source = open_with(&path, |options| {
        options.query.select = Some("id + 9223372036854774808 AS n".to_owned());
    });
    let found = read(source.unwrap().as_ref());
    assert_eq!(int(&found, 0).last(), Some(&i64::MAX));
}
