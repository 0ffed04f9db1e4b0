//! Follows hints: with the options that a hint names, the command succeeds and no column is gone. The commands that it
//! names succeed, and then the reason of the hint is gone.

use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use shardmill_testing::delta::Table;
use shardmill_testing::tfrecord;
use shlex::Shlex;

use crate::common::{Ran, TestDir};

/// A command that fails, and the options in its hint that mend it.
struct Case {
    /// The files to write, and their contents.
    files: &'static [(&'static str, &'static str)],
    /// Makes what is no text file.
    prepare: fn(&TestDir),
    /// Commands that succeed before it.
    setup: &'static [&'static str],
    /// The command. Its destination is `out`.
    command: &'static str,
    /// The alternatives in the hint, in its order. A hint with others fails the test.
    ways: &'static [&'static str],
    /// Values for the words in capitals.
    values: &'static [(&'static str, &'static str)],
    /// The columns of the dataset after the alternatives. Fields of tar files may have extensions.
    columns: &'static str,
}

const CASE: Case = Case {
    files: &[],
    prepare: |_| (),
    setup: &[],
    command: "convert in out",
    ways: &[],
    values: &[],
    columns: "",
};

const MIXED: &[(&str, &str)] = &[(
    "in/a.jsonl",
    "{\"id\":1,\"e\":1,\"t\":\"a\"}\n{\"id\":2,\"e\":\"x\",\"t\":\"b\"}\n",
)];
const MIXED_FILES: &[(&str, &str)] = &[
    ("in/a.jsonl", "{\"id\":1,\"e\":1}\n"),
    ("in/b.jsonl", "{\"id\":2,\"e\":\"x\"}\n"),
];
const NAMES: &[(&str, &str)] = &[(
    "in/a.jsonl",
    "{\"id\":1,\"x.y: z\":1}\n{\"id\":2,\"x.y: z\":\"b\"}\n",
)];
const BIG: &[(&str, &str)] = &[("in/a.jsonl", "{\"id\":1,\"n\":18446744073709551616}\n")];
const BIG_INSIDE: &[(&str, &str)] = &[(
    "in/a.jsonl",
    "{\"id\":1,\"a\":{\"b\":18446744073709551616}}\n",
)];
const CSV: &[(&str, &str)] = &[("in/a.csv", "id,t\n1,9007199254740993\n2,0.5\n")];
const NULLS: &[(&str, &str)] = &[(
    "in/a.jsonl",
    "{\"id\":1,\"t\":null}\n{\"id\":2,\"t\":\"x\"}\n",
)];
const EMPTY_LIST: &[(&str, &str)] =
    &[("in/a.jsonl", "{\"id\":1,\"v\":[]}\n{\"id\":2,\"v\":[1]}\n")];
const NULL_INSIDE: &[(&str, &str)] = &[(
    "in/a.jsonl",
    "{\"id\":1,\"v\":[1,null]}\n{\"id\":2,\"v\":[1,2]}\n",
)];
const TREE: &[(&str, &str)] = &[("in/0.txt", "a"), ("in/1.txt", "b"), ("in/1.cls", "1")];
const PARTS_OF_NAMES: &[(&str, &str)] = &[("in/1.seg.cls", "1"), ("in/1.txt", "b")];
const KEYS: &[(&str, &str)] = &[(
    "in/a.jsonl",
    "{\"k\":\"a b\",\"t\":\"x\"}\n{\"k\":\"c d\",\"t\":\"y\"}\n",
)];
const SAME_KEYS: &[(&str, &str)] = &[(
    "in/a.jsonl",
    "{\"k\":\"a\",\"t\":\"x\"}\n{\"k\":\"a\",\"t\":\"y\"}\n",
)];
const NO_KEY: &[(&str, &str)] = &[(
    "in/a.jsonl",
    "{\"k\":null,\"t\":\"x\"}\n{\"k\":\"a\",\"t\":\"y\"}\n",
)];
const TWO: &[(&str, &str)] = &[("in/a.csv", "id,text\n1,x\n")];
const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
    "model":{"type":"WordLevel","vocab":{"red":0,"x":1},"unk_token":"red"}}"#;
