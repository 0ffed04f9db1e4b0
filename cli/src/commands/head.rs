//! The command `shardmill head`: shows the first samples or rows.

use clap::Args;
use shardmill_convert::show_row;
use shardmill_core::{Error, Limits, escape};
use shardmill_mds::Value;
use shardmill_source::{Source, SourceKind};
use shardmill_storage::Location;

use super::dataset_location::DatasetLocation;
use super::sample_row::SampleRow;
use super::samples::SampleChoice;
use super::tars::{each_sample, tar_set};
use super::{dataset, rows};
use crate::args::{StorageArgs, values};
use crate::error::{Stop, unknown_column};
use crate::output::{Exit, Output, Table, begin_entry, cell_text, terminal_width, write_value};

/// Show the first samples of a dataset, or the first rows of a source, as a table
///
/// A dataset is MDS shards or tar files; a source is a Delta table, Parquet, Arrow, CSV, JSON lines or TFRecord files, or
/// a tree of files. The table fits the width of the terminal: long values are cut, bytes are shown as type and size, and control
/// characters are escaped. With `--json`, every sample is one line with its whole values, in the form of `cat`. Only the
/// shards or files with these samples are read.
#[derive(Args, Debug)]
pub struct HeadArgs {
    /// The dataset or source, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// The number of samples
    #[arg(long = "limit", short = 'n', value_name = "N", default_value = "5", value_parser = values::sample_count)]
    pub samples: u64,

    /// Show only this column; repeatable, in the order given
    #[arg(long = "column", short, value_name = "NAME")]
    pub columns: Vec<String>,

    /// Read only the samples of this view, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub view: Option<Location>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

pub fn run(args: &HeadArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let dataset_location = DatasetLocation::parse(&args.location, &args.storage)?;
    let mut sheet = Sheet::new(out.is_json());
    let samples = SampleChoice::of_view(args.view.as_ref(), false, &args.storage)?;
    match rows::find(&args.location, &dataset_location, &limits)? {
        Some(SourceKind::Webdataset) => {
            let tars = tar_set(&dataset_location, &samples, &limits)?;
            let first = 0..args.samples;
            sheet.more = each_sample(&tars, first, &limits, &mut |row| {
                sheet.sample(row)?;
                Ok(true)
            })?;
        }
        Some(_) => {
            let dataset = dataset::open(&args.location, &dataset_location, limits, &samples)?;
            sheet.more = args.samples < dataset.len();
            for number in 0..dataset.len().min(args.samples) {
                sheet.sample(&SampleRow::of(&dataset, &dataset.sample(number)?)?)?;
            }
        }
        None => {
            let view = args.view.as_ref();
            let source = rows::open(&args.location, &args.storage, limits, view, 0)?;
            source_rows(args, &*source, &mut sheet)?;
        }
    }
    sheet.show(args, out)
}

/// The samples to show.
struct Sheet {
    is_json: bool,
    columns: Vec<String>,
    /// The cells of each sample: the number of the column, and the text or JSON of the value.
    rows: Vec<Vec<(usize, Vec<u8>)>>,
    more: bool,
}

impl Sheet {
    const fn new(is_json: bool) -> Self {
        Self {
            is_json,
            columns: Vec::new(),
            rows: Vec::new(),
            more: false,
        }
    }

    fn begin(&mut self) {
        self.rows.push(Vec::new());
    }

    fn sample(&mut self, row: &SampleRow<'_>) -> Result<(), Stop> {
        self.begin();
        for field in &row.fields {
            row.with_value(field, |value| self.add(field.0, value))?;
        }
        Ok(())
    }

    /// Adds a value to the last sample.
    fn add(&mut self, column: &str, value: &Value<'_>) {
        let mut shown = Vec::new();
        match self.is_json {
            true => write_value(value, None, &mut shown),
            false => shown.extend_from_slice(cell_text(value).as_bytes()),
        }
        let known = self.columns.iter().position(|name| name == column);
        let at = known.unwrap_or_else(|| {
            self.columns.push(column.to_owned());
            self.columns.len() - 1
        });
        if let Some(row) = self.rows.last_mut() {
            row.push((at, shown));
        }
    }

    /// Returns the numbers of the columns to show.
    fn chosen(&self, args: &HeadArgs) -> Result<Vec<usize>, Error> {
        if args.columns.is_empty() || self.rows.is_empty() {
            return Ok((0..self.columns.len()).collect());
        }
        let find = |column: &String| {
            let at = self.columns.iter().position(|name| name == column);
            at.ok_or_else(|| unknown_column(&args.location, column, &self.columns))
        };
        args.columns.iter().map(find).collect()
    }

    fn show(&self, args: &HeadArgs, out: &mut Output) -> Result<Exit, Stop> {
        let chosen = self.chosen(args)?;
        if self.is_json {
            for row in &self.rows {
                out.bytes(&self.json(row, &chosen))?;
            }
            return Ok(Exit::Done);
        }
        if self.rows.is_empty() {
            if !out.is_quiet() {
                out.line(format_args!("{}: no samples", escape(&args.location)))?;
            }
            return Ok(Exit::Done);
        }
        let names = chosen.iter().filter_map(|at| self.columns.get(*at));
        let mut table = Table::of_values(names.cloned());
        for row in &self.rows {
            table.values(chosen.iter().map(|at| {
                let cell = row.iter().find(|(column, _)| column == at);
                let cell = cell.map(|(_, text)| String::from_utf8_lossy(text).into_owned());
                cell.unwrap_or_default()
            }));
        }
        let (lines, hidden) = table.fit(terminal_width());
        for line in lines {
            out.line(line)?;
        }
        if !hidden.is_empty() {
            out.note(format_args!(
                "columns without room: {}; choose some with --column",
                hidden.join(", ")
            ))?;
        }
        if self.more {
            out.note("there are more; -n N shows the first N")?;
        }
        Ok(Exit::Done)
    }

    fn json(&self, row: &[(usize, Vec<u8>)], chosen: &[usize]) -> Vec<u8> {
        let mut line = b"{".to_vec();
        for at in chosen {
            let value = row.iter().find(|(column, _)| column == at);
            if let (Some((_, value)), Some(name)) = (value, self.columns.get(*at)) {
                begin_entry(name, &mut line);
                line.extend_from_slice(value);
            }
        }
        line.extend_from_slice(b"}\n");
        line
    }
}

fn source_rows(args: &HeadArgs, source: &dyn Source, sheet: &mut Sheet) -> Result<(), Stop> {
    let max = usize::try_from(args.samples).unwrap_or(usize::MAX);
    let schema = source.schema();
    for (number, unit) in source.units().iter().enumerate() {
        if sheet.rows.len() >= max {
            // Without reading on, a unit of unknown size counts as rows.
            sheet.more |= unit.rows != Some(0);
            continue;
        }
        let mut rows = source.open_unit(number)?;
        while let Some(batch) = rows.next_batch()? {
            let taken = batch.num_rows().min(max - sheet.rows.len());
            for row in 0..taken {
                sheet.begin();
                show_row(&schema, &batch, row, &mut |found| {
                    sheet.add(found.name, found.value);
                });
            }
            if taken < batch.num_rows() {
                sheet.more = true;
                return Ok(());
            }
        }
    }
    Ok(())
}
