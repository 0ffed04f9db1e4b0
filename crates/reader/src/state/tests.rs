use proptest::prelude::*;
use shardmill_order::{BatchingMethod, Epoch, ShuffleAlgo, StreamConfig, Weight, World};

use shardmill_core::{Error, ErrorKind};

use super::json::MAX_COUNT;
use super::*;

const SOUND: &str = r#"{"epoch": 3, "sample_in_epoch": 128, "num_canonical_nodes": 2, "shuffle_seed": 9176, "initial_physical_nodes": 2, "shardmill": {"version": 1, "fingerprint": "00112233445566778899aabbccddeeff"}}"#;

fn config() -> EpochConfig {
    let streams = vec![
        StreamConfig::new(&[40, 0, 33]),
        StreamConfig::new(&[120, 77]),
    ];
    let mut config = EpochConfig::new(streams, 4, World::SINGLE);
    config.shuffle.enabled = true;
    config
}

fn shown(error: &Error) -> String {
    let hint = error
        .hint()
        .map_or(String::new(), |hint| format!("; {hint}"));
    let object = error.object().unwrap_or_default();
    format!("error[{}]: {object}: {error}{hint}", error.id())
}

fn refused(bytes: &[u8]) -> String {
    shown(&RunState::parse(bytes).unwrap_err())
}

#[test]
fn valid_state_round_trips() {
    let state = RunState::parse(SOUND.as_bytes()).unwrap();
    assert_eq!(state.state.sample_in_epoch, 128);
    assert_eq!(state.state.initial_physical_nodes, Some(2));
    assert_eq!(
        state.fingerprint().unwrap().to_string(),
        "00112233445566778899aabbccddeeff"
    );
    assert_eq!(state.render(), SOUND);
}

#[test]
fn mosaicml_states_are_read() {
    for (text, canonical, initial) in [
        (
            r#"{"epoch":0,"sample_in_epoch":0,"num_canonical_nodes":64,"shuffle_seed":0,"initial_physical_nodes":1}"#,
            Some(64),
            Some(1),
        ),
        (
            r#"{"epoch":0,"sample_in_epoch":0,"num_canonical_nodes":64,"shuffle_seed":0,"initial_physical_nodes":null}"#,
            Some(64),
            None,
        ),
        (
            r#" {"shuffle_seed":0,"num_canonical_nodes":null,"sample_in_epoch":0,"epoch":0} "#,
            None,
            None,
        ),
        // A state from before the first epoch.
        (
            r#"{"epoch":-1,"sample_in_epoch":0,"num_canonical_nodes":64,"shuffle_seed":0,"initial_physical_nodes":1}"#,
            Some(64),
            Some(1),
        ),
        // A state with keys that later versions may add.
        (
            r#"{"epoch":0,"sample_in_epoch":0,"num_canonical_nodes":1,"shuffle_seed":0,"more":{"a":[1.5,{"b":null}]},"x":-1}"#,
            Some(1),
            None,
        ),
        (
            r#"{"epoch":0,"sample_in_epoch":0,"num_canonical_nodes":1,"shuffle_seed":0,"shardmill":{"version":1,"fingerprint":"00112233445566778899aabbccddeeff","skipped":[]}}"#,
            Some(1),
            None,
        ),
    ] {
        let found = RunState::parse(text.as_bytes()).unwrap().state;
        let expected = State {
            epoch: 0,
            sample_in_epoch: 0,
            num_canonical_nodes: canonical,
            shuffle_seed: 0,
            initial_physical_nodes: initial,
        };
        assert_eq!(found, expected, "{text}");
    }
}

/// Returns a valid state in which one text is replaced by another.
fn with(from: &str, to: &str) -> String {
    let text = SOUND.replacen(from, to, 1);
    assert_ne!(text, SOUND, "{from}");
    text
}

