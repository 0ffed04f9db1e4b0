//! The command `shardmill add-column`: adds the columns of a table to a dataset.

use shardmill_convert::{AddColumnsOptions, add_columns};
use shardmill_core::{Limits, escape};
use shardmill_source::SourceOptions;

use super::options;
use crate::args::AddColumnArgs;
use crate::error::Stop;
use crate::output::{DatasetReport, Exit, Output, bytes, many};
use crate::signals;

pub fn run(args: &AddColumnArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let mut source = SourceOptions {
        limits,
        remote: options::remote(&args.storage)?,
        ..SourceOptions::default()
    };
    args.single_writer.apply(&mut source.remote);
    source.resources.jobs = args.jobs.count();
    source.resources.temp_dir.clone_from(&args.temp_dir);
    let options = AddColumnsOptions {
        on: args.on.clone(),
        columns: args.columns.clone(),
        source,
    };
    let added = signals::with_progress("adding", out, |progress| {
        add_columns(&args.dataset, args.sources.concat(), &options, progress)
    })?;
    let dataset = args.dataset.to_string();
    let json = DatasetReport {
        dataset: &dataset,
        report: &added,
    };
    if !out.wants_summary(&json)? {
        return Ok(Exit::Done);
    }
    let columns = added.columns.iter();
    let columns: Vec<String> = columns
        .map(|(name, encoding)| format!("{} ({encoding})", escape(name)))
        .collect();
    out.line(format_args!(
        "{}: added {} to {} in {} ({})",
        escape(&dataset),
        columns.join(", "),
        many(added.samples, "sample"),
        many(added.shards, "shard"),
        bytes(added.stored_bytes),
    ))?;
    if let Some(replaced) = added.replaced.filter(|folder| *folder != added.folder) {
        out.note(format_args!(
            "{replaced} has the previous columns, for readers that are running; remove it when they have ended"
        ))?;
    }
    Ok(Exit::Done)
}
