//! Invalid option values and command lines, which are refused before any work.

use crate::case::{Case, TestDir, case};

pub fn cases() -> Vec<Case> {
    let mut cases = values();
    cases.extend(queries());
    cases.extend(command_lines());
    cases
}

/// `convert in out` with options, over a good source.
fn with(options: &str, exit: i32, ids: &'static str, says: &[&'static str]) -> Case {
    case(options, TestDir::source).unconvertible(options, exit, ids, says)
}

/// The same with options that hold blanks.
fn with_words(
    name: &str,
    options: &[&str],
    exit: i32,
    ids: &'static str,
    says: &[&'static str],
) -> Case {
    case(name, TestDir::source).fails_with(
        &[&["convert", "in", "out"], options].concat(),
        exit,
        ids,
        says,
    )
}

fn values() -> Vec<Case> {
    let mut cases = Vec::new();
    for (option, id, values) in [
        (
            "--size-limit",
            "config-size-limit",
            &["-1", "1.5", "4GiB", "5GB", "1e99", "64kib3", "much", "''"][..],
        ),
        (
            "--samples-per-shard",
            "config-samples-per-shard",
            &["0", "-1", "1.5", "1kib", "99999999999999999999"],
        ),
        (
            "--compression",
            "config-compression",
            &[
                "zstd:23", "zstd:0", "zst", "gzip", "lz4", "snappy:1", "br:12", "bz2:0", "ZSTD",
            ],
        ),
        (
            "--hashes",
            "config-hashes",
            &["md6", "sha256,md6", "sha256,", "SHA256", "sha-256"],
        ),
        (
            "--jobs",
            "config-jobs",
            &["0", "-1", "1.5", "9999999", "many"],
        ),
        (
            "--memory-limit",
            "config-memory-limit",
            &["0", "-1", "much"],
        ),
        (
            "--split",
            "config-split",
            &[
                "train",
                "train=",
                "train=0.9",
                "train=0.9,val=0.2",
                "train=0.5,train=0.5",
                "train=-1,val=2",
                "train=nan,val=1",
                "../x=1",
                "a/b=1",
                ".shardmill=1",
                "train=0,val=1",
                "=1",
            ],
        ),
        ("--nulls", "config-nulls", &["skip", "ERROR"]),
        (
            "--null-as",
            "config-null-as",
            &["x", "=1", "absent=1", "id=x", "id=1.5"],
        ),
        ("--to", "config-to", &["orc", "MDS"]),
        ("--from", "config-from", &["orc", "CSV"]),
        (
            "--safety-limit",
            "config-safety-limit",
            &["shards", "shards=many", "nothing=1", "=1"],
        ),
        (
            "--column",
            "config-column",
            &[
                "id:",
                ":int",
                "id=",
                "id:int:1",
                "id:foo",
                "id:jpg",
                "id:INT",
                "id:ndarray:float128",
                "id:ndarray:int8:0",
                "id:ndarray:int8:2,x",
                "id:list[str]",
            ],
        ),
    ] {
        for value in values.iter().filter(|value| **value != "''") {
            let name = format!("{option}={value}");
            cases.push(case(&name, TestDir::source).unconvertible(
                &name,
                2,
                id,
                &[option_name(option)],
            ));
        }
    }
    cases.extend([
        with(
            "--null-as id=1 --null-as id=2",
            2,
            "config-null-as",
            &["--null-as", "id"],
        ),
        with(
            "--column id --column id:str",
            2,
            "config-column",
            &["--column", "id"],
        ),
        with(
            "--column absent",
            2,
            "source-column",
            &["--column", "absent"],
        ),
        with(
            "--column nome",
            2,
            "source-column",
            &["--column", "nome", "did you mean `name`"],
        ),
        with(
            "--split-key id",
            2,
            "usage-missing-argument|config-split-key",
            &["--split"],
        ),
        with(
            "--split a=0.5,b=0.5 --split-key absent",
            2,
            "config-split-key|source-column",
            &["--split-key", "absent"],
        ),
        with("--key-column=", 2, "config-key", &["--key-column"]),
    ]);
    cases
}

fn option_name(option: &str) -> &'static str {
    const NAMES: [&str; 13] = [
        "--size-limit",
        "--samples-per-shard",
        "--compression",
        "--hashes",
        "--jobs",
        "--memory-limit",
        "--split",
        "--nulls",
        "--null-as",
        "--to",
        "--from",
        "--safety-limit",
        "--column",
    ];
    NAMES.into_iter().find(|name| *name == option).unwrap()
}

