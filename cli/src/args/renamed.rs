//! Other spellings of options and verbs: those of earlier versions, and those of launchers and trainers. A hint names
//! the right one.

use std::ffi::OsString;

/// The options that have another name: the verbs in which the other spelling is known (none for all verbs), that
/// spelling, and the name of the option.
const RENAMED: [(&[&str], &str, &str); 20] = [
    (&["convert", "inspect"], "--version", "--delta-version"),
    (&["bench"], "--split", "--subset"),
    (&["bench"], "--batches", "--max-batches"),
    (&["bench"], "--threads", "--jobs"),
    (&["lint"], "--splits", "--show-keys"),
    (&[], "--limit", "--safety-limit"),
    (RUNS, "--gpus", "--ranks-per-node"),
    (RUNS, "--gpus-per-node", "--ranks-per-node"),
    (RUNS, "--num-gpus", "--ranks-per-node"),
    (RUNS, "--devices", "--ranks-per-node"),
    (RUNS, "--ranks", "--ranks-per-node"),
    (RUNS, "--nproc-per-node", "--ranks-per-node"),
    (RUNS, "--nproc_per_node", "--ranks-per-node"),
    (RUNS, "--num-nodes", "--nodes"),
    (RUNS, "--nnodes", "--nodes"),
    (RUNS, "--machines", "--nodes"),
    (RUNS, "--hosts", "--nodes"),
    (RUNS, "--workers", "--workers-per-rank"),
    (RUNS, "--num-workers", "--workers-per-rank"),
    (RUNS, "--seed", "--shuffle-seed"),
];

/// The verbs that describe the processes of a training run.
const RUNS: &[&str] = &["plan", "order", "which", "bench"];

/// The verbs that have another name now: the old name and the new one.
const RENAMED_VERBS: [(&str, &str); 1] = [("lint", "tar lint")];

/// Returns the new name of a verb with the old name `verb`.
pub fn new_verb(verb: &str) -> Option<&'static str> {
    let found = RENAMED_VERBS.iter().find(|(old, _)| *old == verb);
    found.map(|(_, new)| *new)
}

/// Returns the name of an option that `typed`, a whole command line, calls otherwise.
pub fn new_name(typed: &[OsString], option: &str) -> Option<&'static str> {
    let has = |verb: &&str| typed.iter().skip(1).any(|word| *word == **verb);
    let found = RENAMED
        .iter()
        .find(|(verbs, old, _)| *old == option && (verbs.is_empty() || verbs.iter().any(has)));
    found.map(|(_, _, new)| *new)
}
