//! Tests samples that are lines of text.

use std::borrow::Cow;

use super::*;

#[test]
fn mosaicml_streaming_text_values_are_read() {
    let datasets = datasets();
    let rows = |name: &str| -> Vec<Vec<String>> {
        let dataset = datasets
            .iter()
            .find(|dataset| dataset.name == name)
            .unwrap();
        let mut rows = Vec::new();
        for (entry, data, meta) in shards(dataset) {
            let view = open(&entry, &data, meta.as_deref()).unwrap();
            for sample in 0..view.len() {
                rows.push(
                    view.values(sample)
                        .unwrap()
                        .iter()
                        .map(|value| format!("{value:?}"))
                        .collect(),
                );
            }
        }
        rows
    };
    let json = rows("json");
    assert_eq!(json.len(), 20);
    // The same samples in five formats.
    for name in ["json-compressed", "csv", "tsv", "xsv"] {
        let owned = |rows: &[Vec<String>]| -> Vec<String> {
            rows.iter()
                .flatten()
                .map(|value| value.replace("Owned(", "Borrowed("))
                .collect()
        };
        let (one, two) = (rows(name), json.clone());
        let count = one.len();
        assert_eq!((count, &owned(&one)), (20, &owned(&two)), "{name}");
    }
    let all = format!("{json:?}");
    for expected in [
        "BigInt(",
        "Int(-9223372036854775808)",
        "Float(inf)",
        "Float(-0.0)",
        "Float(1e16)",
        "😀",
        "back\\",
    ] {
        assert!(all.contains(expected), "{expected}");
    }
}

fn json_values(line: &str) -> Result<Vec<TextValue<'static>>, (&'static str, String)> {
    let config = json_config();
    let sample = [line.as_bytes(), b"\n"].concat();
    let (data, meta) = encode(&config, &[sample]);
    let meta = meta.unwrap();
    let entry = entry(&config, 1, &data, Some(&meta));
    let view = open(&entry, &data, Some(&meta)).unwrap();
    let own = |value: SampleValue<'_>| match value {
        SampleValue::Text(TextValue::Str(text)) => TextValue::Str(Cow::Owned(text.into_owned())),
        SampleValue::Text(TextValue::Int(value)) => TextValue::Int(value),
        SampleValue::Text(TextValue::Float(value)) => TextValue::Float(value),
        SampleValue::Text(TextValue::BigInt(text)) => {
            TextValue::BigInt(String::leak(text.to_owned()))
        }
        SampleValue::Text(TextValue::Json(text)) => TextValue::Json(String::leak(text.to_owned())),
        SampleValue::Mds(value) => panic!("{value:?}"),
    };
    match view.values(0) {
        Ok(values) => Ok(values.into_iter().map(|(_, value)| own(value)).collect()),
        Err(error) => Err((error.id(), error.to_string())),
    }
}

