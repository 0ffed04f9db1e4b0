//! Compares orders with the original, sample by sample. `testdata/generate.py` wrote the expected files.

use serde::Deserialize as _;
use serde_json::Value;
use shardmill_core::Error;
use shardmill_order::{Request, orders};

/// What is written in the wrong type is refused as what is written with a wrong value is.
fn order_of(value: &Value) -> Result<Vec<Vec<Vec<u64>>>, String> {
    let request = Request::deserialize(value).map_err(|error| error.to_string())?;
    let found: Result<_, Error> = request.config().and_then(|config| orders(&config));
    found.map_err(|error| error.to_string())
}

#[test]
fn orders_match_mosaicml_golden_data() {
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