const TEXTS: &[(&str, &str)] = &[
    (
        "in/a.jsonl",
        "{\"a\":\"x\",\"b\":\"red\",\"tokens\":\"z\"}\n",
    ),
    ("tokenizer.json", TOKENIZER),
];
const NO_TOKENS: &[(&str, &str)] = &[
    (
        "in/a.jsonl",
        "{\"a\":\"\",\"id\":1}\n{\"a\":\"x\",\"id\":2}\n",
    ),
    ("tokenizer.json", TOKENIZER),
];
const TABLES: &[(&str, &str)] = &[
    ("a/a.jsonl", "{\"id\":1,\"end\":1}\n"),
    ("b/a.jsonl", "{\"id\":1,\"end\":1,\"more\":2}\n"),
    ("c/a.jsonl", "{\"id\":1,\"end\":\"x\"}\n"),
];
const NUMBERS: &[(&str, &str)] = &[
    ("a/a.jsonl", "{\"id\":1,\"n\":1}\n"),
    ("b/a.jsonl", "{\"id\":1,\"n\":1.5}\n"),
    ("c/a.jsonl", "{\"id\":1,\"n\":\"7\"}\n"),
];
const ZARR: &[(&str, &str)] = &[
    ("in/.zgroup", "{\"zarr_format\":2}"),
    ("in/v/.zarray", ZARR_ARRAY),
    ("in/v/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"t\"]}"),
    ("in/v/0", "abcd"),
    ("in/d/.zarray", ZARR_ARRAY),
    (
        "in/d/.zattrs",
        "{\"_ARRAY_DIMENSIONS\":[\"t\"],\"units\":\"days since 2000-01-01\",\"calendar\":\"360_day\"}",
    ),
    ("in/d/0", "abcd"),
];
const ZARR_ARRAY: &str = r#"{"zarr_format":2,"shape":[4],"chunks":[4],"dtype":"|u1","compressor":null,"fill_value":0,
    "order":"C","filters":null}"#;

/// A Delta table of two versions with rows.
fn delta(dir: &TestDir) {
    let mut table = Table::create(&dir.path().join("t")).unwrap();
    for id in [3, 7] {
        table.append(&[(id, "a text".to_owned())]).unwrap();
    }
}

/// A tree whose only file is a link.
fn link(dir: &TestDir) {
    dir.write("other/0.txt", "a");
    fs::create_dir(dir.path().join("in")).unwrap();
    std::os::unix::fs::symlink("../other/0.txt", dir.path().join("in/0.txt")).unwrap();
}

/// Records that are no examples of TensorFlow.
fn texts_in_records(dir: &TestDir) {
    dir.write("in/a.tfrecord", tfrecord::file(&[b"a text", b"another"]));
}

/// A file of records above 64 MiB, whose second record shows that a feature is a list.
fn records_that_differ(dir: &TestDir) {
    // The feature `id` of `tf.train.Example`, with one value and with two.
    let (one, two) = (
        b"\n\x0d\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x01",
        b"\n\x0e\n\x0c\n\x02id\x12\x06\x1a\x04\n\x02\x01\x02",
    );
    let ones = vec![&one[..]; (64 << 20) / (one.len() + 16) + 1];
    dir.write(
        "in/a.tfrecord",
        tfrecord::file(&[&ones[..], &[&two[..]]].concat()),
    );
}

/// A dataset of the folder `a` without its shard.
fn without_shard(dir: &TestDir) {
    dir.ok(&["convert", "a", "out"]);
    fs::remove_file(dir.path().join("out/shard.00000.mds.zstd")).unwrap();
}

/// Kills a conversion of the folder `long` after its first shard.
fn killed(dir: &TestDir, more: &[&str]) {
    let row = "{\"id\":1,\"t\":\"a text that is compressed slowly\"}\n";
    dir.write("long/a.jsonl", row.repeat(200_000));
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardmill"));
    command.current_dir(dir.path()).stderr(Stdio::null());
    let mut running = command.args(LONG.split(' ')).args(more).spawn().unwrap();
    let journal = dir.path().join("out/.shardmill/journal");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    while lines() < 2 {
        assert!(running.try_wait().unwrap().is_none(), "it has ended");
        thread::sleep(Duration::from_millis(1));
    }
    running.kill().unwrap();
    assert_eq!(running.wait().unwrap().code(), None);
}

const LONG: &str = "convert long out --jobs 1 --compression zstd:15 --size-limit 100kb";

fn interrupted(dir: &TestDir) {
    killed(dir, &[]);
}

