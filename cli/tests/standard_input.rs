//! Tests conversions of an Arrow stream on standard input.

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::record_batch::RecordBatch;

use crate::common::{TestDir, rows};

fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

fn start(dir: &TestDir, more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardmill"));
    command.current_dir(dir.path()).args(["convert", "-"]);
    command.args(more).arg("--json").env("TMPDIR", dir.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

fn convert(dir: &TestDir, input: &[u8], more: &[&str]) -> Output {
    let mut child = start(dir, more);
    // A command line that is refused reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn error(output: &Output) -> (i32, String) {
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = errors.lines().last().unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let text = |name: &str| value["error"][name].as_str().unwrap_or_default().to_owned();
    (
        output.status.code().unwrap(),
        format!("{}: {}", text("id"), text("message")),
    )
}

/// What is in the folder of a test, without datasets.
fn left(dir: &TestDir) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("shardmill-"))
        .collect()
}

#[test]
fn stream_and_file_of_arrow_are_converted() {
    let dir = TestDir::new();
    let batches = [rows(60), rows(40)];
    let input = stream(&batches);
    let ran = convert(&dir, &input, &["out"]);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(dir.json(&["inspect", "out", "--json"])["samples"], 100);
    dir.write("in/a.arrows", &input);
    dir.ok(&["convert", "in", "of-file"]);
    for name in ["index.json", "shard.00000.mds.zstd"] {
        assert_eq!(
            dir.read(&format!("out/{name}")),
            dir.read(&format!("of-file/{name}")),
            "{name}"
        );
    }
    let mut writer = FileWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    writer.write(&batches[0]).unwrap();
    let file = writer.into_inner().unwrap();
    assert!(
        convert(&dir, &file, &["of-60", "--from", "arrow"])
            .status
            .success()
    );
    assert_eq!(dir.json(&["inspect", "of-60", "--json"])["samples"], 60);
    assert!(left(&dir).is_empty(), "{:?}", left(&dir));
}

#[test]
fn same_content_is_the_same_conversion() {
    let dir = TestDir::new();
    let input = stream(&[rows(10)]);
    for outcome in ["converted", "already_done"] {
        let ran = convert(&dir, &input, &["out"]);
        let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(report["outcome"], outcome, "{ran:?}");
    }
    let (code, text) = error(&convert(&dir, &stream(&[rows(11)]), &["out"]));
    assert!(
        code == 4 && text.starts_with("dest-conflict"),
        "{code} {text}"
    );
}

#[test]
fn incomplete_input_is_refused_and_leaves_nothing() {
    let dir = TestDir::new();
    let whole = stream(&[rows(60), rows(40)]);
    // Without its end, at the border of a message, in a message, nothing at all, and something else.
    let ends = [whole.len() - 8, whole.len() / 2, 0];
    let inputs = ends
        .map(|end| &whole[..end])
        .into_iter()
        .chain([&b"id,t\n1,2\n"[..]]);
    for input in inputs {
        let (code, text) = error(&convert(&dir, input, &["out"]));
        assert!(
            code == 3 && text.starts_with("arrow-format: it is no Arrow stream"),
            "{code} {text}"
        );
        assert!(!dir.exists("out"));
    }
    let two = [&whole[..], &whole[..]].concat();
    let (code, text) = error(&convert(&dir, &two, &["out"]));
    assert!(
        code == 3 && text.contains("after the end of its stream"),
        "{code} {text}"
    );
    assert!(!dir.exists("out/index.json"));
    assert!(left(&dir).is_empty(), "{:?}", left(&dir));
}

#[test]
fn interrupt_while_reading_leaves_nothing() {
    let dir = TestDir::new();
    let mut child = start(&dir, &["out"]);
    let input = child.stdin.as_mut().unwrap();
    input.write_all(&stream(&[rows(60)])[..100]).unwrap();
    while left(&dir).is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let stdin = child.stdin.take();
    let ran = child.wait_with_output().unwrap();
    drop(stdin);
    let (code, text) = error(&ran);
    assert!(
        code == 130 && text.starts_with("interrupted"),
        "{code} {text}"
    );
    assert!(
        left(&dir).is_empty() && !dir.exists("out"),
        "{:?}",
        left(&dir)
    );
}

#[test]
fn standard_input_is_the_only_source_and_arrow() {
    let dir = TestDir::new();
    dir.parquet("in/a.parquet", &rows(3));
    let (code, text) = error(&convert(&dir, b"", &["out", "--from", "csv"]));
    assert!(
        code == 2 && text.starts_with("config-source"),
        "{code} {text}"
    );
    let (code, text) = error(&convert(&dir, b"", &["in", "out"]));
    assert!(
        code == 2 && text.starts_with("source-not-found"),
        "{code} {text}"
    );
    // Files of this name are read by a path.
    dir.write("in.jsonl", "{\"a\":1}\n");
    std::fs::rename(dir.path().join("in.jsonl"), dir.path().join("-")).unwrap();
    dir.ok(&["convert", "./-", "out", "--from", "jsonl"]);
}
