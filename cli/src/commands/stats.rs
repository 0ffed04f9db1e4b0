//! The command `shardmill stats`: measures the columns of a dataset or a source.

use clap::Args;
use shardmill_convert::{Bin, ColumnStats, Measure, Number, Stats, StatsOptions};
use shardmill_core::{Limits, escape};
use shardmill_storage::Location;

use super::rows;
use crate::args::{JobsArgs, StorageArgs, values};
use crate::error::{Stop, unknown_column};
use crate::output::{DatasetReport, Exit, Output, Table, count, many};
use crate::signals;

/// Measure the columns of a dataset or a source: counts, nulls, distinct values, extremes, means, histograms
///
/// Every sample is read once. Numbers are measured by their values; texts in characters, bytes and images in bytes,
/// arrays and lists in items. NaN and infinities are counted apart. All numbers are exact and do not depend on `--jobs`,
/// except more than 4096 distinct values, which are estimated to about 1 %, and means of floats, whose sum has 106 bits.
/// Values that `--nulls mask` of `convert` replaced count as nulls. The bins of a histogram have the same width, a power
/// of two.
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// The dataset or source, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// Measure only this column; repeatable, in the order given
    #[arg(long = "column", short, value_name = "NAME")]
    pub columns: Vec<String>,

    /// Read only the first samples
    #[arg(long = "limit", short = 'n', value_name = "N", value_parser = values::sample_count)]
    pub samples: Option<u64>,

    #[command(flatten)]
    pub jobs: JobsArgs,

    /// Read only the samples of this view, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub view: Option<Location>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

pub fn run(args: &StatsArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let jobs = args.jobs.count();
    let view = args.view.as_ref();
    let source = rows::open(&args.location, &args.storage, limits.clone(), view, jobs)?;
    let schema = source.schema();
    for column in &args.columns {
        let mut known = schema.fields().iter().map(|field| field.name());
        if !known.clone().any(|name| name == column) {
            return Err(unknown_column(&args.location, column, known.by_ref()).into());
        }
    }
    let options = StatsOptions {
        jobs,
        rows: args.samples,
        columns: (!args.columns.is_empty()).then(|| args.columns.clone()),
        limits,
    };
    let stats = signals::with_progress("measuring", out, |progress| {
        shardmill_convert::stats(&*source, &options, progress)
    })?;
    let report = DatasetReport {
        dataset: &args.location,
        report: &stats,
    };
    out.result(&report, |out| show(&args.location, &stats, out))?;
    Ok(Exit::Done)
}

fn show(location: &str, stats: &Stats, out: &mut Output) -> Result<(), Stop> {
    let which = if stats.complete { "" } else { "the first " };
    out.line(format_args!(
        "{}: {which}{}, {}\n",
        escape(location),
        many(stats.rows, "sample"),
        many(stats.columns.len() as u64, "column"),
    ))?;
    let mut table = Table::headed("  column|type|>nulls|>distinct|of|>min|>mean|>max|histogram");
    for column in &stats.columns {
        let distinct = match column.distinct.exact {
            true => count(column.distinct.count),
            false => format!("~{}", count(column.distinct.count)),
        };
        let edge = |number: &Option<Number>| number.as_ref().map_or_else(|| "-".to_owned(), shown);
        table.row([
            format!("  {}", escape(&column.name)),
            escape(&column.type_name).into_owned(),
            count(column.nulls),
            distinct,
            measure(column.measure).to_owned(),
            edge(&column.min),
            column.mean.map_or_else(|| "-".to_owned(), rounded),
            edge(&column.max),
            bars(&column.histogram),
        ]);
    }
    out.text(table)?;
    for column in &stats.columns {
        if let Some(special) = special(column) {
            out.line(format_args!("{}: {special}", escape(&column.name)))?;
        }
    }
    Ok(())
}

const fn measure(measure: Option<Measure>) -> &'static str {
    match measure {
        Some(Measure::Value) => "values",
        Some(Measure::Characters) => "characters",
        Some(Measure::Bytes) => "bytes",
        Some(Measure::Items) => "items",
        None => "-",
    }
}

/// Names the values that are not in the histogram.
fn special(column: &ColumnStats) -> Option<String> {
    let special = column.special;
    let counts = [
        (special.nan, "NaN"),
        (special.infinity, "Infinity"),
        (special.negative_infinity, "-Infinity"),
        (special.unreadable, "not of the type of the column"),
    ];
    let counts: Vec<String> = counts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}", count(number)))
        .collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

fn shown(number: &Number) -> String {
    match number {
        Number::Int(number) => number.to_string(),
        Number::Float(number) => rounded(*number),
        Number::Float32(number) => rounded((*number).into()),
        Number::Text(text) => text.clone(),
    }
}

/// Formats a number with six significant digits.
fn rounded(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{number:.3e}");
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is between -4 and 15")]
    let digits = if size == 0.0 {
        0
    } else {
        size.log10().floor() as i32
    };
    let decimals = usize::try_from(5 - digits).unwrap_or(0);
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Draws a histogram with a character for each bin. An empty bin is a space, any other one is visible.
fn bars(bins: &[Bin]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let max = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    let bar = |bin: &Bin| {
        let eighths = u128::from(bin.count) * 8;
        let height = usize::try_from(eighths.div_ceil(u128::from(max))).unwrap_or(8);
        match height.checked_sub(1) {
            Some(at) => BARS.get(at).copied().unwrap_or('█'),
            None => ' ',
        }
    };
    bins.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_for_display() {
        for (number, text) in [
            (0.0, "0"),
            (4.95, "4.95"),
            (-1.0 / 3.0, "-0.333333"),
            (123_456_789.25, "123456789"),
            (1000.0, "1000"),
            (1e15, "1.000e15"),
            (1e-9, "1.000e-9"),
        ] {
            assert_eq!(rounded(number), text);
        }
    }

    #[test]
    fn nonempty_histogram_bins_are_visible() {
        let bins: Vec<Bin> = [1000, 0, 1, 500]
            .into_iter()
            .map(|count| Bin {
                from: Number::Int(0),
                to: Number::Int(1),
                count,
            })
            .collect();
        assert_eq!(bars(&bins), "█ ▁▄");
        assert_eq!(bars(&[]), "");
    }
}
