//! Command lines that cannot be carried out.

use crate::common::Place;

fn shown(args: &[&str]) -> String {
    Place::new().shown(args)
}

#[test]
fn unknown_option() {
    insta::assert_snapshot!(shown(&["ls", "ds", "--jsn"]), @"");
}

#[test]
fn unknown_verb() {
    insta::assert_snapshot!(shown(&["convrt"]), @"");
}

#[test]
fn missing_argument() {
    insta::assert_snapshot!(shown(&["convert", "source"]), @"");
}

#[test]
fn invalid_value() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--nulls", "never"]), @"");
}

#[test]
fn missing_value() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--nulls"]), @"");
}

#[test]
fn options_that_exclude_each_other() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--sql", "SELECT 1", "--where", "x"]), @"");
}

#[test]
fn an_option_that_needs_another() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--split-key", "x"]), @"");
}

#[test]
fn given_twice() {
    insta::assert_snapshot!(shown(&["convert", "a", "b", "--where", "x", "--where", "y"]), @"");
}

#[test]
fn too_many_arguments() {
    insta::assert_snapshot!(shown(&["ls", "a", "b"]), @"");
}

#[test]
fn as_json() {
    insta::assert_snapshot!(shown(&["ls", "--json"]), @"");
}

#[test]
fn json_after_the_end_of_options_is_a_name() {
    let ran = Place::new().run(&["ls", "--", "--json", "more"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error["), "{}", ran.stderr);
}