#[test]
fn invalid_states_have_specific_errors() {
    let nested = with(
        r#"{"epoch""#,
        &format!(r#"{{"x": {}, "epoch""#, "[".repeat(30_000)),
    );
    let cases: Vec<(String, &str)> = vec![
        (
            String::new(),
            "error[state-format]: state: it is not the JSON of a state: EOF while parsing",
        ),
        (
            " \n".into(),
            "error[state-format]: state: it is not the JSON of a state: EOF while parsing",
        ),
        (
            "null".into(),
            "error[state-format]: state: the state is null, not an object",
        ),
        (
            "[]".into(),
            "error[state-format]: state: the state is a list, not an object",
        ),
        (
            "3".into(),
            "error[state-format]: state: the state is 3, not an object",
        ),
        (
            "\"{}\"".into(),
            "error[state-format]: state: the state is `{}`, not an object",
        ),
        (
            "{}".into(),
            "error[state-format]: state: it has no sample_in_epoch",
        ),
        (
            "<html></html>".into(),
            "error[state-format]: state: it is not the JSON of a state: expected value",
        ),
        (
            "\u{feff}{}".into(),
            "error[state-format]: state: it is not the JSON of a state: expected value",
        ),
        (
            SOUND[..SOUND.len() - 1].into(),
            "error[state-format]: state: it is not the JSON of a state: EOF while parsing",
        ),
        (
            format!("{SOUND}{SOUND}"),
            "error[state-format]: state: it is not the JSON of a state: trailing characters",
        ),
        (
            format!("{SOUND}\0"),
            "error[state-format]: state: it is not the JSON of a state: trailing characters",
        ),
        (
            with(r#""epoch": 3, "#, ""),
            "error[state-format]: state: it has no epoch",
        ),
        (
            with(r#""num_canonical_nodes": 2, "#, ""),
            "error[state-format]: state: it has no num_canonical_nodes",
        ),
        (
            with(r#""shuffle_seed": 9176, "#, ""),
            "error[state-format]: state: it has no shuffle_seed",
        ),
        (
            with(r#""epoch": 3"#, r#""epoch": 3, "epoch": 3"#),
            "error[state-format]: state: it is not the JSON of a state: the key `epoch` occurs twice",
        ),
        (
            with(r#""epoch": 3"#, r#""x": 3, "\u0078": 4, "epoch": 3"#),
            "error[state-format]: state: it is not the JSON of a state: the key `x` occurs twice",
        ),
        (
            with(r#""epoch": 3"#, r#""x": [{"y": 1, "y": 1}], "epoch": 3"#),
            "error[state-format]: state: it is not the JSON of a state: the key `y` occurs twice",
        ),
        (
            with(r#""version": 1"#, r#""version": 1, "version": 1"#),
            "error[state-format]: state: it is not the JSON of a state: the key `version` occurs twice",
        ),
        (
            with(r#""epoch": 3"#, r#""epoch": -1"#),
            "error[state-format]: state: epoch is -1, not a whole number from 0 on",
        ),
        (
            with("128", "-128"),
            "error[state-format]: state: sample_in_epoch is -128, not a whole number from 0 on",
        ),
        (
            with("128", "128.0"),
            "error[state-format]: state: sample_in_epoch is 128.0, not a whole number from 0 on",
        ),
        (
            with("128", "1e2"),
            "error[state-format]: state: sample_in_epoch is 100.0, not a whole number from 0 on",
        ),
        (
            with("128", "NaN"),
            "error[state-format]: state: it is not the JSON of a state: expected value",
        ),
        (
            with("128", "Infinity"),
            "error[state-format]: state: it is not the JSON of a state: expected value",
        ),
        (
            with("128", "1e999"),
            "error[state-format]: state: it is not the JSON of a state: number out of range",
        ),
        (
            with("128", "null"),
            "error[state-format]: state: sample_in_epoch is null, not a whole number from 0 on",
        ),
        (
            with("128", "true"),
            "error[state-format]: state: sample_in_epoch is true, not a whole number from 0 on",
        ),
        (
            with("128", "\"128\""),
            "error[state-format]: state: sample_in_epoch is `128`, not a whole number from 0 on",
        ),
        (
            with("128", "[128]"),
            "error[state-format]: state: sample_in_epoch is a list, not a whole number from 0 on",
        ),
        (
            with("128", "{}"),
            "error[state-format]: state: sample_in_epoch is an object, not a whole number from 0 on",
        ),
        (
            with("128", "0x80"),
            "error[state-format]: state: it is not the JSON of a state: expected `,` or `}`",
        ),
        (
            with("9176", "-9176"),
            "error[state-format]: state: shuffle_seed is -9176, not a whole number from 0 on",
        ),
        (
            with("9176", "18446744073709551616"),
            "error[state-format]: state: shuffle_seed is 1.8446744073709552e19, not a whole number from 0 on",
        ),
        (
            with(r#"nodes": 2, "sh"#, r#"nodes": 0, "sh"#),
            "error[state-format]: state: num_canonical_nodes is 0, not a number from 1 on, or null",
        ),
        (
            with(r#"nodes": 2, "sh"#, r#"nodes": 1.5, "sh"#),
            "error[state-format]: state: num_canonical_nodes is 1.5, not a number from 1 on, or null",
        ),
        (
            with(r#"physical_nodes": 2"#, r#"physical_nodes": 0"#),
            "error[state-format]: state: initial_physical_nodes is 0, not a number from 1 on, or null",
        ),
        (
            with(r#"physical_nodes": 2"#, r#"physical_nodes": "\u001b[2J""#),
            "error[state-format]: state: initial_physical_nodes is `\\u{1b}[2J`, not a number from 1 on, or null",
        ),
        (
            with("128", "9007199254740993"),
            "error[state-position]: state: sample_in_epoch is 9007199254740993, beyond 9007199254740992",
        ),
        (
            with(r#""epoch": 3"#, r#""epoch": 18446744073709551615"#),
            "error[state-position]: state: epoch is 18446744073709551615, beyond 9007199254740992",
        ),
        (
            with(r#""version": 1"#, r#""version": 2"#),
            "error[state-newer]: state: its version is 2, and the newest that is known is 1; read it with the version that wrote it, or a later one",
        ),
        // A newer version is reported first, whatever else the state contains.
        (
            r#"{"shardmill": {"version": 7}}"#.into(),
            "error[state-newer]: state: its version is 7, and the newest that is known is 1; read it with the version that wrote it, or a later one",
        ),
        (
            with(r#""version": 1"#, r#""version": 0"#),
            "error[state-format]: state: shardmill.version is 0, not a number from 1 on",
        ),
        (
            with(r#""version": 1"#, r#""version": "1""#),
            "error[state-format]: state: shardmill.version is `1`, not a number from 1 on",
        ),
        (
            with(r#""version": 1, "#, ""),
            "error[state-format]: state: it has no shardmill.version",
        ),
        (
            with(r#", "fingerprint": "00112233445566778899aabbccddeeff""#, ""),
            "error[state-format]: state: it has no shardmill.fingerprint",
        ),
        (
            with("00112233445566778899aabbccddeeff", "0011"),
            "error[state-format]: state: shardmill.fingerprint is `0011`, not 32 hexadecimal digits",
        ),
        (
            with(
                "00112233445566778899aabbccddeeff",
                "00112233445566778899AABBCCDDEEFF",
            ),
            "error[state-format]: state: shardmill.fingerprint is `00112233445566778899AABBCCDDEEFF`, not 32 hexadecimal digits",
        ),
        (
            with("00112233445566778899aabbccddeeff", &"é".repeat(100)),
            "error[state-format]: state: shardmill.fingerprint is `éééééééééééééééééééééééééééééééééééééééé…`, not 32 hexadecimal digits",
        ),
        (
            with("\"00112233445566778899aabbccddeeff\"", "17"),
            "error[state-format]: state: shardmill.fingerprint is 17, not 32 hexadecimal digits",
        ),
        (
            with(
                r#"{"version": 1, "fingerprint": "00112233445566778899aabbccddeeff"}"#,
                "null",
            ),
            "error[state-format]: state: shardmill is null, not an object",
        ),
        (
            nested,
            "error[state-format]: state: it is not the JSON of a state: recursion limit exceeded",
        ),
        (
            format!("{SOUND}{}", " ".repeat(64 << 10)),
            "error[state-size]: state: it has 65729 bytes, more than the 65536 of the longest state",
        ),
        (
            "(dp0\nVepoch\np1\nI0\ns.".into(),
            "error[state-pickle]: state: it is a pickle, which is not read because it could run code; store the dictionary that state_dict() returns as JSON",
        ),
        (
            "cposix\nsystem\n(S'id'\ntR.".into(),
            "error[state-pickle]: state: it is a pickle",
        ),
        (
            "PK\u{3}\u{4}archive/data.pkl".into(),
            "error[state-pickle]: state: it is a file of torch.save, or another zip archive",
        ),
    ];
    assert!(cases.len() >= 50);
    for (text, expected) in cases {
        let found = refused(text.as_bytes());
        assert!(
            found.starts_with(expected),
            "{:.200}:\n{found}\n{expected}",
            text
        );
    }
    for bytes in [
        &b"\x80\x04\x95}\x94."[..],
        b"\x80",
        b"}q\x00X\x05\x00\x00\x00epochq\x01K\x00s.",
    ] {
        assert!(refused(bytes).starts_with("error[state-pickle]"));
    }
    assert!(refused(b"{\"epoch\": \"\xff\"}").starts_with("error[state-format]"));
}

/// Returns the state of a run with an order, after a few steps.
fn state_of(config: &EpochConfig) -> RunState {
    let epoch = Epoch::new(config).unwrap();
    let identity = OrderIdentity::new(config, Some(epoch.resolved().canonical_nodes)).unwrap();
    RunState::new(epoch.state_after(3), identity)
}

#[test]
fn state_of_another_run_is_rejected_with_differences() {
    let state = state_of(&config());
    assert_eq!(state.resume(&config()).unwrap(), state.state);
    let fingerprint = state.fingerprint().unwrap();

    let mut other = config();
    other.streams.pop();
    let error = state.resume(&other).unwrap_err();
    let expected = OrderIdentity::new(&other, Some(1)).unwrap().fingerprint();
    assert_eq!(
        shown(&error),
        format!(
            "error[state-foreign]: state: it was made for the order {fingerprint}, and this run has the order {expected}: \
             epoch_size was 270 and is 73, samples was 270 and is 73, shard_sizes was cf46756d and is 6c967aaf, \
             shards was 5 and is 3, streams was 2 and is 1; \
             use the datasets, weights, shuffle, sampling and batching of the run that made it, or begin anew"
        )
    );
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let theirs = RunState {
        identity: None,
        ..state
    };
    assert_eq!(theirs.resume(&other).unwrap(), theirs.state);
}

#[test]
fn state_mismatch_error_lists_differences() {
    let changes: [(Change<'_>, &str); 6] = [
        (
            &|config| config.shuffle.enabled = false,
            "shuffle_algo was py1e and is none, shuffle_block_size was 2000000 and is 0",
        ),
        (
            &|config| config.shuffle.algo = ShuffleAlgo::Py1br,
            "shuffle_algo was py1e and is py1br",
        ),
        (
            &|config| config.shuffle.block_size = Some(300),
            "shuffle_block_size was 2000000 and is 300",
        ),
        (
            &|config| config.epoch_size = Some(100),
            "epoch_size was 270 and is 100",
        ),
        (
            &|config| config.batching_method = BatchingMethod::Stratified,
            "batching_method was random and is stratified",
        ),
        (
            // An increment appends a shard.
            &|config| config.streams[1] = StreamConfig::new(&[120, 77, 5]),
            "epoch_size was 270 and is 275, samples was 270 and is 275, shard_sizes was ",
        ),
    ];
    let mut config = config();
    config.num_canonical_nodes = Some(2);
    let state = state_of(&config);
    // The state goes through JSON, as in a checkpoint.
    let state = RunState::parse(state.render().as_bytes()).unwrap();
    for (change, expected) in changes {
        let mut other = config.clone();
        change(&mut other);
        let error = state.resume(&other).unwrap_err().to_string();
        assert!(error.contains(&format!(": {expected}")), "{error}");
    }
}

#[test]
fn state_without_order_is_rejected_with_both_fingerprints() {
    let state = RunState::parse(SOUND.as_bytes()).unwrap();
    let error = state.resume(&config()).unwrap_err();
    let expected = OrderIdentity::new(&config(), Some(2)).unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "it was made for the order 00112233445566778899aabbccddeeff, and this run has the order {}",
            expected.fingerprint()
        )
    );
}

#[test]
fn order_identity_round_trips() {
    let identity = OrderIdentity::new(&config(), Some(2)).unwrap();
    let text = identity.render();
    assert!(
        text.starts_with(&format!(
            r#"{{"version": 1, "fingerprint": "{}", "order": {{"batching_method": "random", "epoch_size": 270, "#,
            identity.fingerprint()
        )),
        "{text}"
    );
    // States of more than 4096 bytes are too long for MosaicML Streaming.
    assert!(text.len() < 600, "{text}");
    assert_eq!(OrderIdentity::parse(text.as_bytes()).unwrap(), identity);
    let damaged = text.replace(r#""order": {"#, r#""order": [{"#);
    let error = OrderIdentity::parse(damaged.as_bytes()).unwrap_err();
    assert_eq!(error.id(), "state-format");
}

type Change<'a> = &'a dyn Fn(&mut EpochConfig);

#[test]
fn fingerprint_depends_on_order_but_not_on_world() {
    let of = |change: Change<'_>| {
        let mut config = config();
        change(&mut config);
        OrderIdentity::new(&config, Some(2)).unwrap().fingerprint()
    };
    let same = of(&|_| {});
    let unchanged: [(&str, Change<'_>); 12] = [
        ("nodes", &|config| config.world.nodes = 4),
        ("ranks", &|config| config.world.ranks_per_node = 8),
        ("workers", &|config| config.world.workers_per_rank = 5),
        ("batch size", &|config| config.batch_size = 32),
        ("replication", &|config| config.replication = Some(1)),
        ("epoch", &|config| config.epoch = 7),
        ("seed", &|config| config.shuffle.seed = 7),
        ("canonical nodes", &|config| {
            config.num_canonical_nodes = Some(64)
        }),
        ("partition", &|config| {
            config.partition_algo = shardmill_order::PartitionAlgo::Orig
        }),
        ("the default block", &|config| {
            config.shuffle.block_size = Some(2_000_000)
        }),
        ("no epoch size", &|config| config.epoch_size = Some(0)),
        ("the default weight", &|config| {
            config.streams[0].weight = Weight::Repeat(1.0)
        }),
    ];
    for (what, change) in unchanged {
        assert_eq!(of(change), same, "{what}");
    }
    let changed: [(&str, Change<'_>); 13] = [
        ("nothing", &|_| {}),
        ("a size", &|config| {
            config.streams[1] = StreamConfig::new(&[121, 77])
        }),
        ("the order of sizes", &|config| {
            config.streams[1] = StreamConfig::new(&[77, 120])
        }),
        ("where streams end", &|config| {
            config.streams = vec![
                StreamConfig::new(&[40, 0]),
                StreamConfig::new(&[33, 120, 77]),
            ];
        }),
        ("a weight", &|config| {
            config.streams[0].weight = Weight::Repeat(2.0)
        }),
        ("the epoch size", &|config| config.epoch_size = Some(100)),
        ("no shuffle", &|config| config.shuffle.enabled = false),
        ("the shuffle", &|config| {
            config.shuffle.algo = ShuffleAlgo::Py1s
        }),
        ("the block", &|config| config.shuffle.block_size = Some(100)),
        ("sampling", &|config| {
            config.sampling.method = shardmill_order::SamplingMethod::Fixed
        }),
        ("granularity", &|config| config.sampling.granularity = 2),
        ("batching", &|config| {
            config.batching_method = BatchingMethod::Stratified
        }),
        ("batching by device", &|config| {
            config.batching_method = BatchingMethod::DevicePerStream
        }),
    ];
    let mut seen: Vec<Fingerprint> = Vec::new();
    for (what, change) in changed {
        let found = of(change);
        assert!(!seen.contains(&found), "{what}");
        seen.push(found);
    }
    // Batching methods that count in global batches depend on the world.
    for (method, by_world) in [
        (BatchingMethod::Stratified, false),
        (BatchingMethod::PerStream, false),
        (BatchingMethod::DevicePerStream, true),
    ] {
        let of = |ranks_per_node, batch_size| {
            of(&|config| {
                config.batching_method = method;
                config.world.ranks_per_node = ranks_per_node;
                config.batch_size = batch_size;
            })
        };
        assert_ne!(of(2, 8), of(2, 4), "{method}");
        assert_eq!(of(2, 8) != of(4, 4), by_world, "{method}");
    }
}

#[test]
fn oversized_state_file_is_rejected_before_reading() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("state.json");
    std::fs::write(&path, SOUND).unwrap();
    assert_eq!(RunState::load(&path).unwrap().render(), SOUND);
    std::fs::File::create(&path)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert_eq!(RunState::load(&path).unwrap_err().id(), "state-size");
    assert_eq!(
        RunState::load(&temp.path().join("none")).unwrap_err().id(),
        "not-found"
    );
    assert_eq!(
        RunState::load(temp.path()).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
}

proptest! {
    #[test]
    fn states_round_trip_through_json(
        epoch in 0..=MAX_COUNT,
        sample_in_epoch in 0..=MAX_COUNT,
        num_canonical_nodes in prop::option::of(1_u64..),
        shuffle_seed: u64,
        initial_physical_nodes in prop::option::of(1_u64..),
        granularity in prop::option::of(1_u64..),
    ) {
        let identity = granularity.map(|granularity| {
            let mut config = config();
            config.sampling.granularity = granularity;
            OrderIdentity::new(&config, num_canonical_nodes).unwrap()
        });
        let state = RunState {
            state: State { epoch, sample_in_epoch, num_canonical_nodes, shuffle_seed, initial_physical_nodes },
            identity,
            mixture: None,
        };
        let text = state.render();
        prop_assert_eq!(&RunState::parse(text.as_bytes()).unwrap(), &state);
        // The state is strict JSON, in any layout.
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let other = serde_json::to_vec_pretty(&value).unwrap();
        prop_assert_eq!(RunState::parse(&other).unwrap(), state);
    }

    #[test]
    fn damaged_states_parse_or_give_state_errors(at in 0..SOUND.len(), byte: u8, cut in 0..=SOUND.len()) {
        let mut bytes = SOUND.as_bytes().to_vec();
        bytes[at] = byte;
        if let Err(error) = RunState::parse(&bytes) {
            prop_assert!(error.id().starts_with("state-"), "{}", error.id());
        }
        if cut < SOUND.len() {
            prop_assert!(RunState::parse(&SOUND.as_bytes()[..cut]).is_err());
        }
    }
}
