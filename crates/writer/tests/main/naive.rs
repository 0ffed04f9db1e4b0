//! Writes the format in the simplest way: one sample after the other. It shares nothing with the engine but the
//! encoders of single values.

use shardmill_core::Format;

/// One shard: the data file, and the meta file of the formats that have one.
#[derive(Debug, PartialEq, Eq)]
pub struct NaiveShard {
    pub data: Vec<u8>,
    pub meta: Option<Vec<u8>>,
}

/// Cuts encoded samples into shards as section 3.5 of the specification says; with `empty_first` also where the first
/// sample is above the limit, as the original writer does.
pub fn write(
    format: Format,
    config: &str,
    header: &[u8],
    limit: Option<u64>,
    samples: &[Vec<u8>],
    empty_first: bool,
) -> Vec<NaiveShard> {
    let (start, extra) = if format == Format::Mds {
        (8 + config.len() as u64, 4)
    } else {
        (0, 0)
    };
    let mut shards = Vec::new();
    let mut open: Vec<&Vec<u8>> = Vec::new();
    let mut used = start;
    for sample in samples {
        let cost = sample.len() as u64 + extra;
        let is_over = limit.is_some_and(|limit| used + cost > limit);
        if is_over && (empty_first || !open.is_empty()) {
            shards.push(shard(format, config, header, &open));
            open.clear();
            used = start;
        }
        open.push(sample);
        used += cost;
    }
    if !open.is_empty() {
        shards.push(shard(format, config, header, &open));
    }
    shards
}

fn shard(format: Format, config: &str, header: &[u8], samples: &[&Vec<u8>]) -> NaiveShard {
    let count = u32::try_from(samples.len()).unwrap();
    let mut table = count.to_le_bytes().to_vec();
    let mut at = if format == Format::Mds {
        8 + 4 * samples.len() + config.len()
    } else {
        header.len()
    };
    table.extend(u32::try_from(at).unwrap().to_le_bytes());
    for sample in samples {
        at += sample.len();
        table.extend(u32::try_from(at).unwrap().to_le_bytes());
    }
    table.extend(config.as_bytes());
    let body: Vec<u8> = samples
        .iter()
        .flat_map(|sample| sample.iter().copied())
        .collect();
    if format == Format::Mds {
        NaiveShard {
            data: [table, body].concat(),
            meta: None,
        }
    } else {
        NaiveShard {
            data: [header.to_vec(), body].concat(),
            meta: Some(table),
        }
    }
}

/// An MDS sample: the lengths of the variable values, then all values.
pub fn mds_sample(values: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let mut sample = Vec::new();
    for (fixed, value) in values {
        if !fixed {
            sample.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
        }
    }
    for (_, value) in values {
        sample.extend(value);
    }
    sample
}
