//! The shares of streams over a run with a mixture, as a table and a small picture.

use serde::Serialize;
use shardmill_order::{EpochConfig, MixtureWindow};

use crate::error::Stop;
use crate::output::{Table, count, percent};

/// The characters that stand for the streams in the picture.
const MARKS: [char; 8] = ['#', '.', '=', '+', 'o', ':', '*', '-'];
/// The rows and columns of the picture.
const ROWS: u64 = 16;
const COLUMNS: u64 = 50;

/// The windows of an epoch, and what it takes of each stream in equal parts.
#[derive(Serialize)]
pub struct EpochShares {
    epoch: u64,
    windows: Vec<MixtureWindow>,
    #[serde(skip)]
    parts: Vec<Vec<u64>>,
}

/// Returns the shares of each epoch; none without a mixture.
pub fn shares(config: &EpochConfig, epochs: u64) -> Result<Vec<EpochShares>, Stop> {
    let Some(mixture) = &config.sampling.mixture else {
        return Ok(Vec::new());
    };
    let (sizes, epoch_size) = config.mixture_sizes()?;
    let rows = (ROWS / epochs.max(1)).max(1);
    let shares = |epoch| {
        Ok(EpochShares {
            epoch,
            windows: mixture.windows(&sizes, epoch_size, epoch)?,
            parts: mixture.parts(&sizes, epoch_size, epoch, rows)?,
        })
    };
    let epochs = config.epoch..config.epoch.saturating_add(epochs);
    epochs.map(shares).collect()
}

/// Returns the windows as a table: what each stream should have, and what it has.
pub fn table(shares: &[EpochShares]) -> Table {
    let mut table =
        Table::headed(">epoch|>from sample|>to sample|>stream|>planned|>samples|>share");
    for epoch in shares {
        for window in &epoch.windows {
            let length = window.to_sample - window.from_sample;
            let streams = window.planned.iter().zip(&window.taken);
            for (stream, (planned, taken)) in (0_u64..).zip(streams) {
                table.row([
                    count(epoch.epoch),
                    count(window.from_sample),
                    count(window.to_sample),
                    count(stream),
                    format!("{planned:.2}"),
                    count(*taken),
                    percent(*taken, length),
                ]);
            }
        }
    }
    table
}

/// Draws what each part of the run takes of the streams: one line for each part, one character for each stream.
pub fn picture(shares: &[EpochShares]) -> String {
    let mut text = String::new();
    let streams = shares
        .iter()
        .flat_map(|epoch| &epoch.parts)
        .map(Vec::len)
        .max();
    let marks: Vec<String> = (0..streams.unwrap_or(0))
        .map(|stream| format!("{} stream {stream}", mark(stream)))
        .collect();
    text += &format!("  {}\n", marks.join("  "));
    for epoch in shares {
        for part in &epoch.parts {
            let all: u64 = part.iter().sum();
            if all == 0 {
                continue;
            }
            let (mut before, mut drawn) = (0_u64, 0_u64);
            text += &format!("  epoch {} ", epoch.epoch);
            for (stream, taken) in part.iter().enumerate() {
                before += taken;
                let border = u128::from(before) * u128::from(COLUMNS) + u128::from(all / 2);
                let border = u64::try_from(border / u128::from(all)).unwrap_or(COLUMNS);
                for _ in drawn..border {
                    text.push(mark(stream));
                }
                drawn = border;
            }
            text.push('\n');
        }
    }
    text
}

fn mark(stream: usize) -> char {
    MARKS[stream % MARKS.len()]
}
