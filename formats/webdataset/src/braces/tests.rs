use std::collections::BTreeMap;

use shardmill_core::Diagnostic as _;

use super::{MAX_NAMES, expand_braces};

/// The original's expansions of patterns; `null` if it refuses one. Written by `testdata/braces.py`.
const CASES: &str = include_str!("../../testdata/braces.json");

#[test]
fn brace_expansion_matches_webdataset() {
    let cases: BTreeMap<String, Option<Vec<String>>> = serde_json::from_str(CASES).unwrap();
    assert!(cases.len() > 400, "{}", cases.len());
    for (pattern, expected) in cases {
        match (expand_braces(&pattern), expected) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected, "{pattern}"),
            (Err(error), None) if error.id() == "pattern-braces" => {}
            (found, expected) => panic!("{pattern}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn pattern_with_too_many_names_is_rejected() {
    let all = expand_braces("{0..999999}").unwrap();
    assert_eq!(all.len() as u64, MAX_NAMES);
    for pattern in [
        "{0..1000000}",
        "{0..999}{0..999}{0..999}{0..999}{0..999}{0..999}{0..999}{0..999}",
        "{0..170141183460469231731687303715884105727}",
        "{-170141183460469231731687303715884105727..170141183460469231731687303715884105727}",
        "{0..99999999999999999999999999999999999999999999999999}",
        "{{0..999999},a}",
    ] {
        let error = expand_braces(pattern).unwrap_err();
        assert_eq!(error.id(), "pattern-size", "{pattern}");
        assert!(error.to_string().contains("matches more than"), "{pattern}");
    }
    // A few names, each of them long.
    let long = format!("{}{{0..99999}}", "x".repeat(20_000));
    assert_eq!(expand_braces(&long).unwrap_err().id(), "pattern-size");
}

#[test]
fn huge_step_yields_only_the_first_value() {
    let step = "9".repeat(60);
    assert_eq!(expand_braces(&format!("{{1..5..{step}}}")).unwrap(), ["1"]);
    assert_eq!(expand_braces(&format!("{{b..e..{step}}}")).unwrap(), ["b"]);
}

#[test]
fn too_deeply_nested_braces_are_rejected() {
    let deep = format!("{}{}", "{".repeat(5000), "}".repeat(5000));
    let error = expand_braces(&deep).unwrap_err();
    assert!(error.to_string().contains("nested more than 64 deep"));
    let fair = format!("{}a,b{}", "{".repeat(60), "}".repeat(60));
    assert_eq!(expand_braces(&fair).unwrap().len(), 2);
}
