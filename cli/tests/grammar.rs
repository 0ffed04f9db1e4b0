//! Tests that one spelling means one thing in all verbs, and that spellings of launchers name the option.

use crate::common::TestDir;

/// Runs a command line that is refused, and returns the error line.
fn refused(words: &[&str]) -> String {
    let dir = TestDir::new();
    let ran = dir.run(words);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (2, ""),
        "{words:?}: {}",
        ran.stderr
    );
    ran.stderr.trim().to_owned()
}

#[test]
fn options_of_launchers_are_errors_with_the_name_of_ours() {
    for (words, old, new) in [
        (
            &["plan", "a", "--gpus", "8"][..],
            "--gpus",
            "--ranks-per-node",
        ),
        (
            &["which", "a", "--step", "1", "--nnodes=2"],
            "--nnodes",
            "--nodes",
        ),
        (
            &["order", "a", "--num-workers", "8"],
            "--num-workers",
            "--workers-per-rank",
        ),
    ] {
        assert_eq!(
            refused(words),
            format!("error[usage-unknown-option]: {old}: the option has another name; write {new}"),
            "{words:?}"
        );
    }
}

#[test]
fn limit_option_bounds_the_number_of_samples() {
    let dir = TestDir::with_shards();
    let ids = |words: &[&str]| {
        let all = [&["cat", "shards", "--column", "id"], words].concat();
        dir.ok(&all).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let every = ids(&["0.."]);
    assert_eq!(ids(&["--limit", "12"]), every[..12]);
    assert_eq!(ids(&["5..", "--limit", "3"]), every[5..8]);
    assert_eq!(ids(&["5..7", "--limit", "1k"]), every[5..7]);
    for (value, hint) in [
        ("0", "write 1000, 10k or 1.5m"),
        (
            "shards=3",
            "limits for reading files are set by --safety-limit NAME=VALUE",
        ),
    ] {
        let line = refused(&["cat", "a", "--limit", value]);
        assert!(line.starts_with("error[config-limit]: --limit: "), "{line}");
        assert!(line.ends_with(hint), "{line}");
    }
    for words in [["head", "shards"], ["stats", "data"]] {
        for json in [&["--json"][..], &[]] {
            let long = dir.ok(&[&words[..], &["--limit", "3"], json].concat());
            assert_eq!(long, dir.ok(&[&words[..], &["-n", "3"], json].concat()));
        }
    }
    let line = refused(&["cat", "a", "--limit", "3", "--key", "x"]);
    assert!(line.starts_with("error[usage-conflict]"), "{line}");
}

#[test]
fn key_selects_a_sample_and_key_column_a_column() {
    let dir = TestDir::with_shards();
    let convert = [
        "convert",
        "data",
        "tars",
        "--to",
        "webdataset",
        "--key-column",
        "id",
    ];
    dir.ok(&convert);
    // The old name still works.
    dir.ok(&[
        "convert",
        "data",
        "tars2",
        "--to",
        "webdataset",
        "--key",
        "id",
    ]);
    assert_eq!(
        dir.ok(&["cat", "tars", "--key", "7"]),
        dir.ok(&["cat", "tars2", "--key", "7"])
    );
    dir.ok(&["cat", "shards", "--key", "7", "--key-column", "id"]);
    // Its errors name the new one.
    let line = refused(&["convert", "a", "b", "--key", ""]);
    assert!(
        line.starts_with("error[config-key]: --key-column: "),
        "{line}"
    );
}

#[test]
fn jobs_option_is_checked_in_every_command() {
    for words in [
        &["convert", "a", "b"][..],
        &["verify", "a"],
        &["index", "rebuild", "a"],
        &["index", "export", "a", "--for", "wids"],
        &["bench", "a"],
        &["order", "--json"],
    ] {
        let line = refused(&[words, &["--jobs", "9999"]].concat());
        assert!(line.contains("config-jobs"), "{line}");
    }
    let dir = TestDir::with_shards();
    for jobs in ["0", "2"] {
        dir.ok(&["bench", "shards", "--jobs", jobs]);
    }
}

#[test]
fn duration_options_share_one_syntax() {
    for (words, id) in [
        (&["plan", "a", "--latency"][..], "config-latency"),
        (&["plan", "a", "--step-time"], "config-step-time"),
        (&["bench", "a", "--step-time"], "config-step-time"),
        (&["gc", "a", "--older-than"], "config-older-than"),
        (&["gc", "a", "--takeover-after"], "config-takeover-after"),
        (
            &["commit", "a", "--takeover-after"],
            "config-takeover-after",
        ),
    ] {
        for text in ["", "-1", "soon", "1x", "1h30"] {
            let line = refused(&[words, &[text]].concat());
            assert!(line.starts_with(&format!("error[{id}]")), "{line}");
        }
        // A valid one gets as far as the missing dataset.
        for text in ["1min 30s", "1.5s", "500ms", "0"] {
            let ran = TestDir::new().run(&[words, &[text]].concat());
            assert!(!ran.stderr.contains(id), "{text}: {}", ran.stderr);
        }
    }
    // A number without a unit means seconds, except where it meant something else.
    for words in [
        ["bench", "a", "--step-time", "100"],
        ["gc", "a", "--older-than", "24"],
    ] {
        let line = refused(&words);
        assert!(line.contains("has no unit"), "{line}");
    }
    for words in [
        ["plan", "a", "--step-time", "0.1"],
        ["gc", "a", "--takeover-after", "2"],
    ] {
        let ran = TestDir::new().run(&words);
        assert!(!ran.stderr.contains("config-"), "{}", ran.stderr);
    }
}

#[test]
fn range_arguments_share_one_syntax() {
    let dir = TestDir::with_shards();
    for range in ["0", "-1", "1..2", "1..", "..2", "-2..", ".."] {
        dir.ok(&["cat", "shards", range, "--column", "id"]);
        dir.ok(&["order", "shards", "--batch-size", "8", "--batches", range]);
    }
    for range in ["x", "1...2", "1.5"] {
        for words in [
            ["cat", "shards", range].as_slice(),
            &["order", "shards", "--batches", range],
        ] {
            let line = dir.shown(words);
            assert!(line.contains("error[config-range]"), "{line}");
        }
    }
}

#[test]
fn sample_count_options_accept_the_k_suffix() {
    let dir = TestDir::with_shards();
    dir.ok(&[
        "order",
        "shards",
        "--epoch-size",
        "1k",
        "--shuffle",
        "--shuffle-block-size",
        "262k",
        "-q",
    ]);
    dir.ok(&[
        "convert",
        "data",
        "out",
        "--samples-per-shard",
        "1k",
        "--infer-rows",
        "100k",
    ]);
    dir.ok(&["bench", "shards", "--local", "cache", "--predownload", "1k"]);
}

#[test]
fn size_options_share_one_syntax() {
    for (words, id) in [
        (
            &["convert", "a", "b", "--size-limit"][..],
            "config-size-limit",
        ),
        (
            &["convert", "a", "b", "--memory-limit"],
            "config-memory-limit",
        ),
        (&["plan", "a", "--cache-limit"], "config-cache-limit"),
        (&["plan", "a", "--bandwidth"], "config-bandwidth"),
        (&["bench", "a", "--cache-limit"], "config-cache-limit"),
        (&["cat", "a", "--max-bytes"], "config-max-bytes"),
    ] {
        for text in ["64mb", "64MiB", "1.5GB", "1000000"] {
            let ran = TestDir::new().run(&[words, &[text]].concat());
            assert!(!ran.stderr.contains(id), "{text}: {}", ran.stderr);
        }
        let line = refused(&[words, &["much"]].concat());
        assert!(line.starts_with(&format!("error[{id}]")), "{line}");
    }
}

#[test]
fn inspect_shards_conflicts_with_versions_of_tables() {
    let line = refused(&["inspect", "a", "--shards", "--delta-version", "1"]);
    assert!(line.starts_with("error[usage-conflict]"), "{line}");
}

/// Runs a command with environment variables. Returns its exit code and standard error.
fn with_variables(words: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let dir = TestDir::with_shards();
    let mut command = dir.command();
    let output = command
        .args(words)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), stderr)
}

