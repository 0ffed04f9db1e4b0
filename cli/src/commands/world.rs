//! The streams, the ranks and the order options of commands that create an order.

use std::path::Path;
use std::sync::Arc;

use shardmill_core::Error;
use shardmill_order::{
    EpochConfig, Mixture, SamplingOptions, ShuffleOptions, StreamConfig, Weight, World,
};
use shardmill_reader::MAX_STATE_BYTES;
use shardmill_storage::FileHandle;

use super::samples::SampleChoice;
use crate::args::{Stream, WorldArgs};
use crate::error::Stop;

/// Returns the streams: the named datasets, and those of `--stream`.
pub fn streams(args: &WorldArgs) -> Vec<Stream> {
    let plain = args.streams.datasets.iter().map(|location| Stream {
        location: location.clone(),
        weight: Weight::Unspecified,
        view: args.streams.view.clone(),
    });
    plain.chain(args.streams.streams.iter().cloned()).collect()
}

/// Returns which samples of a stream are read.
pub fn samples(args: &WorldArgs, stream: &Stream) -> Result<SampleChoice, Stop> {
    if args.streams.view.is_some() && args.streams.datasets.len() > 1 {
        let hint = "name the view of each dataset: --stream DATASET,view=FILE";
        let fact = "a view is of one dataset, and these are several";
        return Err(Error::option_hint("config-view", fact, hint).into());
    }
    SampleChoice::of_view(
        stream.view.as_ref(),
        args.streams.with_deleted,
        &args.storage,
    )
}

/// Returns the typed configuration of an order, for epoch 0. Values that depend on the streams are checked when the
/// order is created.
pub fn epoch_config(args: &WorldArgs, streams: Vec<StreamConfig>) -> Result<EpochConfig, Stop> {
    let (ranks, order) = (&args.ranks, &args.order);
    let world = World {
        nodes: ranks.nodes,
        ranks_per_node: ranks.ranks_per_node,
        workers_per_rank: ranks.workers_per_rank,
    };
    let config = EpochConfig {
        replication: ranks.replication,
        epoch_size: order.epoch_size,
        shuffle: ShuffleOptions {
            enabled: order.shuffle && !order.no_shuffle,
            algo: order.shuffle_algo,
            seed: order.shuffle_seed,
            block_size: order.shuffle_block_size,
        },
        num_canonical_nodes: order.num_canonical_nodes,
        batching_method: order.batching_method,
        sampling: SamplingOptions {
            method: order.sampling_method,
            granularity: order.sampling_granularity,
            mixture: order.mixture.as_deref().map(mixture).transpose()?,
        },
        partition_algo: order.partition_algo,
        ..EpochConfig::new(streams, ranks.batch_size, world)
    };
    config.resolve()?;
    Ok(config)
}

/// Reads a mixture from a file.
fn mixture(path: &Path) -> Result<Arc<Mixture>, Stop> {
    let bytes = FileHandle::open(path)?.read_all(MAX_STATE_BYTES)?;
    let mixture = Mixture::from_json(&bytes);
    Ok(Arc::new(mixture.map_err(|error| {
        error.about(path.display().to_string())
    })?))
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
    fn default_options_give_the_default_epoch_config() {
        let stream = StreamConfig::new(&[7, 8]);
        let config = epoch_config(&typed(&["a"]), vec![stream.clone()]).unwrap();
        assert_eq!(config, EpochConfig::new(vec![stream], 32, World::SINGLE));
    }

    #[test]
    fn all_options_reach_the_epoch_config() {
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
        assert_eq!(
            (config.epoch_size, config.shuffle.enabled),
            (Some(900), true)
        );
        assert_eq!(
            (config.shuffle.algo, config.shuffle.seed),
            (ShuffleAlgo::Py2s, 7)
        );
        assert_eq!(config.shuffle.block_size, Some(1000));
        assert_eq!(config.num_canonical_nodes, Some(16));
        assert_eq!(config.batching_method.name(), "per_stream");
        assert_eq!(config.sampling.method.name(), "fixed");
        assert_eq!(config.sampling.granularity, 6);
        assert_eq!(config.partition_algo.name(), "orig");
        assert_eq!(streams(&args).len(), 2);
        assert!(
            !epoch_config(&typed(&["a", "--shuffle", "--no-shuffle"]), Vec::new())
                .unwrap()
                .shuffle
                .enabled
        );
    }

    #[test]
    fn node_count_must_be_a_positive_integer() {
        for bad in ["", "-1", "1.5", "x", "99999999999999999999"] {
            assert!(
                Line::try_parse_from(["test", "a", "--nodes", bad]).is_err(),
                "{bad}"
            );
        }
        assert!(epoch_config(&typed(&["a", "--nodes", "0"]), Vec::new()).is_err());
    }
}