fn interrupted_overwrite(dir: &TestDir) {
    dir.ok(&["convert", "a", "out"]);
    killed(dir, &["--overwrite"]);
}

/// Texts that take 8 MB to sort.
fn long_texts(dir: &TestDir) {
    let rows: Vec<String> = (0..80_000)
        .map(|row| format!("{{\"t\":\"{row:0100}\"}}\n"))
        .collect();
    dir.write("in/a.jsonl", rows.concat());
}

const ARRAYS: &[(&str, &str)] = &[
    ("a/a.jsonl", "{\"id\":1,\"v\":[1,2]}\n"),
    ("b/a.jsonl", "{\"id\":2,\"v\":[[1,2]]}\n"),
];

const TREE_OF_NUMBERS: &[(&str, &str)] = &[
    ("in/0.txt", "a"),
    ("in/0.cls", "1"),
    ("in/1.txt", "b"),
    ("in/1.cls", "2"),
];

#[rustfmt::skip]
const CASES: &[Case] = &[
    // Columns of JSON lines and CSV files whose values have no type in common.
    Case { files: MIXED, ways: &["--column '*' --column e:json"], columns: "e id t", ..CASE },
    Case { files: MIXED, command: "convert in out --column e --column t", ways: &["--column e:json"], columns: "e t", ..CASE },
    Case { files: MIXED, command: "convert in out --where 'id > 0'", ways: &["--column '*' --column e:json"], columns: "e id t", ..CASE },
    Case { files: MIXED, command: "convert in out --to webdataset", ways: &["--column '*' --column e:json"], columns: "e id t", ..CASE },
    Case { files: MIXED, command: "convert in out --to parquet", ways: &["--column '*' --column e:str"], columns: "e id t", ..CASE },
    Case { files: MIXED, command: "convert in out --where 'e IS NOT NULL'", ways: &[], ..CASE },
    Case { files: MIXED_FILES, ways: &["--column '*' --column e:json"], columns: "e id", ..CASE },
    Case { files: NAMES, ways: &["--column '*' --column '\"x.y: z\":json'"], columns: "id x.y:␣z", ..CASE },
    Case { files: BIG, ways: &["--column '*' --column n:str"], columns: "id n", ..CASE },
    Case { files: BIG, command: "convert in out --to parquet", ways: &["--column '*' --column n:str"], columns: "id n", ..CASE },
    Case { files: BIG_INSIDE, command: "convert in out --select '*, a.b AS c'", ways: &[], ..CASE },
    Case { files: BIG_INSIDE, command: "convert in out --to parquet", ways: &["--to mds --column '*' --column a:json"], columns: "a id", ..CASE },
    Case { files: CSV, ways: &["--column '*' --column t:str"], columns: "id t", ..CASE },
    Case { files: CSV, command: "convert in out --to webdataset", ways: &["--column '*' --column t:str"], columns: "id t", ..CASE },
    // Values that arrays cannot store.
    Case { files: EMPTY_LIST, ways: &["--column '*' --column v:json"], columns: "id v", ..CASE },
    Case { files: NULL_INSIDE, ways: &["--nulls mask", "--column '*' --column v:json"], columns: "id v", ..CASE },
    Case { files: NULL_INSIDE, command: "convert in out --to webdataset", ways: &["--nulls mask", "--column '*' --column v.json=v"], columns: "id v", ..CASE },
    // Nulls.
    Case {
        files: NULLS, ways: &["--nulls mask", "--nulls drop", "--null-as t=VALUE"], values: &[("VALUE", "none")],
        columns: "id t", ..CASE
    },
    Case {
        files: NULLS, command: "convert in out --to webdataset",
        ways: &["--nulls omit", "--nulls mask", "--nulls drop", "--null-as NAME=VALUE"],
        values: &[("NAME", "t"), ("VALUE", "none")], columns: "id t", ..CASE
    },
    Case { files: NULLS, command: "convert in out --nulls omit", ways: &["--nulls mask", "--nulls drop", "--to webdataset"], columns: "id t", ..CASE },
    Case {
        files: NO_KEY, command: "convert in out --to webdataset --key-column k",
        ways: &["--nulls drop", "--null-as k=VALUE"], values: &[("VALUE", "none")], columns: "t", ..CASE
    },
    // Trees.
    Case {
        files: PARTS_OF_NAMES, ways: &["--group key", "--nulls mask", "--nulls drop", "--null-as NAME=VALUE", "--group file"],
        // One for each column.
        values: &[("--null-as NAME=VALUE", "")], ..CASE
    },
    Case {
        files: TREE, ways: &["--group key", "--nulls mask", "--nulls drop", "--null-as cls=VALUE", "--group file"],
        values: &[("--group key", ""), ("VALUE", "0")], ..CASE
    },
    Case {
        files: TREE, command: "convert in out --to webdataset", ways: &["--group key", "--nulls omit", "--nulls mask", "--nulls drop"],
        values: &[("--group key", "")], columns: "txt cls", ..CASE
    },
    Case { files: &[("in/0.txt", "a"), ("in/0.TXT", "b")], ways: &["--group file"], columns: "__key__ data", ..CASE },
    // Files of several kinds, and of none.
    Case {
        files: &[("in/a.jsonl", "{\"id\":1}\n"), ("in/a.csv", "id\n1\n")], ways: &["--from csv", "--from jsonl", "--from tree"], ..CASE
    },
    Case { files: &[("in", "id\n1\n")], ways: &["--from KIND", "--from csv"], values: &[("KIND", "csv")], columns: "id", ..CASE },
    // Names of fields and keys.
    Case {
        files: &[("in/a.jsonl", "{\"_x\":1,\"t\":\"x\"}\n")], command: "convert in out --to webdataset",
        ways: &["--select '* EXCEPT (_x), _x AS NAME'"], values: &[("NAME", "x")], columns: "t x", ..CASE
    },
    Case {
        files: KEYS, command: "convert in out --to webdataset --key-column k",
        ways: &["--select '*, EXPR AS KEY' --key-column KEY", "--names any"],
        values: &[("EXPR", "replace(k, ' ', '-')"), ("KEY", "key")], columns: "t", ..CASE
    },
    Case {
        files: SAME_KEYS, command: "convert in out --to webdataset --key-column k", ways: &["--key-column"],
        values: &[("--key-column", "t")], columns: "k", ..CASE
    },
    // Limits.
    Case { files: TWO, command: "convert in out --safety-limit columns=1", ways: &["--column NAME", "--safety-limit columns=N"], values: &[("NAME", "id"), ("N", "9")], columns: "id", ..CASE },
    Case {
        files: TWO, command: "convert in out --safety-limit string-bytes=3", ways: &["--select LIST", "--safety-limit string-bytes=N"],
        values: &[("LIST", "id, text AS t"), ("N", "9")], columns: "id", ..CASE
    },
    // Options of other formats and sources. The option that is omitted goes.
    Case { files: TWO, command: "convert in out --row-group-size 1MiB", ways: &["omit --row-group-size", "--to parquet"], columns: "id text", ..CASE },
    Case { files: TWO, command: "convert in out --names any", ways: &["omit --names", "--to webdataset"], columns: "id text", ..CASE },
    Case { files: TWO, command: "convert in out --index-for wids", ways: &["omit --index-for", "--to webdataset"], columns: "id text", ..CASE },
    Case { files: TWO, command: "convert in out --group file", ways: &["omit --group", "--from tree"], ..CASE },
    // Columns of tables that differ.
    Case {
        files: TABLES, setup: &["convert a p --to parquet", "convert b q --to parquet"], command: "convert p q out",
        ways: &["--schema union --nulls mask", "--select '* EXCEPT (more)'"], columns: "id", ..CASE
    },
    Case {
        files: TABLES, setup: &["convert a p --to parquet", "convert c q --to parquet"], command: "convert p q out",
        ways: &["--select '* EXCEPT (\"end\"), CAST(\"end\" AS VARCHAR) AS \"end\"'", "--select '* EXCEPT (\"end\")'"], columns: "id", ..CASE
    },
    // Types that a format or an encoding does not have.
    Case {
        files: TREE_OF_NUMBERS, command: "convert in out --column '*' --column cls:int",
        ways: &["--column 'cls:int=CAST(CAST(cls AS VARCHAR) AS BIGINT)'"], columns: "__key__ cls txt", ..CASE
    },
    // An existing destination.
    Case { files: &[("in/a.csv", "id\n1\n"), ("out/notes.txt", "x")], ways: &[], ..CASE },
    Case { files: &[("in/a.csv", "id\n1\n"), ("out/shard.00000.mds", "x")], ways: &["--overwrite"], columns: "id", ..CASE },
    Case { files: TABLES, setup: &["convert a out"], command: "convert b out", ways: &["--overwrite"], columns: "id more", ..CASE },
    Case {
        files: TABLES, setup: &["convert a out"], command: "add-column out b --on id",
        ways: &["--column more", "--column '*' --column 'NAME=\"end\"'"], values: &[("NAME", "until")], columns: "end id more", ..CASE
    },
    Case { files: TABLES, setup: &["convert a out"], command: "cat out 0 --raw", ways: &["--column"], values: &[("--column", "id")], ..CASE },
    Case {
        files: TABLES, setup: &["convert a p", "convert a q"], command: "index merge p q", ways: &["--out"], values: &[("--out", ".")], ..CASE
    },
    // Increments of a Delta table.
    Case {
        prepare: delta, setup: &["convert t out --incremental"], command: "convert t out --incremental --where 'id > 3'",
        ways: &["--column", "--overwrite"], values: &[("--column", "")], columns: "id text", ..CASE
    },
    Case {
        prepare: delta, setup: &["convert t out --incremental"], command: "convert t out --delta-version 1 --incremental",
        ways: &["--overwrite"], columns: "id text", ..CASE
    },
    Case {
        prepare: delta, setup: &["convert t out"], command: "convert t out --incremental", ways: &["--overwrite"],
        columns: "id text", ..CASE
    },
    Case {
        prepare: delta, command: "convert t out --part 0/2 --incremental", ways: &["omit --incremental", "--overwrite"],
        values: &[("--overwrite", "")], ..CASE
    },
    Case {
        prepare: delta, command: "convert t out --to webdataset --index-for wids --incremental",
        ways: &["omit --index-for", "shardmill index export DATASET --for READER --force"],
        values: &[("shardmill index export DATASET --for READER --force", "")], columns: "id text", ..CASE
    },
    Case { prepare: delta, command: "convert t out --to parquet --incremental", ways: &["--to mds"], columns: "id text", ..CASE },
    Case {
        files: TABLES, setup: &["convert a p --to parquet"], command: "convert p out --incremental",
        ways: &["omit --incremental", "--overwrite"], values: &[("--overwrite", "")], columns: "end id", ..CASE
    },
    // Stores of Zarr, links, and other trees.
    Case { files: ZARR, command: "convert in out --from zarr", ways: &["--variable NAME --window DIMENSION=SIZE,..."], values: &[("NAME", "v"), ("DIMENSION=SIZE,...", "t=2")], columns: "v", ..CASE },
    Case { files: ZARR, command: "convert in out --from zarr --variable d --window t=2", ways: &["--raw-values"], columns: "d", ..CASE },
    Case { prepare: link, ways: &["--follow-links"], columns: "__key__ txt", ..CASE },
    Case {
        files: TABLES, setup: &["convert a tars --to webdataset"], command: "convert tars out --key-column id",
        ways: &["--key-column"], values: &[("--key-column", "key")], columns: "end id key", ..CASE
    },
    // Files and types.
    Case {
        files: &[("in/a.csv", "id;t\n1;2,5\n")], ways: &["--csv-delimiter"], values: &[("--csv-delimiter", ";")],
        columns: "id t", ..CASE
    },
    Case {
        files: NUMBERS, setup: &["convert a p --to parquet", "convert b q --to parquet"], command: "convert p q out",
        ways: &["--select '* EXCEPT (n), CAST(n AS DOUBLE) AS n'", "--select '* EXCEPT (n)'"], columns: "id", ..CASE
    },
    Case {
        files: NUMBERS, command: "convert c out --column '*' --column n:int", ways: &["--column 'n:int=CAST(n AS …)'"],
        values: &[("…", "BIGINT")], columns: "id n", ..CASE
    },
    Case {
        files: TWO, command: "convert in out --to webdataset --index-for wids --compression zstd",
        ways: &["omit --compression"], columns: "id text", ..CASE
    },
    Case {
        files: TWO, command: "convert in out --to parquet --lengths text", ways: &["omit --lengths", "--to mds"],
        columns: "id text", ..CASE
    },
    Case {
        files: TEXTS, command: "convert in out --tokenize tokenizer.json --column id=1", ways: &["--text", "--select"],
        values: &[("--text", ""), ("--select", "")], ..CASE
    },
    // Tokens.
    Case { files: TEXTS, command: "convert in out --tokenize tokenizer.json --tokens ids", ways: &["--text"], values: &[("--text", "a")], columns: "b ids tokens", ..CASE },
    Case { files: TEXTS, command: "convert in out --tokenize tokenizer.json --text a", ways: &["--tokens"], values: &[("--tokens", "ids")], columns: "b ids tokens", ..CASE },
    // Record files, queries, and bytes.
    Case { prepare: texts_in_records, ways: &["--from tfrecord-raw"], columns: "record", ..CASE },
    Case {
        prepare: records_that_differ, command: "convert in out --infer-rows 100", ways: &["--infer-rows"],
        values: &[("--infer-rows", "9000000")], columns: "id", ..CASE
    },
    Case {
        files: TWO, command: "convert in out --where 'id = (SELECT max(id) FROM source)'", ways: &["--sql"],
        values: &[("--sql", "SELECT * FROM source WHERE id = (SELECT max(id) FROM source)")], columns: "id text", ..CASE
    },
    Case {
        prepare: long_texts, command: "convert in out --sql 'SELECT * FROM source ORDER BY t' --memory-limit 1MB",
        ways: &["--memory-limit SIZE"], values: &[("SIZE", "200MB")], columns: "t", ..CASE
    },
    Case {
        files: TWO, setup: &["convert in b --column '*' --column 'text=CAST(text AS BYTEA)'"],
        command: "convert b out --column '*' --column text:ndarray",
        ways: &["--column text:bytes", "--column text:ndarray:float32:2,3"],
        values: &[("--column text:ndarray:float32:2,3", "")], columns: "id text", ..CASE
    },
    Case {
        files: TWO, setup: &["convert in b --column '*' --column 'text=CAST(text AS BYTEA)'"],
        command: "convert b out --to webdataset --column '*' --column text:npy", ways: &["--column text:bytes"], columns: "id text", ..CASE
    },
    Case {
        files: ARRAYS,
        setup: &[
            "convert a m/p --column '*' --column v:ndarray", "convert b m/q --column '*' --column v:ndarray",
            "index merge m/p m/q --out m",
        ],
        command: "convert m out --to parquet", ways: &["--column '*' --column v:bytes"], columns: "id v", ..CASE
    },
    // Commands that a hint names.
    Case {
        files: TABLES, prepare: without_shard, command: "convert a out", ways: &["shardmill verify out", "--overwrite"],
        columns: "end id", ..CASE
    },
    Case {
        files: TABLES, prepare: interrupted, command: "convert a out", ways: &["--overwrite"], columns: "end id", ..CASE
    },
    Case {
        files: TABLES, prepare: interrupted, command: "convert a out --part 0/2", ways: &["shardmill gc out --delete"], ..CASE
    },
    Case { prepare: interrupted, command: "index rebuild out", ways: &["shardmill gc out --delete"], ..CASE },
    Case {
        files: TABLES, prepare: interrupted_overwrite, command: LONG, ways: &["--overwrite", "shardmill gc out --delete"],
        columns: "id t", ..CASE
    },
    Case {
        files: TABLES, setup: &["convert a out --part 0/2", "convert b out --part 1/2"], command: "commit out",
        ways: &["shardmill gc out --part 1/2 --delete", "shardmill gc out --delete --older-than 0"], ..CASE
    },
    Case {
        files: TABLES, setup: &["convert a out --part 0/1"], command: "inspect out",
        ways: &["shardmill commit out", "shardmill gc out"], ..CASE
    },
    Case {
        files: TABLES, setup: &["convert a out --part 0/1"], command: "convert a out", ways: &["shardmill commit out", "shardmill gc out"],
        columns: "end id", ..CASE
    },
    Case { files: NO_TOKENS, command: "convert in out --tokenize tokenizer.json", ways: &["--append", "--nulls drop"], values: &[("--append", "x")], columns: "id tokens", ..CASE },
];

