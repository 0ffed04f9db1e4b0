//! Tests deleted samples and the state of a run.

use crate::OrderIdentity;
use shardmill_dataset::LiveSamples;
use shardmill_order::{EpochConfig, StreamConfig, World};

fn fingerprint(deleted: &[(u64, u64)]) -> String {
    let live = LiveSamples::without(40, deleted.iter().copied()).unwrap();
    let sizes: Vec<u64> = (0..4)
        .map(|shard| live.count_in(&(10 * shard..10 * shard + 10)))
        .collect();
    let stream = StreamConfig::new(&sizes).with_deleted(live.digest());
    let config = EpochConfig::new(vec![stream], 4, World::SINGLE);
    OrderIdentity::new(&config, Some(1))
        .unwrap()
        .fingerprint()
        .to_string()
}

#[test]
fn fingerprint_depends_on_deleted_samples() {
    let first = fingerprint(&[(3, 4)]);
    assert_eq!(first, fingerprint(&[(3, 4)]));
    // As many in each shard, but others.
    assert_ne!(first, fingerprint(&[(5, 6)]));
    assert_ne!(first, fingerprint(&[(3, 4), (17, 18)]));
    // Without deleted samples it is what it always was.
    let plain = StreamConfig::new(&[10, 10, 10, 10]);
    let config = EpochConfig::new(vec![plain], 4, World::SINGLE);
    let plain = OrderIdentity::new(&config, Some(1))
        .unwrap()
        .fingerprint()
        .to_string();
    assert_eq!(plain, fingerprint(&[]));
    assert_ne!(plain, first);
}
