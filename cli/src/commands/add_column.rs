//! The command `shardmill add-column`: adds the columns of a table to a dataset.

use std::path::PathBuf;

use clap::Args;
use shardmill_convert::{AddColumnsOptions, ColumnSpec, add_columns};
use shardmill_core::{Limits, escape};
use shardmill_source::SourceOptions;
use shardmill_storage::Location;

use super::options;
use crate::args::values::{self, List};
use crate::args::{JobsArgs, SingleWriterArgs, StorageArgs};
use crate::error::Stop;
use crate::output::{DatasetReport, Exit, Output, amount, bytes};
use crate::signals;

/// Add the columns of a table to an MDS dataset that exists
///
/// The rows of the table may have any order. Every sample needs one row with its key, and every row a sample; deleted
/// samples need none. The files of the dataset do not change, and neither do the numbers and the order of its samples. The
/// values are written to shards in the folder `columns`, and `index.columns` lists them. Removing that file removes the
/// columns.
#[derive(Args, Debug)]
pub struct AddColumnArgs {
    /// The directory of the dataset, or its prefix in a store
    #[arg(value_name = "DATASET", value_parser = values::location)]
    pub dataset: Location,

    /// Files, directories or prefixes in stores with the rows of the table
    #[arg(required = true, value_name = "SOURCE", value_parser = values::locations)]
    pub sources: Vec<List<Location>>,

    /// The column with the keys of the samples, text or whole numbers, in the dataset and in the table
    #[arg(long, value_name = "COLUMN", value_parser = values::not_empty)]
    pub on: String,

    /// A column to add: its name, `:` and an encoding, `=` and an SQL expression; repeatable [default: all columns]
    #[arg(long = "column", value_name = "NAME[:ENCODING][=EXPR]", value_parser = values::column)]
    pub columns: Vec<ColumnSpec>,

    #[command(flatten)]
    pub jobs: JobsArgs,

    /// Directory for the table in another form, and for temporary files [default: the system's]
    #[arg(long, value_name = "DIR", env = "SHARDMILL_TEMP_DIR", hide_env_values = true, value_parser = values::local_path)]
    pub temp_dir: Option<PathBuf>,

    #[command(flatten)]
    pub single_writer: SingleWriterArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

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
        "{}: added {} to {} ({})",
        escape(&dataset),
        columns.join(", "),
        amount(added.samples, added.shards),
        bytes(added.stored_bytes),
    ))?;
    if let Some(replaced) = added.replaced.filter(|folder| *folder != added.folder) {
        out.note(format_args!(
            "{replaced} has the previous columns, for readers that are running; remove it when they have ended"
        ))?;
    }
    Ok(Exit::Done)
}