fn queries() -> Vec<Case> {
    vec![
        with_words(
            "where: no expression",
            &["--where", "id >"],
            2,
            "sql-syntax",
            &["--where"],
        ),
        with_words(
            "where: blank",
            &["--where", " "],
            2,
            "config-where",
            &["--where"],
        ),
        with_words(
            "where: an unknown column",
            &["--where", "absent = 1"],
            2,
            "sql-plan|source-column",
            &["--where", "absent"],
        ),
        with_words(
            "where: an unknown function",
            &["--where", "frob(id)"],
            2,
            "sql-plan",
            &["--where", "frob"],
        ),
        with_words(
            "where: no truth value",
            &["--where", "id + 1"],
            2,
            "sql-plan",
            &["--where"],
        ),
        with_words(
            "where: a type that does not fit",
            &["--where", "name > 1 AND id LIKE 3"],
            2,
            "sql-plan",
            &["--where"],
        ),
        with_words(
            "where: an aggregate",
            &["--where", "sum(id) > 1"],
            2,
            "sql-refused|sql-plan",
            &["--where"],
        ),
        with_words(
            "where: a second statement",
            &["--where", "id = 1; DROP TABLE source"],
            2,
            "sql-syntax",
            &["--where"],
        ),
        with_words(
            "where: a query within",
            &["--where", "id IN (SELECT id FROM other)"],
            2,
            "sql-plan|sql-refused|sql-syntax",
            &["--where"],
        ),
        with_words(
            "where: division by zero",
            &["--where", "1 / (id - 3) > 0"],
            3,
            "sql-run",
            &["--where"],
        ),
        with_words(
            "where: 2,000 parentheses",
            &[
                "--where",
                &format!("{}id > 1{}", "(".repeat(2000), ")".repeat(2000)),
            ],
            2,
            "sql-syntax|sql-plan",
            &["--where"],
        ),
        with_words(
            "select: an aggregate",
            &["--select", "sum(id) AS total"],
            2,
            "sql-refused",
            &["--select", "--sql"],
        ),
        with_words(
            "select: a window",
            &["--select", "row_number() OVER () AS n"],
            2,
            "sql-refused",
            &["--select", "--sql"],
        ),
        with_words(
            "select: no expression",
            &["--select", "id,,name"],
            2,
            "sql-syntax",
            &["--select"],
        ),
        with_words(
            "select: two columns of one name",
            &["--select", "id, name AS id"],
            2,
            "source-duplicate-column",
            &["id"],
        ),
        with_words(
            "select: an unknown column",
            &["--select", "nome"],
            2,
            "sql-plan|source-column",
            &["--select", "nome"],
        ),
        with_words(
            "select: a cast that fails",
            &["--select", "CAST(name AS INT) AS n"],
            3,
            "sql-run",
            &["--select"],
        ),
        with_words(
            "column: an aggregate",
            &["--column", "n=count(id)"],
            2,
            "sql-refused|sql-plan",
            &["--column"],
        ),
        with_words(
            "column: a syntax error",
            &["--column", "n=id +"],
            2,
            "sql-syntax",
            &["--column"],
        ),
        with_words(
            "sql: a syntax error",
            &["--sql", "SELEKT 1"],
            2,
            "sql-syntax",
            &["--sql"],
        ),
        with_words(
            "sql: create",
            &["--sql", "CREATE TABLE x AS SELECT * FROM source"],
            2,
            "sql-refused",
            &["--sql"],
        ),
        with_words(
            "sql: create external",
            &[
                "--sql",
                "CREATE EXTERNAL TABLE p STORED AS CSV LOCATION '/etc/passwd'",
            ],
            2,
            "sql-refused|sql-syntax",
            &["--sql"],
        ),
        with_words(
            "sql: copy",
            &["--sql", "COPY source TO 'stolen.csv'"],
            2,
            "sql-refused|sql-syntax",
            &["--sql"],
        ),
        with_words(
            "sql: insert",
            &["--sql", "INSERT INTO source VALUES (1, 'a', 2)"],
            2,
            "sql-refused",
            &["--sql"],
        ),
        with_words(
            "sql: set",
            &["--sql", "SET datafusion.execution.batch_size = 1"],
            2,
            "sql-refused",
            &["--sql"],
        ),
        with_words(
            "sql: explain",
            &["--sql", "EXPLAIN SELECT * FROM source"],
            2,
            "sql-refused",
            &["--sql"],
        ),
        with_words(
            "sql: two statements",
            &["--sql", "SELECT 1; SELECT 2"],
            2,
            "sql-refused|sql-syntax",
            &["--sql"],
        ),
        with_words(
            "sql: nothing",
            &["--sql=-- nothing"],
            2,
            "sql-refused|sql-syntax",
            &["--sql"],
        ),
        with_words(
            "sql: another table",
            &["--sql", "SELECT * FROM secrets"],
            2,
            "sql-plan",
            &["--sql", "secrets"],
        ),
        with_words(
            "sql: a file as table",
            &["--sql", "SELECT * FROM '/etc/passwd'"],
            2,
            "sql-plan",
            &["--sql"],
        ),
        with_words(
            "sql: another column",
            &["--sql", "SELECT absent FROM source"],
            2,
            "source-column",
            &["--sql", "absent"],
        ),
        with_words(
            "sql: the schema of the engine",
            &["--sql", "SELECT * FROM information_schema.tables"],
            2,
            "sql-plan",
            &["--sql"],
        ),
        with_words(
            "sql: a cast that fails",
            &["--sql", "SELECT CAST(name AS INT) AS n FROM source"],
            3,
            "sql-run",
            &["--sql"],
        ),
        with_words(
            "sql: with where",
            &["--sql", "SELECT * FROM source", "--where", "id > 1"],
            2,
            "usage-conflict",
            &["--where", "--sql"],
        ),
        with_words(
            "sql: with select",
            &["--sql", "SELECT * FROM source", "--select", "id"],
            2,
            "usage-conflict",
            &["--select", "--sql"],
        ),
        with_words(
            "sql: two columns of one name",
            &["--sql", "SELECT id, name AS id FROM source"],
            2,
            "source-duplicate-column|sql-plan",
            &["id"],
        ),
        with_words(
            "sql: more memory than the limit",
            &[
                "--sql",
                "SELECT a.name, b.name AS other FROM source a, source b, source c, source d, source e ORDER BY a.name || b.name || c.name || d.name || e.name",
                "--memory-limit",
                "16MiB",
            ],
            7,
            "sql-memory",
            &["--memory-limit"],
        ),
    ]
}

