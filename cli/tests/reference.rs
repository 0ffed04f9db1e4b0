//! Tests the texts that are generated from the definitions of the options.

use std::path::Path;

use crate::common::TestDir;

/// `shardmill markdown-help > docs/reference/cli.md` brings the page up to date.
#[test]
fn cli_reference_page_is_up_to_date() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    let written = std::fs::read_to_string(page).unwrap();
    assert_eq!(TestDir::new().ok(&["markdown-help"]), written);
}

#[test]
fn completions_include_commands_and_options() {
    let dir = TestDir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = dir.ok(&["completions", shell]);
        assert!(
            script.contains("samples-per-shard") && script.contains("rebuild"),
            "{shell}"
        );
        assert!(!script.contains("markdown-help"), "{shell}");
    }
}

#[test]
fn man_pages_are_printed_or_written_to_files() {
    let dir = TestDir::new();
    let all = dir.ok(&["man"]);
    assert_eq!(dir.ok(&["man", "--out", "man1"]), "");
    let mut files: Vec<_> = std::fs::read_dir(dir.path().join("man1"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let names: Vec<_> = files
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap())
        .collect();
    insta::assert_snapshot!(names.join("\n"), @r"
    shardmill-add-column.1
    shardmill-bench.1
    shardmill-cat.1
    shardmill-commit.1
    shardmill-completions.1
    shardmill-convert.1
    shardmill-diff.1
    shardmill-doctor.1
    shardmill-gc.1
    shardmill-head.1
    shardmill-index-export.1
    shardmill-index-lengths.1
    shardmill-index-merge.1
    shardmill-index-rebuild.1
    shardmill-index.1
    shardmill-inspect.1
    shardmill-man.1
    shardmill-order.1
    shardmill-plan.1
    shardmill-select.1
    shardmill-stats.1
    shardmill-tar-lint.1
    shardmill-tar.1
    shardmill-verify.1
    shardmill-view.1
    shardmill-which.1
    shardmill.1
    ");
    for path in files {
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains(".TH"), "{path:?}");
        assert!(all.contains(&page), "{path:?}");
    }
}
