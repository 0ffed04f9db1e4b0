//! The number of connections, and the requests they are used for.

use super::*;
use crate::RequestOptions;

const OBJECT: usize = 4 << 20;
const OBJECTS: usize = 40;

/// 40 shards of 4 MiB over connections of 50 MB/s with 30 ms of latency.
#[test]
fn many_objects_are_fetched_over_parallel_connections() {
    let bytes = contents(3, OBJECT);
    let objects = (0..OBJECTS).map(|at| (format!("data/{at}"), bytes.clone()));
    let settings = Settings {
        latency: Duration::from_millis(30),
        bytes_per_second: Some(50_000_000),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::memory("bucket", objects), settings).unwrap();
    let remote = alone(&options_for(&server));
    for round in ["cold", "warm"] {
        server.forget_counts();
        let began = Instant::now();
        let (sender, receiver) = mpsc::channel();
        let _fetching: Vec<_> = (0..OBJECTS)
            .map(|at| {
                let sender = sender.clone();
                remote.fetch(&at.to_string(), OBJECT as u64, move |result| {
                    sender.send(result).unwrap();
                })
            })
            .collect();
        let mut first = None;
        for _ in 0..OBJECTS {
            let read = receiver.recv_timeout(LONG).unwrap().unwrap();
            first.get_or_insert_with(|| began.elapsed());
            assert!(read == bytes);
        }
        let counts = server.counts();
        println!(
            "{round}: {:.3?} for {OBJECTS} objects of 4 MiB, the first after {:.3?}; {} requests, most at once {}, mean {:.1}, {} new connections",
            began.elapsed(),
            first.unwrap_or_default(),
            counts.requests,
            counts.load.max_transfers,
            counts.load.mean_transfers(),
            counts.load.connections,
        );
        assert_eq!(counts.requests, OBJECTS as u64);
        assert!(
            counts.load.max_transfers >= 8,
            "{}",
            counts.load.max_transfers
        );
    }
}

#[test]
fn connection_limit_is_respected() {
    let objects = (0..OBJECTS).map(|at| (format!("data/{at}"), contents(3, 1000)));
    let settings = Settings {
        latency: Duration::from_millis(2),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::memory("bucket", objects), settings).unwrap();
    let options = RemoteOptions {
        request: RequestOptions {
            connections: 5,
            ..quick(&server).request
        },
        ..quick(&server)
    };
    let remote = alone(&options);
    let wanted: Vec<_> = (0..OBJECTS).map(|at| (at.to_string(), 0..10)).collect();
    assert!(remote.read_ranges(&wanted).iter().all(Result::is_ok));
    // Short requests have twice as many.
    assert_eq!(remote.stats().max_connections, 10);
    // The server may count an answer as in flight slightly longer than the client, once per connection.
    let seen = server.counts().load.max_transfers;
    assert!((1..=20).contains(&seen), "{seen}");
}
