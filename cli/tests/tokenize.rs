//! `convert --tokenize`: which column, which tokens, and what is refused.

use std::path::Path;

use serde_json::Value;
use shardmill_dataset::{Dataset, Lengths, OpenOptions};

use crate::common::TestDir;

const OUT: &str = "shards";

/// Returns a place with the tokenizers and a table of texts, one of which has no tokens in WordPiece.
fn dir() -> TestDir {
    let dir = TestDir::new();
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tokenize/testdata");
    for name in ["bpe.json", "split.json", "wordpiece.json"] {
        std::fs::copy(testdata.join(name), dir.path().join(name)).unwrap();
    }
    let rows = (0..300).map(|row| {
        let text = format!("def f{row}(self):\n    return {}\n", "x".repeat(row % 90));
        serde_json::json!({"id": row, "text": text, "note": "n"}).to_string()
    });
    let rows: Vec<String> = rows.collect();
    dir.write("rows.jsonl", rows.join("\n").as_bytes());
    dir
}

fn convert<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let start = ["convert", "rows.jsonl", OUT, "--text", "text"];
    [&start[..], options].concat()
}

fn columns(dir: &TestDir) -> Vec<String> {
    let found = dir.json(&["inspect", OUT, "--json"]);
    let columns = found["columns"].as_array().unwrap().iter();
    let column = |column: &Value| {
        let (name, encoding) = (&column["name"], &column["encoding"]);
        format!("{}:{}", name.as_str().unwrap(), encoding.as_str().unwrap())
    };
    columns.map(column).collect()
}

#[test]
fn tokens_replace_the_text_and_have_lengths() {
    let dir = dir();
    dir.ok(&convert(&["--tokenize", "bpe.json", "--append", "<|end|>"]));
    assert_eq!(
        columns(&dir),
        ["id:int64", "note:str", "tokens:ndarray:uint16"]
    );
    let dataset = Dataset::open(&dir.path().join(OUT), &OpenOptions::default()).unwrap();
    let lengths = Lengths::of(&dataset, "tokens").unwrap();
    let shown = dir.ok(&["cat", OUT, "0..300", "--column", "tokens"]);
    let rows = shown.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        row["tokens"]["data"].as_array().unwrap().clone()
    });
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), 300);
    for (row, length) in rows.iter().zip(lengths.values()) {
        assert_eq!(row.len(), usize::try_from(*length).unwrap());
        assert_eq!(
            row.last(),
            Some(&0.into()),
            "the token that ends a document"
        );
    }
    let provenance = std::fs::read(dir.path().join("shards/index.provenance")).unwrap();
    let provenance: Value = serde_json::from_slice(&provenance).unwrap();
    let tokenizer = &provenance["tokenizer"];
    assert_eq!(
        (&tokenizer["file"], &tokenizer["text"], &tokenizer["tokens"]),
        (&"bpe.json".into(), &"text".into(), &"tokens".into())
    );
    assert_eq!(tokenizer["hash"], provenance["config"]["tokenizer"]);
}

#[test]
fn keep_text_and_tokens_options_set_the_columns() {
    let dir = dir();
    let tokenize = ["--tokenize", "bpe.json"];
    dir.ok(&convert(
        &[&tokenize[..], &["--keep-text", "--tokens", "ids"]].concat(),
    ));
    assert_eq!(
        columns(&dir),
        ["id:int64", "ids:ndarray:uint16", "note:str", "text:str"]
    );
    let named = [
        "--overwrite",
        "--column",
        "text",
        "--column",
        "tokens:ndarray:uint32",
    ];
    dir.ok(&convert(&[&tokenize[..], &named].concat()));
    assert_eq!(columns(&dir), ["text:str", "tokens:ndarray:uint32"]);
    dir.ok(&convert(
        &[&tokenize[..], &["--overwrite", "--column", "id"]].concat(),
    ));
    assert_eq!(columns(&dir), ["id:int64", "tokens:ndarray:uint16"]);
    let split = [
        "--overwrite",
        "--split",
        "a=0.5,b=0.5",
        "--split-key",
        "text",
    ];
    std::fs::remove_dir_all(dir.path().join(OUT)).unwrap();
    dir.ok(&convert(&[&tokenize[..], &split].concat()));
    let found = dir.json(&["inspect", "shards/a", "--json"]);
    let names = found["columns"].as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["id", "note", "tokens"]);
    assert!(dir.path().join("shards/b/index.lengths.tokens").is_file());
}

#[test]
fn tokenized_bytes_do_not_depend_on_jobs() {
    let dir = dir();
    let run = |out: &str, jobs: &str, more: &[&str]| {
        let convert = [
            "convert",
            "rows.jsonl",
            out,
            "--text",
            "text",
            "--jobs",
            jobs,
        ];
        let tokenize = [
            "--tokenize",
            "split.json",
            "--special-tokens",
            "--size-limit",
            "4kB",
        ];
        dir.ok(&[&convert[..], &tokenize, more].concat());
        dir.read(&format!("{out}/index.json"))
    };
    assert_eq!(run("one", "1", &[]), run("four", "4", &[]));
    let shuffle = ["--shuffle", "7"];
    let shuffled = run("one-shuffled", "1", &shuffle);
    assert_eq!(shuffled, run("four-shuffled", "4", &shuffle));
    assert_ne!(shuffled, dir.read("one/index.json"));
}

