//! Compares orders with mosaicml-streaming 0.13.0, worker by worker. The expected orders are in `fixtures/`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use shardmill_mds::{HashAlgo, Hasher};
use shardmill_order::{Request, orders};

fn order_of(line: &str) -> Result<Vec<Vec<Vec<u64>>>, String> {
    let request: Request = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let found = request.config().and_then(|config| orders(&config));
    found.map_err(|error| error.to_string())
}

/// Computes the digest that the README of the fixtures describes.
fn digest(orders: &[Vec<Vec<u64>>]) -> String {
    let mut hasher = Hasher::new(HashAlgo::Sha256);
    for worker in orders.iter().flatten() {
        hasher.update(&u64::try_from(worker.len()).unwrap().to_le_bytes());
        for id in worker {
            hasher.update(&id.to_le_bytes());
        }
    }
    hasher.finish_hex()
}

#[test]
fn sample_orders_match_mosaicml_streaming() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/order-mosaicml-streaming-0.13.0/orders.jsonl");
    let text = fs::read_to_string(path).unwrap();
    let (mut whole, mut digests, mut refused, mut ids) = (0, 0, 0, 0);
    for line in text.lines() {
        let expected: Value = serde_json::from_str(line).unwrap();
        let id = &expected["id"];
        let found = match order_of(line) {
            Ok(found) => found,
            Err(_) if expected["refused"] == true => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{id} is refused: {error}"),
        };
        assert_ne!(
            expected["refused"], true,
            "{id} is accepted, the original refuses it"
        );
        let length: usize = found.iter().flatten().map(Vec::len).sum();
        ids += length;
        if expected["orders"].is_null() {
            assert_eq!(expected["ids"], length, "{id}");
            assert_eq!(expected["sha256"], digest(&found), "{id}");
            digests += 1;
        } else {
            let expected: Vec<Vec<Vec<u64>>> =
                serde_json::from_value(expected["orders"].clone()).unwrap();
            assert!(found == expected, "{id} differs");
            whole += 1;
        }
    }
    // The test must fail if the file is truncated.
    assert!(
        whole >= 100 && digests >= 150 && refused >= 60 && ids >= 15_000_000,
        "{whole} orders, {digests} digests, {refused} refused, {ids} ids"
    );
}
