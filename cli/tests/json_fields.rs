//! Tests the names of the fields that `--json` prints, on which scripts and the Python package rely.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::TestDir;

/// The commands, which run in this order in a directory with the Parquet dataset `data` and its shards.
const COMMANDS: [&str; 16] = [
    "convert data tars --to webdataset --key-column id",
    "convert data plan --dry-run",
    "inspect data",
    "inspect shards",
    "inspect shards --shards",
    "inspect tars",
    "inspect tars --shards",
    "head shards -n 1",
    "stats shards",
    "order shards --batches 0..1",
    "plan shards",
    "which shards --sample 3",
    "bench shards --digest",
    "doctor .",
    "gc shards",
    "verify shards --deep",
];

fn visit(value: &Value, path: &str, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let path = format!("{path}.{name}");
                visit(value, &path, fields);
                fields.insert(path);
            }
        }
        Value::Array(items) => {
            for item in items {
                visit(item, &format!("{path}[]"), fields);
            }
        }
        _ => {}
    }
}

#[test]
fn json_reports_keep_the_names_of_their_fields() {
    let dir = TestDir::with_shards();
    let mut text = String::new();
    for command in COMMANDS {
        if command.starts_with("verify") {
            dir.write("shards/shard.00001.mds.zstd", "damaged");
        }
        let args: Vec<&str> = command.split(' ').chain(["--json"]).collect();
        let ran = dir.run(&args);
        let mut fields = BTreeSet::new();
        for line in ran.stdout.lines() {
            visit(&serde_json::from_str(line).unwrap(), "", &mut fields);
        }
        assert!(!fields.is_empty(), "{command}: {}", ran.stderr);
        let fields = Vec::from_iter(fields).join("\n");
        text.push_str(&format!("$ shardmill {command}\n{fields}\n\n"));
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "." }, {
        insta::assert_snapshot!("json_fields", text);
    });
}