#[test]
fn changed_tokenizer_is_a_conflict() {
    let dir = dir();
    dir.ok(&convert(&["--tokenize", "bpe.json"]));
    // The name of the file does not matter, only its bytes do.
    std::fs::rename(dir.path().join("bpe.json"), dir.path().join("renamed.json")).unwrap();
    let again = dir.ok(&convert(&["--tokenize", "renamed.json"]));
    assert!(again.contains("nothing was written"), "{}", again);
    let other = dir.run(&convert(&["--tokenize", "split.json"]));
    assert_eq!(other.code, 4);
    assert!(
        other.stderr.contains("tokenizer was \"sha256:"),
        "{}",
        other.stderr
    );
    let options = dir.run(&convert(&[
        "--tokenize",
        "renamed.json",
        "--append",
        "<|end|>",
    ]));
    assert_eq!(options.code, 4);
    assert!(options.stderr.contains("\"append\":"), "{}", options.stderr);
}

#[test]
fn only_text_column_is_tokenized_by_default() {
    let dir = dir();
    let run = |options: &[&str]| {
        let convert = ["convert", "rows.jsonl", OUT, "--tokenize", "bpe.json"];
        dir.run(&[&convert[..], options].concat())
    };
    let both = run(&[]);
    assert_eq!(both.code, 2);
    assert!(
        both.stderr.contains("error[config-text]: --text: 2 columns hold text; name one with --text: the columns of text are note, text"),
        "{}",
        both.stderr
    );
    let missing = run(&["--text", "body"]);
    assert!(
        missing
            .stderr
            .contains("there is no column `body`; the columns of text are note, text"),
        "{}",
        missing.stderr
    );
    let number = run(&["--text", "id"]);
    assert!(
        number
            .stderr
            .contains("column `id` has type Int64, not text"),
        "{}",
        number.stderr
    );
    let taken = run(&["--text", "text", "--tokens", "note"]);
    assert!(
        taken
            .stderr
            .contains("error[config-tokens]: --tokens: the source already has a column `note`"),
        "{}",
        taken.stderr
    );
    let none = run(&["--column", "tokens:ndarray:uint32"]);
    assert!(
        none.stderr.contains("do not include the text to tokenize"),
        "{}",
        none.stderr
    );
    assert!(!dir.path().join(OUT).exists());
    assert_eq!(run(&["--select", "id, text"]).code, 0);
    assert_eq!(columns(&dir), ["id:int64", "tokens:ndarray:uint16"]);
}

#[test]
fn texts_without_tokens_are_errors_unless_dropped_or_masked() {
    let dir = dir();
    let rows = "{\"text\":\"a\"}\n{\"text\":\" \"}\n";
    dir.write("rows.jsonl", rows);
    let wordpiece = ["--tokenize", "wordpiece.json"];
    let run = |options: &[&str]| dir.run(&convert(&[&wordpiece[..], options].concat()));
    let refused = run(&[]);
    assert_eq!(refused.code, 3);
    let expected = "error[tokens-none]: row 1 of rows.jsonl, column text";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    assert!(!dir.path().join(OUT).exists());
    dir.write("rows.jsonl", format!("{rows}{{\"text\":null}}\n"));
    let null = run(&["--append", "[SEP]"]);
    assert_eq!(null.code, 3);
    let expected = "error[value-null]: rows.jsonl: column tokens has 1 nulls, the first in row 2 of rows.jsonl";
    assert!(null.stderr.contains(expected), "{}", null.stderr);
    let dropped = run(&["--nulls", "drop"]);
    assert!(
        dropped.stdout.contains("2 rows with nulls"),
        "{}",
        dropped.stdout
    );
    assert_eq!(run(&["--nulls", "mask", "--overwrite"]).code, 0);
    assert_eq!(
        columns(&dir),
        ["tokens:ndarray:uint16", "tokens__is_null:uint8"]
    );
}

#[test]
fn tokenizer_options_round_trip_through_config_file() {
    let dir = dir();
    let options = [
        "--tokenize",
        "bpe.json",
        "--append",
        "<|end|>",
        "--keep-text",
    ];
    let printed = dir.ok(&convert(&[&options[..], &["--print-config"]].concat()));
    dir.write("convert.toml", printed);
    dir.ok(&["convert", "--config", "convert.toml"]);
    let done = dir.ok(&convert(&options));
    assert!(done.contains("nothing was written"), "{}", done);
    let plain = dir.ok(&["convert", "rows.jsonl", OUT, "--print-config"]);
    assert!(!plain.contains("token"), "{}", plain);
}