/// Returns the alternatives of a hint: options that follow one another, with their values as they are written.
fn ways(hint: &str, object: &str) -> Vec<String> {
    let words = words(hint);
    let mut found: Vec<String> = Vec::new();
    let mut may_follow = false;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if let Some(command) = word
            .strip_prefix('`')
            .filter(|text| text.starts_with("shardmill "))
        {
            found.push(
                command
                    .trim_end_matches([',', ';', '.'])
                    .trim_end_matches('`')
                    .to_owned(),
            );
            may_follow = false;
            continue;
        }
        let next = words
            .get(at)
            .map(|word| word.trim_end_matches([',', ';', ':', '.']));
        let option = next.map(|option| if option == "it" { object } else { option });
        if let ("omit" | "without", Some(option)) = (word.as_str(), option)
            && option.starts_with("--")
        {
            found.push(format!("omit {option}"));
            (at, may_follow) = (at + 1, false);
            continue;
        }
        if !word.starts_with("--") {
            may_follow &= word == "and";
            continue;
        }
        let mut way = word.trim_end_matches([',', ';', ':', '.']).to_owned();
        let mut ended = way.len() < word.len();
        let next = words.get(at).filter(|_| !ended);
        let is_value = |word: &&String| {
            let plain = word.trim_end_matches([',', ';', ':']);
            let is_name = |c: char| c.is_ascii_uppercase();
            let is_typed = plain.contains(['\'', ':', '=', '%', '*', '.'])
                || !plain.is_empty() && plain.chars().all(is_name);
            is_typed || VALUES.contains(&plain)
        };
        if let Some(value) = next.filter(is_value) {
            at += 1;
            let plain = value.trim_end_matches([',', ';']);
            ended = plain.len() < value.len();
            way = format!("{way} {plain}");
        }
        match found.last_mut() {
            Some(last) if may_follow => *last = format!("{last} {way}"),
            _ => found.push(way),
        }
        may_follow = !ended;
    }
    found
}

