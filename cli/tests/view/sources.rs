//! `view` of tables, files and trees.

use super::*;

#[test]
fn unconverted_tables_and_trees_are_shown() {
    let dir = TestDir::with_tree();
    dir.parquet("data/rows.parquet", &crate::common::rows(100));
    dir.write("lines/a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
    for (location, samples) in [("data", 100), ("tree", 5), ("lines", 2)] {
        let view = View::start(&dir, location, &[]);
        let facts = view.get("/api/dataset").json();
        assert_eq!(
            (&facts["kind"], &facts["samples"]),
            (&json!("source"), &json!(samples)),
            "{location}"
        );
        let last = view.get(&format!("/api/samples?from={}", samples - 1));
        let last = last.json();
        assert!(
            last["samples"][0]["fields"][0]["name"].is_string(),
            "{last}"
        );
        // The command line reads the same rows.
        let inspected = view.get("/api/run/inspect").json();
        assert_eq!(
            inspected["output"],
            json!([dir.json(&["inspect", location, "--json"])])
        );
    }
    let view = View::start(&dir, "data", &[]);
    assert_eq!(view.fields(42)["id"]["text"], "42");
    assert_eq!(view.fields(3)["id"]["text"], "3");
}

#[test]
fn filtered_rows_keep_their_numbers() {
    let dir = TestDir::with_tree();
    dir.parquet("data/rows.parquet", &crate::common::rows(100));
    dir.write("lines/a.jsonl", "{\"a\": 1}\n{\"a\": null}\n{\"a\": 3}\n");
    for (location, format, condition, numbers) in [
        ("data", json!("parquet"), "score > 9.75", json!([98, 99])),
        (
            "data/rows.parquet",
            json!(null),
            "id % 50 = 7",
            json!([7, 57]),
        ),
        ("lines", json!(null), "a IS NOT NULL", json!([0, 2])),
        ("tree", json!(null), "__key__ = 'b/1'", json!([3])),
    ] {
        let page = View::start(&dir, location, &[]);
        assert_eq!(page.get("/api/dataset").json()["format"], format);
        let encoded = condition
            .replace('%', "%25")
            .replace(' ', "+")
            .replace('=', "%3D")
            .replace('>', "%3E");
        let found = page.get(&format!("/api/select?where={encoded}")).json();
        assert_eq!(
            found["samples"],
            numbers.as_array().unwrap().len(),
            "{found}"
        );
        let listed = page
            .get(&format!("/api/samples?count=9&where={encoded}"))
            .json();
        let listed = listed["samples"].as_array().unwrap().iter();
        let listed: Value = listed.map(|sample| sample["number"].clone()).collect();
        assert_eq!(listed, numbers, "{location}");
        // The downloaded file is the one that the command writes, and the page of the view has these rows.
        let file = page.get(&format!("/api/view?where={encoded}"));
        dir.ok(&[
            "select",
            location,
            "--where",
            condition,
            "-o",
            "v",
            "--overwrite",
        ]);
        assert_eq!(file.body, dir.read("v"), "{location}");
        check_refusal(&page, &dir, location);

        let chosen = View::with(&dir, &[location, "--view", "v"], &[]);
        assert_eq!(
            chosen.get("/api/dataset").json()["samples"],
            found["samples"]
        );
        let first = numbers[0].as_u64().unwrap();
        assert_eq!(chosen.fields(0), page.fields(first), "{location}");
        let within = chosen
            .get("/api/samples?count=9&where=__sample__+%3E+0")
            .json();
        let expected = numbers
            .as_array()
            .unwrap()
            .iter()
            .filter(|number| **number != 0)
            .count();
        let within = within["samples"].as_array().unwrap();
        assert_eq!(within.len(), expected, "{location}");
        assert_eq!(
            within.last().unwrap()["number"],
            numbers.as_array().unwrap().len() - 1
        );
    }
    let lines = View::start(&dir, "lines", &[]);
    let frequent = lines.get("/api/frequent?column=a&limit=10").json();
    let nulls = json!({ "text": null, "count": 1 });
    assert!(
        frequent["values"].as_array().unwrap().contains(&nulls),
        "{frequent}"
    );
}

#[test]
fn filter_on_a_changed_source_is_an_error() {
    let dir = TestDir::new();
    dir.parquet("data/a.parquet", &crate::common::rows(10));
    let page = View::start(&dir, "data", &[]);
    dir.parquet("data/b.parquet", &crate::common::rows(10));
    let failed = page.get("/api/select?where=id+%3C+3").json();
    assert_eq!(failed["error"]["id"], "file-changed", "{failed}");
}
