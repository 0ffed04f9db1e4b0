//! Tests the completion scripts.

use crate::common::TestDir;

#[test]
fn completions_include_commands_and_options() {
    let dir = TestDir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = dir.ok(&["completions", shell]);
        assert!(
            script.contains("samples-per-shard") && script.contains("rebuild"),
            "{shell}"
        );
    }
}
