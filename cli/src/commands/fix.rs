//! The command `shardmill tar fix`: rewrites tar files so that all readers understand them.

use shardmill_convert::RewriteKind;
use shardmill_core::Limits;

use super::rewrite::rewrite;
use crate::args::FixArgs;
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(args: &FixArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    rewrite(&args.rewrite, RewriteKind::Fix, limits, out)
}
