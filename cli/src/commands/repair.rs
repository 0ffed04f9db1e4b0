//! The command `shardmill tar repair`: saves the intact samples of damaged tar files.

use shardmill_convert::RewriteKind;
use shardmill_core::Limits;

use super::rewrite::rewrite;
use crate::args::RepairArgs;
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(args: &RepairArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    rewrite(&args.rewrite, RewriteKind::Repair, limits, out)
}
