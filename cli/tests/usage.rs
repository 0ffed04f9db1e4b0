//! Tests invalid command lines.

use crate::common::TestDir;

fn shown(args: &[&str]) -> String {
    TestDir::new().shown(args)
}

#[test]
fn unknown_option_is_an_error() {
    insta::assert_snapshot!(shown(&["inspect", "ds", "--jsn"]), @r"
    exit 2
    --- stderr
    error[usage-unknown-option]: --jsn: there is no such option or argument; did you mean `--json`?
    ");
}

#[test]
fn unknown_command_is_an_error() {
    insta::assert_snapshot!(shown(&["convrt"]), @r"
    exit 2
    --- stderr
    error[usage-unknown-verb]: convrt: there is no such verb; did you mean `convert`?
    ");
}

#[test]
fn missing_argument_is_an_error() {
    insta::assert_snapshot!(shown(&["convert", "source"]), @r"
    exit 2
    --- stderr
    error[usage-missing-argument]: missing: <SOURCE>...; see `shardmill --help`
    ");
}

#[test]
fn invalid_option_value_is_an_error() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--nulls", "never"]), @r"
    exit 2
    --- stderr
    error[config-nulls]: --nulls: `never` is not one of its values; its values are error, mask, drop, omit
    ");
}

#[test]
fn missing_option_value_is_an_error() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--nulls"]), @r"
    exit 2
    --- stderr
    error[config-nulls]: --nulls: it needs a value; its values are error, mask, drop, omit
    ");
}

#[test]
fn conflicting_options_are_an_error() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--sql", "SELECT 1", "--where", "x"]), @r"
    exit 2
    --- stderr
    error[usage-conflict]: --sql: it cannot be used with --where <EXPR>; see `shardmill --help`
    ");
}

#[test]
fn option_without_its_required_option_is_an_error() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--split-key", "x"]), @r"
    exit 2
    --- stderr
    error[usage-missing-argument]: missing: --split <NAME=SHARE,...>; see `shardmill --help`
    ");
}

#[test]
fn repeated_option_is_an_error() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--where", "x", "--where", "y"]), @r"
    exit 2
    --- stderr
    error[usage-conflict]: --where: it is given more than once; see `shardmill --help`
    ");
}

#[test]
fn too_many_arguments_are_an_error() {
    insta::assert_snapshot!(shown(&["inspect", "a", "b"]), @r"
    exit 2
    --- stderr
    error[usage-unknown-option]: b: there is no such option or argument; see `shardmill --help`
    ");
}

#[test]
fn usage_error_is_printed_as_json() {
    insta::assert_snapshot!(shown(&["inspect", "--json"]), @r#"
    exit 2
    --- stderr
    {"error":{"id":"usage-missing-argument","object":null,"message":"missing: <DATASET>","hint":"see `shardmill --help`","docs":"https://shardmill.github.io/shardmill/reference/errors/#usage-missing-argument","kind":"invalid_input","exit_code":2}}
    "#);
}

#[test]
fn json_after_double_dash_is_a_positional_argument() {
    let ran = TestDir::new().run(&["inspect", "--", "--json", "more"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error["), "{}", ran.stderr);
}

#[test]
fn no_arguments_is_a_usage_error_with_help() {
    let ran = TestDir::new().run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("Usage: shardmill"));
}