/// Words that are values of options.
const VALUES: &[&str] = &[
    "any",
    "csv",
    "drop",
    "file",
    "json",
    "jsonl",
    "key",
    "mask",
    "mds",
    "more",
    "omit",
    "parquet",
    "tfrecord-raw",
    "tree",
    "union",
    "v",
    "webdataset",
];

/// Splits a hint into words. Quoted parts and commands stay together and keep their quotes.
fn words(hint: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in hint.chars() {
        match (quote, c) {
            (None, ' ') => words.push(String::new()),
            (None, '\'' | '`') => {
                quote = Some(c);
                words.last_mut().unwrap().push(c);
            }
            (open, c) => {
                if open == Some(c) {
                    quote = None;
                }
                words.last_mut().unwrap().push(c);
            }
        }
    }
    words
}

/// Adds options to a command. An option that it has gets the new value; so does a column of the same name.
fn with_options(command: &[String], way: &[String]) -> Vec<String> {
    let mut command = command.to_vec();
    if let [omit, option] = way
        && omit == "omit"
        && let Some(at) = command.iter().position(|word| word == option)
    {
        let has_value = command
            .get(at + 1)
            .is_some_and(|word| !word.starts_with("--"));
        command.drain(at..at + 1 + usize::from(has_value));
        return command;
    }
    let name_of = |column: &str| {
        column
            .split([':', '='])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    // A query takes the place of what selects rows.
    if way.first().is_some_and(|option| option == "--sql")
        && let Some(at) = command.iter().position(|word| word == "--where")
    {
        command.drain(at..at + 2);
    }
    for pair in way.chunks(2) {
        let [option, _] = pair else {
            command.extend_from_slice(pair);
            continue;
        };
        let is_same = |(at, word): (usize, &String)| {
            let value = command.get(at + 1).cloned().unwrap_or_default();
            word == option && (option != "--column" || name_of(&value) == name_of(&pair[1]))
        };
        let found = command
            .iter()
            .enumerate()
            .find(|one| is_same(*one))
            .map(|(at, _)| at);
        match found {
            Some(at) => command[at + 1].clone_from(&pair[1]),
            None => command.extend_from_slice(pair),
        }
    }
    command
}

impl Case {
    /// Writes the files.
    fn start(&self) -> TestDir {
        let dir = TestDir::new();
        for (name, text) in self.files {
            dir.write(name, text);
        }
        (self.prepare)(&dir);
        for command in self.setup {
            let ran = run(&dir, &Shlex::new(command).collect::<Vec<_>>());
            assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
        }
        dir
    }

    fn value(&self, name: &str) -> Option<&'static str> {
        let found = self.values.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value)
    }

    /// Returns the options of an alternative, with values for the words in capitals.
    fn options(&self, way: &str) -> Vec<String> {
        let mut way = way.to_owned();
        for (name, value) in self
            .values
            .iter()
            .filter(|(name, _)| !name.starts_with("--"))
        {
            way = match way.contains('\'') {
                true => way.replace(name, &value.replace('\'', "'\\''")),
                false => way.replace(name, &shlex::try_quote(value).unwrap()),
            };
        }
        let mut options: Vec<String> = Shlex::new(&way).collect();
        if let [option] = options.as_slice() {
            let value = self.value(option).map(str::to_owned);
            options = [Some(option.clone()), value]
                .into_iter()
                .flatten()
                .collect();
        }
        options
    }

    /// Runs the command, and then again as its hint says. Returns the number of ways that were followed.
    fn follow(&self, problems: &mut Vec<String>) -> usize {
        let command: Vec<String> = Shlex::new(self.command).collect();
        let with_json = [&command[..], &["--json".to_owned()]].concat();
        let start = self.start();
        let failed = run(&start, &with_json);
        if failed.code == 0 {
            problems.push(format!("{}: it succeeds", self.command));
            return 0;
        }
        let error = failed.error();
        let text = |name: &str| error[name].as_str().unwrap_or_default();
        let here = format!("{}/", start.path().display());
        let found = ways(&text("hint").replace(&here, ""), text("object"));
        if found != self.ways {
            problems.push(format!(
                "{}: {found:?}, not {:?}: {error}",
                self.command, self.ways
            ));
        }
        // A way with the empty value is for other files, as the hint says.
        let found = found.iter().filter(|way| self.value(way) != Some(""));
        let followed = found.map(|way| {
            let dir = self.start();
            if let Some(named) = way.strip_prefix("shardmill ") {
                let ran = run(&dir, &Shlex::new(named).collect::<Vec<_>>());
                // A command that changes something takes the reason of the hint away.
                let changes = named.starts_with("commit") || named.contains("--delete");
                let again = run(&dir, &with_json);
                let is_mended = again.code == 0 || again.error()["message"] != error["message"];
                if ran.code != if named.starts_with("verify") { 3 } else { 0 }
                    || is_mended != changes
                {
                    problems.push(format!(
                        "{}: {named}: {}{}",
                        self.command, ran.stderr, again.stderr
                    ));
                }
                return;
            }
            let command = with_options(&command, &self.options(way));
            let ran = run(&dir, &command);
            match ran.code {
                0 => problems.extend(self.gone(&dir).map(|gone| format!("{command:?}: {gone}"))),
                _ => problems.push(format!("{command:?}: {}", ran.stderr)),
            }
        });
        followed.count()
    }

    /// Returns a message about columns that the dataset lacks.
    fn gone(&self, dir: &TestDir) -> Option<String> {
        if self.columns.is_empty() {
            return None;
        }
        let report = dir.json(&["inspect", "out", "--json"]);
        let columns = report["columns"].as_array().unwrap().iter();
        let found: Vec<&str> = columns
            .map(|column| column["name"].as_str().unwrap())
            .collect();
        let has = |wanted: &str| {
            let mut rests = found.iter().filter_map(|name| name.strip_prefix(wanted));
            rests.any(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let wanted = self.columns.split(' ').map(|name| name.replace('␣', " "));
        let gone: Vec<String> = wanted.filter(|name| !has(name)).collect();
        (!gone.is_empty()).then(|| format!("{gone:?} are gone: {found:?}"))
    }
}

fn run(dir: &TestDir, command: &[String]) -> Ran {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    dir.run(&words)
}

#[test]
fn hints_are_followed() {
    let follow = |cases: &'static [Case]| {
        let mut problems = Vec::new();
        let followed: usize = cases.iter().map(|case| case.follow(&mut problems)).sum();
        (followed, problems)
    };
    let threads = CASES
        .chunks(CASES.len().div_ceil(4))
        .map(|cases| thread::spawn(move || follow(cases)));
    let threads: Vec<_> = threads.collect();
    let found = threads.into_iter().map(|thread| thread.join().unwrap());
    let (followed, problems): (Vec<usize>, Vec<Vec<String>>) = found.unzip();
    let (followed, problems) = (followed.iter().sum::<usize>(), problems.concat());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(followed > 100, "{followed}");
}
