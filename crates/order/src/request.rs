//! A configuration in serialized form: a line for `shardmill order --json`, or a golden order of the tests.

use std::sync::Arc;

use shardmill_core::Error;

use serde::Deserialize;

use crate::config::{EpochConfig, State, StreamConfig, Weight, World};
use crate::error::OrderProblem;
use crate::mixture::Mixture;

/// An [`EpochConfig`] for JSON and similar formats, whose options may be absent or null.
///
/// Required are `streams` (each with `shards`, and at most one of `proportion`, `repeat`, `choose`), `batch_size`,
/// `nodes`, `ranks_per_node` and `workers_per_rank`. The other options have the names of the fields of
/// [`EpochConfig`]; `resume` has the five fields of a state. Unknown keys are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    streams: Vec<Stream>,
    epoch_size: Option<u64>,
    num_canonical_nodes: Option<u64>,
    replication: Option<u64>,
    batch_size: u64,
    epoch: Option<u64>,
    resume: Option<State>,
    #[serde(flatten)]
    world: World,
    #[serde(flatten)]
    choices: Choices,
}

/// The options that have a default value.
#[derive(Clone, Debug, Deserialize)]
struct Choices {
    shuffle: Option<bool>,
    shuffle_algo: Option<String>,
    shuffle_seed: Option<u64>,
    shuffle_block_size: Option<u64>,
    sampling_method: Option<String>,
    sampling_granularity: Option<u64>,
    partition_algo: Option<String>,
    batching_method: Option<String>,
    mixture: Option<Mixture>,
}

#[derive(Clone, Debug, Deserialize)]
struct Stream {
    shards: Vec<u64>,
    proportion: Option<f64>,
    repeat: Option<f64>,
    choose: Option<u64>,
}

impl Request {
    /// Returns the configuration, with defaults for absent options.
    ///
    /// # Errors
    /// `InvalidInput` for a stream with several weights and for unknown names. [`Epoch::new`](crate::Epoch::new)
    /// validates everything else.
    pub fn config(self) -> Result<EpochConfig, Error> {
        let streams: Result<Vec<_>, _> = self.streams.into_iter().enumerate().map(stream).collect();
        let choices = self.choices;
        let mut config = EpochConfig::new(streams?, self.batch_size, self.world);
        config.epoch_size = self.epoch_size;
        config.num_canonical_nodes = self.num_canonical_nodes;
        config.replication = self.replication;
        config.epoch = self.epoch.unwrap_or(config.epoch);
        config.resume = self.resume;
        config.shuffle.enabled = choices.shuffle.unwrap_or(config.shuffle.enabled);
        config.shuffle.seed = choices.shuffle_seed.unwrap_or(config.shuffle.seed);
        config.shuffle.block_size = choices.shuffle_block_size;
        config.sampling.granularity = choices
            .sampling_granularity
            .unwrap_or(config.sampling.granularity);
        config.sampling.mixture = choices.mixture.map(Arc::new);
        if let Some(name) = choices.shuffle_algo {
            config.shuffle.algo = name.parse()?;
        }
        if let Some(name) = choices.sampling_method {
            config.sampling.method = name.parse()?;
        }
        if let Some(name) = choices.partition_algo {
            config.partition_algo = name.parse()?;
        }
        if let Some(name) = choices.batching_method {
            config.batching_method = name.parse()?;
        }
        Ok(config)
    }
}

fn stream((number, stream): (usize, Stream)) -> Result<StreamConfig, Error> {
    let weights = [
        stream.proportion.map(Weight::Proportion),
        stream.repeat.map(Weight::Repeat),
        stream.choose.map(Weight::Choose),
    ];
    let mut given = weights.into_iter().flatten();
    let weight = given.next().unwrap_or_default();
    if given.next().is_some() {
        return Err(OrderProblem::Weights
            .of_stream(number, "more than one of proportion, repeat and choose"));
    }
    Ok(StreamConfig {
        shards: stream.shards.into(),
        weight,
        deleted: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: serde_json::Value) -> Result<EpochConfig, String> {
        let request: Request = serde_json::from_value(value).map_err(|error| error.to_string())?;
        request.config().map_err(|error| error.to_string())
    }

    #[test]
    fn omitted_fields_have_defaults() {
        let min = json!({
            "streams": [{"shards": [4, 3]}], "batch_size": 2, "nodes": 1, "ranks_per_node": 1, "workers_per_rank": 1,
            "id": 7, "other": {},
        });
        let expected = EpochConfig::new(vec![StreamConfig::new(&[4, 3])], 2, World::SINGLE);
        assert_eq!(config(min.clone()).unwrap(), expected);
        let mut nulls = min.clone();
        for key in [
            "epoch_size",
            "num_canonical_nodes",
            "shuffle_block_size",
            "replication",
            "shuffle",
            "shuffle_algo",
            "shuffle_seed",
            "sampling_method",
            "sampling_granularity",
            "partition_algo",
            "batching_method",
            "epoch",
            "resume",
        ] {
            nulls[key] = serde_json::Value::Null;
        }
        assert_eq!(config(nulls).unwrap(), expected);
        for key in [
            "streams",
            "batch_size",
            "nodes",
            "ranks_per_node",
            "workers_per_rank",
        ] {
            let mut missing = min.clone();
            missing.as_object_mut().unwrap().remove(key);
            assert_eq!(
                config(missing).unwrap_err(),
                format!("missing field `{key}`")
            );
        }
    }

    #[test]
    fn stream_weights_are_mutually_exclusive() {
        let weighted = |stream: serde_json::Value| {
            config(json!({
                "streams": [{"shards": [4]}, stream], "batch_size": 2, "nodes": 1, "ranks_per_node": 1, "workers_per_rank": 1,
            }))
        };
        let repeated = weighted(json!({"shards": [4], "repeat": 2, "choose": null})).unwrap();
        assert_eq!(repeated.streams[1].weight, Weight::Repeat(2.0));
        let error = weighted(json!({"shards": [4], "repeat": 2, "choose": 1})).unwrap_err();
        assert_eq!(error, "more than one of proportion, repeat and choose");
        for bad in [
            json!({"shards": [4], "choose": 1.5}),
            json!({"shards": [-4]}),
            json!({"shards": "4"}),
            json!({}),
        ] {
            assert!(weighted(bad.clone()).is_err(), "{bad}");
        }
    }
}
