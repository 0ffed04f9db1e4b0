//! Compares every decoded value of every sample with what the original reader returned.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use shardmill_core::{Diagnostic, ErrorKind, Limits};
use shardmill_mds::{Encoding, SampleValue, Value, check_datum, decode};

use crate::expected::{is_unreadable, same_text_value, same_value};
use crate::fixtures::{self, Fixture, limits};

/// Datasets that shardmill refuses in whole or in part. Each has its own test below.
const ODD: [&str; 3] = ["json-surrogates", "mds-loose-text", "mds-no-columns"];

fn is_odd(fixture: &Fixture) -> bool {
    ODD.contains(&fixture.name.as_str())
}

#[test]
fn mds_values_match_mosaicml_streaming() {
    let limits = limits();
    let mut encodings = BTreeSet::new();
    for fixture in fixtures::accepted()
        .iter()
        .filter(|fixture| !is_odd(fixture))
    {
        let expected = fixture.expected();
        let mut lines = expected.iter();
        for shard in fixture.shards() {
            let view = shard.open(&limits);
            assert_eq!(view.len(), shard.entry.samples);
            for sample in 0..view.len() {
                let line = lines.next().unwrap();
                if shard.entry.config.mds_columns().is_none() {
                    continue;
                }
                let fields = view
                    .fields(sample)
                    .unwrap_or_else(|error| panic!("{} {sample}: {error}", fixture.name));
                assert_eq!(
                    fields.len(),
                    line.as_object().unwrap().len(),
                    "{}",
                    fixture.name
                );
                for field in fields {
                    let tag = &line[field.name];
                    let place = format!(
                        "{} sample {sample} column {:?} ({})",
                        fixture.name, field.name, field.encoding
                    );
                    let decoded = decode(field.encoding, field.datum, &limits);
                    let checked = check_datum(field.encoding, field.datum, &limits);
                    assert_eq!(
                        decoded.is_ok(),
                        checked.is_ok(),
                        "{place}: {decoded:?} and {checked:?}"
                    );
                    match decoded {
                        Ok(value) => {
                            assert!(same_value(&value, tag), "{place}: {value:?} is not {tag}")
                        }
                        Err(error) => {
                            assert!(is_unreadable(tag), "{place}: {error}; {tag} expected")
                        }
                    }
                    encodings.insert(
                        field
                            .encoding
                            .to_string()
                            .split(':')
                            .next()
                            .unwrap()
                            .to_owned(),
                    );
                }
            }
        }
        assert!(lines.next().is_none(), "{}", fixture.name);
    }
    assert_eq!(encodings.len(), 28, "{encodings:?}");
}

#[test]
fn whole_samples_match_mosaicml_streaming() {
    let limits = limits();
    for fixture in fixtures::accepted()
        .iter()
        .filter(|fixture| !is_odd(fixture))
    {
        let expected = fixture.expected();
        let mut lines = expected.iter();
        for shard in fixture.shards() {
            let view = shard.open(&limits);
            for sample in 0..view.len() {
                let line = lines.next().unwrap();
                let place = format!("{} sample {sample}", fixture.name);
                let refused =
                    is_unreadable(line) || line.as_object().unwrap().values().any(is_unreadable);
                match view.values(sample) {
                    Ok(values) => {
                        assert!(!refused, "{place}: {values:?} read, {line} expected");
                        compare_sample(&place, &values, line);
                    }
                    Err(error) => {
                        assert!(refused, "{place}: {error}; {line} expected");
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{place}: {error}");
                    }
                }
            }
        }
    }
}

fn compare_sample(place: &str, values: &[(&str, SampleValue<'_>)], line: &Json) {
    let names: BTreeSet<&str> = values.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        line.as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect(),
        "{place}"
    );
    assert_eq!(names.len(), values.len(), "{place}");
    for (name, value) in values {
        let tag = &line[*name];
        let same = match value {
            SampleValue::Mds(value) => same_value(value, tag),
            SampleValue::Text(value) => same_text_value(value, tag),
        };
        assert!(same, "{place} column {name:?}: {value:?} is not {tag}");
    }
}

/// Calls `check` for each value of every column, with the value that the original reader returned.
fn for_each_datum(fixture: &Fixture, mut check: impl FnMut(&Encoding, &[u8], &Json)) {
    let expected = fixture.expected();
    let mut lines = expected.iter();
    for shard in fixture.shards() {
        let view = shard.open(&limits());
        for sample in 0..view.len() {
            let line = lines.next().unwrap();
            for field in view.fields(sample).unwrap() {
                check(field.encoding, field.datum, &line[field.name]);
            }
        }
    }
}

/// Python reads more spellings of a number than it writes. Those that shardmill accepts must have Python's value.
#[test]
fn unusual_number_spellings_match_python_or_are_rejected() {
    let mut read = 0;
    for_each_datum(
        &fixtures::named("mds-loose-text"),
        |encoding, datum, tag| {
            match decode(encoding, datum, &limits()) {
                // The stored spelling is kept. There is no reference value to compare it with, but it is a number.
                Ok(Value::Decimal(text)) => assert_eq!(text.as_bytes(), datum),
                Ok(value) => assert!(same_value(&value, tag), "{value:?} is not {tag}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    return;
                }
            }
            read += 1;
        },
    );
    assert!(read >= 6, "only {read} of 18 spellings are read");
}

#[test]
fn ndarray_with_63_dimensions_exceeds_the_default_limit() {
    for_each_datum(
        &fixtures::named("mds-enc-ndarray-63d"),
        |encoding, datum, tag| {
            let error = decode(encoding, datum, &Limits::default()).unwrap_err();
            assert_eq!(error.id(), "limit-array-dims");
            let value = decode(encoding, datum, &limits()).unwrap();
            assert!(same_value(&value, tag));
        },
    );
}

/// A lone surrogate has no UTF-8. Its JSON text is passed on, or the sample is refused, but it is never altered.
#[test]
fn lone_surrogates_are_not_replaced() {
    let fixture = fixtures::named("json-surrogates");
    let expected = fixture.expected();
    for shard in fixture.shards() {
        let view = shard.open(&limits());
        for sample in 0..view.len() {
            let line = view.sample(sample).unwrap();
            let text = expected[usize::try_from(sample).unwrap()]["value"]["json"]
                .as_str()
                .unwrap();
            assert_eq!(
                std::str::from_utf8(line).unwrap(),
                format!("{{\"value\": {text}}}\n")
            );
            match view.values(sample) {
                Ok(values) => assert!(!format!("{values:?}").contains('\u{fffd}'), "{values:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            }
        }
    }
}
