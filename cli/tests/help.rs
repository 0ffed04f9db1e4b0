use crate::common::Place;

fn help(verb: &[&str]) -> String {
    let mut args = verb.to_vec();
    args.push("--help");
    let ran = Place::new().run(&args);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.shown()
}

#[test]
fn shardmill() {
    insta::assert_snapshot!(help(&[]), @"");
}

#[test]
fn convert() {
    insta::assert_snapshot!(help(&["convert"]), @"");
}

#[test]
fn inspect() {
    insta::assert_snapshot!(help(&["inspect"]), @"");
}

#[test]
fn ls() {
    insta::assert_snapshot!(help(&["ls"]), @"");
}

#[test]
fn cat() {
    insta::assert_snapshot!(help(&["cat"]), @"");
}

#[test]
fn verify() {
    insta::assert_snapshot!(help(&["verify"]), @"");
}

#[test]
fn index() {
    insta::assert_snapshot!(help(&["index"]), @"");
}

#[test]
fn index_rebuild() {
    insta::assert_snapshot!(help(&["index", "rebuild"]), @"");
}

#[test]
fn index_merge() {
    insta::assert_snapshot!(help(&["index", "merge"]), @"");
}

#[test]
fn completions() {
    insta::assert_snapshot!(help(&["completions"]), @"");
}

#[test]
fn man() {
    insta::assert_snapshot!(help(&["man"]), @"");
}

#[test]
fn every_verb_has_examples() {
    for verb in [
        "convert",
        "inspect",
        "ls",
        "cat",
        "verify",
        "index",
        "completions",
        "man",
    ] {
        assert!(help(&[verb]).contains("\nEXAMPLES:\n"), "{verb}");
    }
}

#[test]
fn nothing_typed_is_a_usage_error_with_help() {
    let ran = Place::new().run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("Usage: shardmill"));
}

#[test]
fn version() {
    assert_eq!(
        Place::new().ok(&["--version"]),
        concat!("shardmill ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
