//! Configurations from JSON, for the example and for the tests; the command line has its own way.

use serde_json::Value;
use shardmill_order::{EpochConfig, State, StreamConfig, Weight, World};

/// Whatever is wrong with a configuration.
pub type Failure = Box<dyn std::error::Error>;

fn integer(value: &Value, name: &str) -> Result<Option<u64>, Failure> {
    match &value[name] {
        Value::Null => Ok(None),
        found => Ok(Some(
            found.as_u64().ok_or_else(|| format!("{name} is {found}"))?,
        )),
    }
}

fn number(value: &Value, name: &str) -> Result<Option<f64>, Failure> {
    match &value[name] {
        Value::Null => Ok(None),
        found => Ok(Some(
            found.as_f64().ok_or_else(|| format!("{name} is {found}"))?,
        )),
    }
}

fn stream(value: &Value) -> Result<StreamConfig, Failure> {
    let shards = value["shards"].as_array().ok_or("shards are missing")?;
    let sizes: Option<Vec<u64>> = shards.iter().map(Value::as_u64).collect();
    let weights = [
        number(value, "proportion")?.map(Weight::Proportion),
        number(value, "repeat")?.map(Weight::Repeat),
        integer(value, "choose")?.map(Weight::Choose),
    ];
    let mut given = weights.into_iter().flatten();
    let weight = given.next().unwrap_or_default();
    if given.next().is_some() {
        return Err("more than one of proportion, repeat and choose".into());
    }
    Ok(StreamConfig::new(&sizes.ok_or("shards are not sizes")?).with_weight(weight))
}

/// The configuration that one line of `shardmill order --json` describes.
pub fn config(value: &Value) -> Result<EpochConfig, Failure> {
    let need =
        |name| integer(value, name)?.ok_or_else(|| Failure::from(format!("{name} is missing")));
    let world = World {
        nodes: need("nodes")?,
        ranks_per_node: need("ranks_per_node")?,
        workers_per_rank: need("workers_per_rank")?,
    };
    let streams = value["streams"].as_array().ok_or("streams are missing")?;
    let streams: Result<Vec<_>, _> = streams.iter().map(stream).collect();
    let mut config = EpochConfig::new(streams?, need("batch_size")?, world);
    config.epoch_size = integer(value, "epoch_size")?;
    config.num_canonical_nodes = integer(value, "num_canonical_nodes")?;
    config.shuffle_block_size = integer(value, "shuffle_block_size")?;
    config.replication = integer(value, "replication")?;
    config.epoch = integer(value, "epoch")?.unwrap_or(0);
    config.shuffle = value["shuffle"].as_bool().unwrap_or(config.shuffle);
    config.shuffle_seed = integer(value, "shuffle_seed")?.unwrap_or(config.shuffle_seed);
    config.sampling_granularity =
        integer(value, "sampling_granularity")?.unwrap_or(config.sampling_granularity);
    if let Some(name) = value["shuffle_algo"].as_str() {
        config.shuffle_algo = name.parse()?;
    }
    if let Some(name) = value["sampling_method"].as_str() {
        config.sampling_method = name.parse()?;
    }
    if let Some(name) = value["partition_algo"].as_str() {
        config.partition_algo = name.parse()?;
    }
    if let Some(name) = value["batching_method"].as_str() {
        config.batching_method = name.parse()?;
    }
    let state = &value["resume"];
    if !state.is_null() {
        let need = |name| {
            integer(state, name)?.ok_or_else(|| Failure::from(format!("resume has no {name}")))
        };
        config.resume = Some(State {
            epoch: need("epoch")?,
            sample_in_epoch: need("sample_in_epoch")?,
            num_canonical_nodes: integer(state, "num_canonical_nodes")?,
            shuffle_seed: need("shuffle_seed")?,
            initial_physical_nodes: integer(state, "initial_physical_nodes")?,
        });
    }
    Ok(config)
}
