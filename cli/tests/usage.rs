//! Tests invalid command lines.

use crate::common::Place;

fn shown(args: &[&str]) -> String {
    Place::new().shown(args)
}

#[test]
fn unknown_option() {
    insta::assert_snapshot!(shown(&["ls", "ds", "--jsn"]), @r"
    exit 2
    --- stderr
    error[usage-unknown-option]: --jsn: there is no such option or argument; did you mean `--json`?
    ");
}

#[test]
fn unknown_verb() {
    insta::assert_snapshot!(shown(&["convrt"]), @r"
    exit 2
    --- stderr
    error[usage-unknown-verb]: convrt: there is no such verb; did you mean `convert`?
    ");
}

#[test]
fn missing_argument() {
    insta::assert_snapshot!(shown(&["convert", "source"]), @r"
    exit 2
    --- stderr
    error[usage-missing-argument]: missing: <SOURCE>...; see `shardmill --help`
    ");
}

#[test]
fn invalid_value() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--nulls", "never"]), @r"
    exit 2
    --- stderr
    error[config-nulls]: --nulls: `never` is not one of its values; its values are error, mask, drop, omit
    ");
}

#[test]
fn missing_value() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--nulls"]), @r"
    exit 2
    --- stderr
    error[config-nulls]: --nulls: it needs a value; its values are error, mask, drop, omit
    ");
}

#[test]
fn options_that_exclude_each_other() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--sql", "SELECT 1", "--where", "x"]), @r"
    exit 2
    --- stderr
    error[usage-conflict]: --sql: it cannot be used with --where <EXPR>; see `shardmill --help`
    ");
}

#[test]
fn an_option_that_needs_another() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--split-key", "x"]), @r"
    exit 2
    --- stderr
    error[usage-missing-argument]: missing: --split <NAME=SHARE,...>; see `shardmill --help`
    ");
}

#[test]
fn given_twice() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--where", "x", "--where", "y"]), @r"
    exit 2
    --- stderr
    error[usage-conflict]: --where: it is given more than once; see `shardmill --help`
    ");
}

#[test]
fn too_many_arguments() {
    insta::assert_snapshot!(shown(&["ls", "a", "b"]), @r"
    exit 2
    --- stderr
    error[usage-unknown-option]: b: there is no such option or argument; see `shardmill --help`
    ");
}

#[test]
fn as_json() {
    insta::assert_snapshot!(shown(&["ls", "--json"]), @r#"
    exit 2
    --- stderr
    {"error":{"id":"usage-missing-argument","object":null,"message":"missing: <DATASET>","hint":"see `shardmill --help`","docs":"https://shardmill.github.io/shardmill/reference/errors/#usage-missing-argument","kind":"invalid_input","exit_code":2}}
    "#);
}

#[test]
fn json_after_the_end_of_options_is_a_name() {
    let ran = Place::new().run(&["ls", "--", "--json", "more"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error["), "{}", ran.stderr);
}

#[test]
fn nothing_typed_is_a_usage_error_with_help() {
    let ran = Place::new().run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("Usage: shardmill"));
}