#[test]
fn environment_variables_set_option_defaults() {
    let verify = ["verify", "shards"];
    for (variable, value, words, id) in [
        ("SHARDMILL_JOBS", "many", &verify[..], "config-jobs"),
        (
            "SHARDMILL_MEMORY_LIMIT",
            "0",
            &["convert", "data", "out"],
            "config-memory-limit",
        ),
        (
            "SHARDMILL_TAKEOVER_AFTER",
            "soon",
            &["commit", "out"],
            "config-takeover-after",
        ),
        ("SHARDMILL_PROGRESS", "much", &verify, "config-progress"),
        ("SHARDMILL_COLOR", "blue", &verify, "config-color"),
    ] {
        let (code, errors) = with_variables(words, &[(variable, value)]);
        assert_eq!(code, 2, "{variable}: {errors}");
        // The error names the variable, not an option that was not given.
        let begin = format!("error[{id}]: {variable}: ");
        assert!(errors.starts_with(&begin), "{errors}");
        // An empty variable counts as unset.
        let (_, errors) = with_variables(words, &[(variable, "")]);
        assert!(!errors.contains(id), "{errors}");
    }
    let (code, errors) = with_variables(
        &["convert", "data", "out"],
        &[("SHARDMILL_TEMP_DIR", "s3://b/x")],
    );
    assert_eq!(code, 2, "{errors}");
    assert!(errors.starts_with("error[url-scheme]"), "{errors}");
}