#[test]
fn json_line_is_parsed_into_values_or_rejected() {
    let text = |text: &'static str| TextValue::Str(Cow::Borrowed(text));
    for (line, values) in [
        (
            r#"{"f": 1.5, "i": -3, "s": "x"}"#,
            [TextValue::Float(1.5), TextValue::Int(-3), text("x")],
        ),
        (
            r#"  {"s":"\u00e9\ud83d\ude00\n","i":1e2,"f":NaN}  "#,
            [
                TextValue::Float(f64::NAN),
                TextValue::Float(100.0),
                text("é😀\n"),
            ],
        ),
        (
            r#"{"f": -Infinity, "i": 0, "s": "a\"b,}"}"#,
            [
                TextValue::Float(f64::NEG_INFINITY),
                TextValue::Int(0),
                text("a\"b,}"),
            ],
        ),
        (
            r#"{"f": Infinity, "i": true, "s": null}"#,
            [
                TextValue::Float(f64::INFINITY),
                TextValue::Json("true"),
                TextValue::Json("null"),
            ],
        ),
        (
            r#"{"\u0066": 0.0, "i": 123456789012345678901234567890, "s": ""}"#,
            [
                TextValue::Float(0.0),
                TextValue::BigInt("123456789012345678901234567890"),
                text(""),
            ],
        ),
        (
            r#"{"f": 1, "i": [1, {"a": "]}"}, NaN], "s": {"i": []}}"#,
            [
                TextValue::Int(1),
                TextValue::Json(r#"[1, {"a": "]}"}, NaN]"#),
                TextValue::Json(r#"{"i": []}"#),
            ],
        ),
        (
            r#"{"f": 1E400, "i": -0, "s": "\\"}"#,
            [
                TextValue::Float(f64::INFINITY),
                TextValue::Int(0),
                text("\\"),
            ],
        ),
    ] {
        assert_eq!(
            format!("{:?}", json_values(line)),
            format!("{:?}", Ok::<_, ()>(values.to_vec())),
            "{line}"
        );
    }
    for (line, id, part) in [
        ("", "sample-line", "is not JSON"),
        ("[]", "sample-line", "is not a JSON object"),
        (
            r#"{"f": 1, "i": 2, "s": "x"} {}"#,
            "sample-line",
            "is not JSON",
        ),
        (
            r#"{"f": 1, "i": 2, "s": "x", "#,
            "sample-line",
            "is not JSON",
        ),
        (r#"{"f": 1, "i": 2}"#, "sample-columns", "has no column `s`"),
        (
            r#"{"f": 1, "i": 2, "s": "x", "t": 1}"#,
            "sample-columns",
            "has an unknown column `t`",
        ),
        (
            r#"{"f": 1, "i": 2, "s": "x", "i": 3}"#,
            "sample-columns",
            "has column `i` twice",
        ),
        (
            r#"{"f": 1, "i": 2, "s": "x", "\u0069": 3}"#,
            "sample-columns",
            "has column `i` twice",
        ),
        (
            r#"{"f": 1, "i": 2, "s": "\ud83d"}"#,
            "sample-line",
            "half of a surrogate pair",
        ),
        (
            r#"{"f": 1, "i": 2, "\ude00": "x"}"#,
            "sample-line",
            "half of a surrogate pair",
        ),
    ] {
        let (found, message) = json_values(line).unwrap_err();
        assert_eq!(found, id, "{line} {message}");
        assert!(
            message.starts_with("sample 0 ") && message.contains(part),
            "{message}"
        );
    }
    let deep = format!(
        r#"{{"f": 1, "i": {}{}, "s": ""}}"#,
        "[".repeat(40),
        "]".repeat(40)
    );
    assert_eq!(json_values(&deep).unwrap_err().0, "limit-json-depth");
}

#[test]
fn delimited_line_is_split_into_values_or_rejected() {
    let values = |separator: &str, line: &[u8]| {
        let config = xsv_config(separator);
        let (data, meta) = encode(&config, &[[line, b"\n"].concat()]);
        let meta = meta.unwrap();
        let entry = entry(&config, 1, &data, Some(&meta));
        let view = open(&entry, &data, Some(&meta)).unwrap();
        view.values(0)
            .map(|values| format!("{values:?}"))
            .map_err(|error| (error.id(), error.to_string()))
    };
    assert_eq!(
        values("<>", "1e-05<>-12<>é < >".as_bytes()).unwrap(),
        r#"[("f", Text(Float(1e-5))), ("i", Text(Int(-12))), ("s", Text(Str("é < >")))]"#
    );
    assert_eq!(
        values(";", b"nan;100000000000000000000;").unwrap(),
        r#"[("f", Text(Float(NaN))), ("i", Text(BigInt("100000000000000000000"))), ("s", Text(Str("")))]"#
    );
    for (line, id, part) in [
        (&b"1.0;2"[..], "sample-columns", "has 2 values instead of 3"),
        (b"1.0;2;x;y", "sample-columns", "has 4 values instead of 3"),
        (
            b"x;2;x",
            "sample-line",
            "has `x` in column `f` of encoding `float`",
        ),
        (
            b"1.0;2.5;x",
            "sample-line",
            "has `2.5` in column `i` of encoding `int`",
        ),
        (
            b"1.0;;x",
            "sample-line",
            "has `` in column `i` of encoding `int`",
        ),
        (b"1.0;2;\xff", "sample-line", "is not UTF-8 from byte 6"),
    ] {
        let (found, message) = values(";", line).unwrap_err();
        assert_eq!((found, message.contains(part)), (id, true), "{message}");
    }
}
