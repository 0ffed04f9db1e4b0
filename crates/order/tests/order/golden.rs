//! Compares orders with the original, sample by sample. `testdata/generate.py` wrote the expected files.

use serde::Deserialize as _;
use serde_json::Value;
use shardmill_order::reference::shuffle;
use shardmill_order::shuffle::ShuffleConfig;
use shardmill_order::units::{Sampling, ShardTable, Units};
use shardmill_order::{OrderError, Request, ShuffleAlgo, orders};

/// What is written in the wrong type is refused as what is written with a wrong value is.
fn order_of(value: &Value) -> Result<Vec<Vec<Vec<u64>>>, String> {
    let request = Request::deserialize(value).map_err(|error| error.to_string())?;
    let found: Result<_, OrderError> = request.config().and_then(|config| orders(&config));
    found.map_err(|error| error.to_string())
}

#[test]
fn every_golden_order_is_equal() {
    let text = include_str!("../../testdata/orders.json");
    let all: Vec<Value> = serde_json::from_str(text).unwrap();
    let (mut equal, mut refused) = (0, 0);
    for value in &all {
        let found = order_of(value);
        match (&value["orders"], found) {
            (Value::Null, Err(_)) => refused += 1,
            (Value::Null, Ok(_)) => panic!("{} is accepted, the original refuses it", value["id"]),
            (expected, Ok(found)) => {
                let expected: Vec<Vec<Vec<u64>>> =
                    serde_json::from_value(expected.clone()).unwrap();
                assert!(found == expected, "configuration {} differs", value["id"]);
                equal += 1;
            }
            (_, Err(error)) => panic!("{} is refused: {error}", value["id"]),
        }
    }
    assert!(
        equal >= 180 && refused >= 60,
        "{equal} equal, {refused} refused"
    );
}

/// The order of 50,377 samples in 51 shards over 4 canonical nodes begins as the original's; the whole of it is
/// compared through the reference, which the windows are compared with in turn.
#[test]
fn long_orders_begin_alike() {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../testdata/large.json")).unwrap();
    let mut sizes = vec![1000; 50];
    sizes.push(377);
    let table = ShardTable::from_streams(&[&sizes]);
    let sampling = Sampling {
        seed: 9176,
        epoch: 2,
        epoch_counts: true,
        epoch_members: true,
        granularity: 1,
    };
    let units = Units::resample(&table, &[(0..sizes.len(), 50_377)], &sampling).unwrap();
    for value in &all {
        let algo: ShuffleAlgo = value["algo"].as_str().unwrap().parse().unwrap();
        let config = ShuffleConfig {
            algo,
            canonical_nodes: 4,
            seed: 9176,
            epoch: 2,
            block: 5000,
        };
        let found = shuffle(&units, &config).unwrap().unwrap();
        let first: Vec<u64> = serde_json::from_value(value["first"].clone()).unwrap();
        assert_eq!(found[..6], first, "{algo}");
        assert_eq!(found.len(), 50_377);
        let digest: u64 = found.iter().fold(0xcbf2_9ce4_8422_2325, |digest, id| {
            (digest ^ id).wrapping_mul(0x0000_0100_0000_01b3)
        });
        assert_eq!(
            format!("{digest:016x}"),
            value["fnv"].as_str().unwrap(),
            "{algo}"
        );
    }
}