fn command_lines() -> Vec<Case> {
    let line = |line: &str, ids: &'static str, says: &[&'static str]| {
        case(&format!("command line: {line}"), |dir: &TestDir| {
            dir.source();
            dir.mds();
        })
        .fails(line, 2, ids, says)
    };
    vec![
        line("frobnicate", "usage-unknown-verb", &["frobnicate"]),
        line(
            "convrt in out",
            "usage-unknown-verb",
            &["convrt", "convert"],
        ),
        line("convert in", "usage-missing-argument", &["SOURCE"]),
        line("convert", "usage-missing-argument", &["SOURCE"]),
        line(
            "convert in out --compresion none",
            "usage-unknown-option",
            &["--compresion", "--compression"],
        ),
        line(
            "convert in out --jobs 1 --jobs 2",
            "usage-conflict|config-jobs",
            &["--jobs"],
        ),
        line(
            "cat shards 40",
            "sample-out-of-range|no-such-sample",
            &["40"],
        ),
        line(
            "cat shards -41",
            "sample-out-of-range|no-such-sample",
            &["-41"],
        ),
        line(
            "cat shards 0..41",
            "sample-out-of-range|no-such-sample",
            &["41"],
        ),
        line(
            "cat shards 5..3",
            "config-range|sample-out-of-range",
            &["5..3"],
        ),
        line(
            "cat shards x",
            "config-range|usage-value|config-index|config-index|a..b",
            &["x"],
        ),
        line(
            "cat shards 0 --column absent",
            "column-unknown",
            &["absent"],
        ),
        line(
            "cat shards --key absent --key-column name",
            "key-not-found",
            &["absent"],
        ),
        line(
            "cat shards --key 1 --key-column pair",
            "key-encoding",
            &["pair"],
        ),
        line(
            "cat shards 0 --raw",
            "config-raw|config-column|usage-missing-argument",
            &["--raw"],
        ),
        line("verify shards --jobs 0", "config-jobs", &["--jobs"]),
        line("verify shards shards", "usage-unknown-option", &["shards"]),
        line("index rebuild nowhere", "not-found", &["nowhere"]),
        line("index merge a b", "config-out", &["--out"]),
        case(
            "command line: inspect --shards in/rows.parquet",
            TestDir::source,
        )
        .fails(
            "inspect --shards in/rows.parquet",
            3,
            "index-not-json",
            &["in/rows.parquet"],
        ),
        line("verify in", "index-missing", &["in"]),
    ]
}
