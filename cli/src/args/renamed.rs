//! The spellings that launchers and trainers use for options of commands that describe a training run. A hint names the
//! option.

use std::ffi::OsString;

/// A spelling of a launcher or trainer, and the name of the option.
const LAUNCHER_OPTIONS: [(&str, &str); 14] = [
    ("--gpus", "--ranks-per-node"),
    ("--gpus-per-node", "--ranks-per-node"),
    ("--num-gpus", "--ranks-per-node"),
    ("--devices", "--ranks-per-node"),
    ("--ranks", "--ranks-per-node"),
    ("--nproc-per-node", "--ranks-per-node"),
    ("--nproc_per_node", "--ranks-per-node"),
    ("--num-nodes", "--nodes"),
    ("--nnodes", "--nodes"),
    ("--machines", "--nodes"),
    ("--hosts", "--nodes"),
    ("--workers", "--workers-per-rank"),
    ("--num-workers", "--workers-per-rank"),
    ("--seed", "--shuffle-seed"),
];

/// The verbs that describe the processes of a training run.
const RUNS: [&str; 4] = ["plan", "order", "which", "bench"];

/// Returns the name of the option that `typed`, a whole command line, calls `option`.
pub fn new_name(typed: &[OsString], option: &str) -> Option<&'static str> {
    let describes_run = typed
        .iter()
        .skip(1)
        .any(|word| RUNS.iter().any(|verb| word == verb));
    let found = LAUNCHER_OPTIONS.iter().find(|(name, _)| *name == option);
    found.filter(|_| describes_run).map(|(_, option)| *option)
}
