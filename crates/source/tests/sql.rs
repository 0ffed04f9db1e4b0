//! Tests `--sql`, which runs a whole query.

use arrow::array::{ArrayRef, AsArray as _, Int64Array, StringArray};
use arrow::datatypes::{Int64Type, UInt64Type};
use shardmill_core::ErrorKind;
use shardmill_source::{SelectColumn, Source, SourceOptions};

use crate::help::{
    TestDir, array, batch, batches, check_error, open_with, read, refused, rows_per_group,
};

fn table(dir: &TestDir, rows: i64) -> std::path::PathBuf {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", array(Int64Array::from_iter_values(0..rows))),
        (
            "k",
            array(Int64Array::from_iter_values(
                (0..rows).map(|i| i * 7919 % 1009),
            )),
        ),
        (
            "text",
            array(StringArray::from_iter_values(
                (0..rows).map(|i| format!("text {}", i * 31 % 97)),
            )),
        ),
    ];
    dir.parquet("x.parquet", &batch(columns), rows_per_group(5000))
}

fn query(path: &std::path::Path, sql: &str) -> std::sync::Arc<dyn Source> {
    open_with(path, |options| options.query.sql = Some(sql.to_owned())).unwrap()
}

fn int(source: &dyn Source, column: usize) -> Vec<i64> {
    read(source)
        .column(column)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

#[test]
fn query_result_is_one_unit_over_the_whole_table() {
    let dir = TestDir::new();
    let path = table(&dir, 20_000);
    let source = query(
        &path,
        "select text, count(*) as n from source where id < 970 group by text order by text limit 3",
    );
    assert_eq!(source.units().len(), 1);
    assert_eq!(
        (source.units()[0].file, source.units()[0].rows),
        (None, None)
    );
    let found = read(source.as_ref());
    assert_eq!(
        found.column(0).as_string::<i32>(),
        &StringArray::from(vec!["text 0", "text 1", "text 10"])
    );
    assert_eq!(int(source.as_ref(), 1), [10, 10, 10]);
    assert_eq!(
        source.description().query.as_deref(),
        Some(
            "SELECT text, count(*) AS n FROM source WHERE id < 970 GROUP BY text ORDER BY text LIMIT 3"
        )
    );
    assert_eq!(
        int(query(&path, "SELECT count(*) AS n FROM source").as_ref(), 0),
        [20_000]
    );
    let plain = query(&path, "SELECT * FROM source");
    assert_eq!(int(plain.as_ref(), 0), (0..20_000).collect::<Vec<_>>());
    let joined = query(
        &path,
        "SELECT a.id, b.id AS other FROM source a JOIN source b ON a.id = b.id + 1 WHERE a.id < 4",
    );
    assert_eq!(
        (int(joined.as_ref(), 0), int(joined.as_ref(), 1)),
        (vec![1, 2, 3], vec![0, 1, 2])
    );
    let window = query(
        &path,
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id DESC) AS r FROM source ORDER BY id LIMIT 1",
    );
    let numbers = read(window.as_ref());
    assert_eq!(
        numbers.column(1).as_primitive::<UInt64Type>().values(),
        &[20]
    );
}

#[test]
fn repeated_query_returns_rows_in_the_same_order() {
    let dir = TestDir::new();
    let path = table(&dir, 20_000);
    for sql in [
        "SELECT k, count(*) AS n, min(text) AS t FROM source GROUP BY k",
        "SELECT DISTINCT text FROM source",
        "SELECT a.id FROM source a JOIN source b ON a.k = b.id",
        "SELECT id FROM source WHERE k IN (SELECT id FROM source WHERE text = 'text 5')",
        "SELECT id FROM source UNION SELECT k FROM source",
    ] {
        let first = read(query(&path, sql).as_ref());
        assert!(first.num_rows() > 10, "{sql}");
        for _ in 0..3 {
            assert_eq!(read(query(&path, sql).as_ref()), first, "{sql}");
        }
    }
}

#[test]
fn columns_are_selected_from_the_query_result() {
    let dir = TestDir::new();
    let path = table(&dir, 100);
    let source = open_with(&path, |options| {
        options.query.sql = Some("SELECT id AS a, k FROM source ORDER BY id DESC".to_owned());
        options.query.columns = vec![crate::computed("b", "a * 10"), SelectColumn::named("a")];
    })
    .unwrap();
    assert_eq!(
        (int(source.as_ref(), 0)[0], int(source.as_ref(), 1)[0]),
        (990, 99)
    );
}

