//! Reads one configuration a line from standard input, as `shardmill order --json` does, and prints an answer for each:
//! `{"id": …, "orders": [rank][worker] → sample ids}` or `{"id": …, "error": "…"}`.
//!
//! `testdata/differential.py` compares the answers with the original's.

use std::io::{self, BufRead, BufWriter, Write};

use serde_json::{Value, json};
use shardmill_order::orders;

#[path = "../testdata/parse.rs"]
mod parse;

fn answer(line: &str) -> Value {
    let value: Value = match serde_json::from_str(line) {
        Ok(value) => value,
        Err(error) => return json!({"id": null, "error": error.to_string()}),
    };
    let found = parse::config(&value).and_then(|config| Ok(orders(&config)?));
    match found {
        Ok(orders) => json!({"id": value["id"], "orders": orders}),
        Err(error) => json!({"id": value["id"], "error": error.to_string()}),
    }
}

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line = line?;
        if !line.trim().is_empty() {
            writeln!(out, "{}", answer(&line))?;
        }
    }
    out.flush()
}
