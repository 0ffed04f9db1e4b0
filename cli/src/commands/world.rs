//! Parses the streams, the world and the order options of commands that create an order.

use shardmill_core::escape;
use shardmill_order::{EpochConfig, OrderError, StreamConfig, Weight, World};

use crate::args::WorldArgs;
use crate::error::{CliError, Stop};

/// A stream as the user typed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    pub location: String,
    pub weight: Weight,
}

/// Returns the streams: the named datasets, and those of `--stream`.
pub fn streams(args: &WorldArgs) -> Result<Vec<Stream>, CliError> {
    let plain = args.datasets.iter().map(|location| {
        Ok(Stream {
            location: location.clone(),
            weight: Weight::Unspecified,
        })
    });
    plain
        .chain(args.streams.iter().map(|typed| stream(typed)))
        .collect()
}

/// Parses `DATASET[,proportion=X|repeat=X|choose=N]`. A comma followed by anything else belongs to the path.
fn stream(typed: &str) -> Result<Stream, CliError> {
    let wrong = |fact: String| {
        let hint = "write DATASET, or DATASET,proportion=X, DATASET,repeat=X or DATASET,choose=N";
        CliError::option("stream", fact, hint)
    };
    let Some((location, name, value)) = typed.rsplit_once(',').and_then(|(location, rest)| {
        let (name, value) = rest.split_once('=')?;
        (!name.contains('/')).then_some((location, name, value))
    }) else {
        return Ok(Stream {
            location: typed.to_owned(),
            weight: Weight::Unspecified,
        });
    };
    let not_a_number = || wrong(format!("`{}` is not a number for {name}", escape(value)));
    let real = || value.parse::<f64>().map_err(|_| not_a_number());
    let weight = match name {
        "proportion" => Weight::Proportion(real()?),
        "repeat" => Weight::Repeat(real()?),
        "choose" => Weight::Choose(value.parse().map_err(|_| not_a_number())?),
        _ => {
            return Err(wrong(format!(
                "`{}` is not a part of a stream",
                escape(name)
            )));
        }
    };
    Ok(Stream {
        location: location.to_owned(),
        weight,
    })
}

/// Returns the typed configuration of an order, for epoch 0. Values that depend on the streams are checked when the
/// order is created.
pub fn epoch_config(args: &WorldArgs, streams: Vec<StreamConfig>) -> Result<EpochConfig, Stop> {
    let world = World {
        nodes: number("nodes", &args.nodes)?,
        ranks_per_node: number("ranks-per-node", &args.ranks_per_node)?,
        workers_per_rank: number("workers-per-rank", &args.workers_per_rank)?,
    };
    let batch_size = number("batch-size", &args.batch_size)?;
    let mut config = EpochConfig::new(streams, batch_size, world);
    config.replication = optional("replication", args.replication.as_deref())?;
    config.epoch_size = optional("epoch-size", args.epoch_size.as_deref())?;
    config.shuffle = args.shuffle && !args.no_shuffle;
    config.shuffle_algo = named(args.shuffle_algo.parse())?;
    config.shuffle_seed = number("shuffle-seed", &args.shuffle_seed)?;
    config.shuffle_block_size = optional("shuffle-block-size", args.shuffle_block_size.as_deref())?;
    config.num_canonical_nodes =
        optional("num-canonical-nodes", args.num_canonical_nodes.as_deref())?;
    config.batching_method = named(args.batching_method.parse())?;
    config.sampling_method = named(args.sampling_method.parse())?;
    config.sampling_granularity = number("sampling-granularity", &args.sampling_granularity)?;
    config.partition_algo = named(args.partition_algo.parse())?;
    config.resolve()?;
    Ok(config)
}

/// Unwraps a parsed name. The command line parser has already checked it.
fn named<T>(parsed: Result<T, OrderError>) -> Result<T, Stop> {
    Ok(parsed?)
}

fn optional(option: &'static str, typed: Option<&str>) -> Result<Option<u64>, CliError> {
    typed.map(|text| number(option, text)).transpose()
}