#[test]
fn queries_that_do_more_than_read_are_rejected() {
    let dir = TestDir::new();
    let path = table(&dir, 10);
    let target = dir.path("out.csv");
    let refuse = |sql: &str| {
        let sql = sql.to_owned();
        refused(&path, |options: &mut SourceOptions| {
            options.query.sql = Some(sql)
        })
    };
    for (sql, id) in [
        ("SELECT 1 AS x; SELECT 2 AS y", "sql-refused"),
        ("CREATE TABLE t AS SELECT * FROM source", "sql-refused"),
        (
            "CREATE EXTERNAL TABLE t (x INT) STORED AS CSV LOCATION '/etc/passwd'",
            "sql-refused",
        ),
        ("INSERT INTO source VALUES (1, 2, 'x')", "sql-refused"),
        ("SET datafusion.execution.batch_size = 1", "sql-refused"),
        ("EXPLAIN SELECT * FROM source", "sql-refused"),
        ("SELECT id, now() AS t FROM source", "sql-refused"),
        (
            "SELECT * FROM (SELECT uuid() AS u FROM source)",
            "sql-refused",
        ),
        ("SELECT * FROM source ORDER BY uuid()", "sql-refused"),
        (
            "SELECT * FROM source TABLESAMPLE (10 PERCENT)",
            "sql-refused",
        ),
        (
            "SELECT * FROM (SELECT id FROM source TABLESAMPLE BERNOULLI (10))",
            "sql-refused",
        ),
        ("SELECT id FROM source PREWHERE id < 5", "sql-refused"),
        ("SELECT * FROM source PARTITION (p0)", "sql-refused"),
        ("SELECT * FROM source WITH (NOLOCK)", "sql-refused"),
        ("SELECT * FROM source FOR UPDATE", "sql-refused"),
        ("SELECT * FROM source SETTINGS x = 1", "sql-refused"),
        ("SELEC * FROM source", "sql-syntax"),
        ("SELECT * FROM other", "sql-plan"),
        ("SELECT * FROM '/etc/passwd'", "sql-plan"),
        ("SELECT nope FROM source", "source-column"),
        (
            "SELECT a.id, b.id FROM source a JOIN source b ON a.id = b.id",
            "source-duplicate-column",
        ),
    ] {
        let error = refuse(sql);
        assert_eq!(error.id(), id, "{sql}: {error}");
    }
    let error = refuse(&format!("COPY source TO '{}'", target.display()));
    assert_eq!((error.id(), target.exists()), ("sql-refused", false));
    let error = refused(&path, |options| {
        options.query.sql = Some("SELECT * FROM source".to_owned());
        options.query.filter = Some("id > 1".to_owned());
    });
    assert_eq!(
        (error.id(), error.kind()),
        ("source-option", ErrorKind::InvalidInput)
    );
    assert_eq!(
        refuse("SELECT txt FROM source").hint(),
        Some("did you mean `text`?")
    );
}

#[test]
fn query_runtime_errors_have_specific_ids() {
    let dir = TestDir::new();
    let path = table(&dir, 20_000);
    let source = query(&path, "SELECT CAST(text AS BIGINT) AS n FROM source");
    assert_eq!(
        check_error(batches(source.as_ref()).unwrap_err()).id(),
        "sql-run"
    );
    // A file that changes during a query is an error of the source, not of the engine.
    let source = query(&path, "SELECT sum(id) AS s FROM source");
    table(&dir, 10);
    assert_eq!(
        check_error(batches(source.as_ref()).unwrap_err()).id(),
        "source-changed"
    );
}

#[test]
fn query_beyond_memory_limit_spills_or_fails() {
    let dir = TestDir::new();
    let path = table(&dir, 200_000);
    let spill = dir.path("spill");
    std::fs::create_dir(&spill).unwrap();
    let run = |limit: u64| {
        let spill = spill.clone();
        open_with(&path, move |options| {
            options.query.sql = Some("SELECT id, text FROM source ORDER BY k, id".to_owned());
            options.resources.memory_limit = Some(limit);
            options.resources.temp_dir = Some(spill);
        })
        .unwrap()
    };
    let generous = batches(run(1 << 30).as_ref()).unwrap();
    let spilled = batches(run(4 << 20).as_ref());
    let tight = batches(run(10_000).as_ref()).map_err(check_error);
    let schema = generous[0].schema();
    let whole = arrow::compute::concat_batches(&schema, &generous).unwrap();
    match spilled {
        Ok(spilled) => assert_eq!(
            arrow::compute::concat_batches(&schema, &spilled).unwrap(),
            whole
        ),
        Err(error) => panic!("{error}"),
    }
    let error = tight.unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("sql-memory", ErrorKind::Resource)
    );
    assert_eq!(
        std::fs::read_dir(&spill).unwrap().count(),
        0,
        "spilled files are left"
    );
}