#[test]
fn options_override_environment_variables() {
    let jobs = [("SHARDMILL_JOBS", "many")];
    assert_eq!(
        with_variables(&["verify", "shards", "-j2"], &jobs),
        (0, String::new())
    );
    // These verbs do not read it, because `--jobs` conflicts with other options or has another default.
    assert_eq!(
        with_variables(&["order", "shards", "-q"], &jobs),
        (0, String::new())
    );
    assert_eq!(
        with_variables(&["bench", "shards", "-q"], &jobs),
        (0, String::new())
    );
    let progress = [("SHARDMILL_PROGRESS", "json")];
    let convert = ["convert", "data", "out", "--progress", "none"];
    assert_eq!(with_variables(&convert, &progress), (0, String::new()));
    let (_, errors) = with_variables(&convert[..3], &progress);
    assert!(errors.starts_with('{'), "{errors}");
}

#[test]
fn color_follows_options_and_environment() {
    let red = "\u{1b}[1m\u{1b}[31merror\u{1b}[0m[not-found]: nowhere";
    let plain = "error[not-found]: nowhere";
    for (words, variables, expected) in [
        (&["inspect", "--shards", "nowhere"][..], &[][..], plain),
        (
            &["inspect", "--shards", "nowhere", "--color", "always"],
            &[],
            red,
        ),
        (
            &["inspect", "--shards", "nowhere", "--color=always"],
            &[("NO_COLOR", "1")],
            red,
        ),
        (
            &["inspect", "--shards", "nowhere", "--color", "never"],
            &[("CLICOLOR_FORCE", "1")],
            plain,
        ),
        (
            &["inspect", "--shards", "nowhere"],
            &[("CLICOLOR_FORCE", "1")],
            red,
        ),
        (
            &["inspect", "--shards", "nowhere"],
            &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
            plain,
        ),
        (
            &["inspect", "--shards", "nowhere"],
            &[("SHARDMILL_COLOR", "always")],
            red,
        ),
        (
            &["inspect", "--shards", "nowhere", "--json", "--color=always"],
            &[],
            "{\"error\":",
        ),
    ] {
        let (code, errors) = with_variables(words, variables);
        assert_eq!(code, 2);
        assert!(
            errors.starts_with(expected),
            "{words:?} {variables:?}: {errors:?}"
        );
    }
    // Errors of parsing and help have colors too.
    let (_, errors) = with_variables(&["--color=always", "convertt"], &[]);
    assert!(errors.starts_with("\u{1b}[1m"), "{errors:?}");
    let dir = TestDir::new();
    assert!(dir.ok(&["--help", "--color", "always"]).contains('\u{1b}'));
    assert!(!dir.ok(&["--help"]).contains('\u{1b}'));
}

#[test]
fn help_command_output_equals_help_option() {
    let dir = TestDir::new();
    for words in [&["convert"][..], &["index", "rebuild"], &["index"]] {
        assert_eq!(
            dir.ok(&[&["help"], words].concat()),
            dir.ok(&[words, &["--help"]].concat())
        );
    }
    assert_eq!(dir.ok(&["help"]), dir.ok(&["--help"]));
    let line = refused(&["help", "convertt"]);
    assert!(
        line.starts_with("error[usage-unknown-verb]: convertt"),
        "{line}"
    );
}

#[test]
fn short_help_fits_one_screen() {
    let dir = TestDir::new();
    for words in [
        &["convert"][..],
        &["inspect"],
        &["cat"],
        &["verify"],
        &["order"],
        &["plan"],
        &["bench"],
        &["gc"],
        &["index"],
        &["index", "rebuild"],
    ] {
        let short = dir.ok(&[words, &["-h"]].concat());
        assert!(
            short.lines().count() <= 50,
            "{words:?}: {} lines\n{short}",
            short.lines().count()
        );
        let long = dir.ok(&[words, &["--help"]].concat());
        assert!(long.len() > short.len(), "{words:?}");
    }
    let short = dir.ok(&["convert", "-h"]);
    assert!(
        short.contains("--where") && !short.contains("--csv-null"),
        "{short}"
    );
}