/// Parses a whole number.
pub fn number(option: &'static str, typed: &str) -> Result<u64, CliError> {
    typed.parse().map_err(|_| {
        CliError::option(
            option,
            format!("`{}` is not a whole number", escape(typed)),
            "write digits only, as in 1000",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardmill_order::ShuffleAlgo;

    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        world: WorldArgs,
    }

    fn typed(words: &[&str]) -> WorldArgs {
        Line::try_parse_from(std::iter::once(&"test").chain(words))
            .unwrap_or_else(|error| panic!("{error}"))
            .world
    }

    #[test]
    fn a_stream_has_at_most_one_weight() {
        for (text, location, weight) in [
            ("a", "a", Weight::Unspecified),
            ("a,proportion=0.3", "a", Weight::Proportion(0.3)),
            ("a,b,repeat=2", "a,b", Weight::Repeat(2.0)),
            ("a,choose=100", "a", Weight::Choose(100)),
            ("a,b", "a,b", Weight::Unspecified),
            ("a,b/c=d", "a,b/c=d", Weight::Unspecified),
        ] {
            let location = location.to_owned();
            assert_eq!(stream(text).unwrap(), Stream { location, weight }, "{text}");
        }
        for bad in ["a,repeats=2", "a,repeat=", "a,choose=1.5", "a,choose=-1"] {
            assert!(stream(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_order() {
        let stream = StreamConfig::new(&[7, 8]);
        let config = epoch_config(&typed(&["a"]), vec![stream.clone()]).unwrap();
        assert_eq!(config, EpochConfig::new(vec![stream], 32, World::SINGLE));
    }

    #[test]
    fn every_option_arrives() {
        let args = typed(&[
            "a",
            "b",
            "--nodes",
            "2",
            "--ranks-per-node",
            "8",
            "--workers-per-rank",
            "3",
            "--batch-size",
            "5",
            "--replication",
            "4",
            "--epoch-size",
            "900",
            "--no-shuffle",
            "--shuffle",
            "--shuffle-algo",
            "py2s",
            "--shuffle-seed",
            "7",
            "--shuffle-block-size",
            "1000",
            "--num-canonical-nodes",
            "16",
            "--batching-method",
            "per_stream",
            "--sampling-method",
            "fixed",
            "--sampling-granularity",
            "6",
            "--partition-algo",
            "orig",
        ]);
        let config = epoch_config(&args, Vec::new()).unwrap();
        let world = config.world;
        assert_eq!(
            (world.nodes, world.ranks_per_node, world.workers_per_rank),
            (2, 8, 3)
        );
        assert_eq!((config.batch_size, config.replication), (5, Some(4)));
        assert_eq!((config.epoch_size, config.shuffle), (Some(900), true));
        assert_eq!(
            (config.shuffle_algo, config.shuffle_seed),
            (ShuffleAlgo::Py2s, 7)
        );
        assert_eq!(config.shuffle_block_size, Some(1000));
        assert_eq!(config.num_canonical_nodes, Some(16));
        assert_eq!(config.batching_method.name(), "per_stream");
        assert_eq!(config.sampling_method.name(), "fixed");
        assert_eq!(config.sampling_granularity, 6);
        assert_eq!(config.partition_algo.name(), "orig");
        assert_eq!(streams(&args).unwrap().len(), 2);
        assert!(
            !epoch_config(&typed(&["a", "--shuffle", "--no-shuffle"]), Vec::new())
                .unwrap()
                .shuffle
        );
    }

    #[test]
    fn numbers_are_whole() {
        for bad in ["", "-1", "1.5", "x", "99999999999999999999"] {
            assert!(
                epoch_config(&typed(&["a", "--nodes", bad]), Vec::new()).is_err(),
                "{bad}"
            );
        }
        assert!(epoch_config(&typed(&["a", "--nodes", "0"]), Vec::new()).is_err());
    }
}
