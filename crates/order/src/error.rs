//! Errors of configurations, states and requests.

use shardmill_core::Error;

shardmill_core::problems! {
    /// What is wrong with a configuration, a state or a request.
    pub(crate) enum OrderProblem -> Error {
        Option => (InvalidInput, "config-value"),
        /// The range of integers of a shuffle is empty.
        ShuffleBlock => (InvalidInput, "config-value", "use a larger shuffle_block_size"),
        Streams => (InvalidInput, "config-streams"),
        Weights => (InvalidInput, "config-weights"),
        /// Only some streams have proportions, or an epoch size is combined with absolute weights.
        MixedWeights => (InvalidInput, "config-weights", "set a proportion for every stream, or for none"),
        /// The weights of streams over time are invalid.
        Mixture => (InvalidInput, "config-mixture"),
        /// A rank or worker is outside the world.
        OutsideWorld => (InvalidInput, "config-world"),
        /// Neither the canonical nodes divide the physical nodes, nor the reverse.
        NodesDoNotDivide => (InvalidInput, "config-world", "choose num_canonical_nodes so that one divides the other"),
        /// There are too few samples for the canonical nodes.
        CanonicalNodes => (InvalidInput, "config-world", "use fewer canonical nodes"),
        /// The devices of the first run cannot share the global batch equally.
        GlobalBatch => (InvalidInput, "config-world", "keep nodes x ranks x batch_size as it was in the first run"),
        StreamTooSmall => (InvalidInput, "config-batching", "use a smaller batch, or choose more samples from the stream"),
        /// A stream's share of a global batch or of the shuffle block is 0.
        NoShare => (InvalidInput, "config-batching", "use a larger global batch or shuffle block, or raise the stream's proportion"),
        /// The position to resume from is beyond the end of the epoch.
        StatePosition => (InvalidInput, "state-position"),
        StateField => (InvalidInput, "state-field"),
        NoSuchStep => (InvalidInput, "no-such-step", "count steps from 0 at the start of the epoch or of the state"),
        NoSuchSample => (InvalidInput, "no-such-sample"),
        /// A range of skipped samples or rows does not consist of whole steps.
        Skip => (InvalidInput, "config-skip", "keep nodes x ranks x batch_size as it was in the run that the steps are of"),
        /// The lengths are not those of the samples.
        Lengths => (InvalidInput, "config-lengths", "pass one length for each sample, in the order of their numbers"),
        DocumentTooLong => (InvalidInput, "document-too-long", "split or truncate long documents, or use longer rows"),
        Memory => (Resource, "out-of-memory", "use another shuffle_algo than naive, whole repeats, or a larger granularity or batch"),
    }
}

impl OrderProblem {
    pub(crate) fn of_stream(self, stream: usize, reason: impl Into<String>) -> Error {
        self.at(format!("stream {stream}"), reason)
    }
}

/// Creates the error for an option whose value is not as `expected`.
#[must_use]
pub fn bad_value(option: &'static str, value: u64, expected: &'static str) -> Error {
    OrderProblem::Option.at(option, format!("is {value}, which is not {expected}"))
}

/// Creates the error for a rank or worker outside the world, which has `of` of them.
#[must_use]
pub fn outside_world(what: &'static str, value: u64, of: u64) -> Error {
    OrderProblem::OutsideWorld.error(format!("{what} {value} of {of}"))
}

pub(crate) fn unknown_name(option: &'static str, value: &str, known: &str) -> Error {
    OrderProblem::Option.at(option, format!("{value:?} is none of {known}"))
}

pub(crate) fn nothing_chosen() -> Error {
    OrderProblem::Weights.error("no samples are left to choose")
}

pub(crate) fn choose_too_many(wanted: u64, of: u64) -> Error {
    OrderProblem::Weights.error(format!("{wanted} distinct values wanted of {of}"))
}

pub(crate) fn nodes_do_not_divide(canonical_nodes: u64, nodes: u64) -> Error {
    OrderProblem::NodesDoNotDivide.error(format!(
        "{canonical_nodes} canonical and {nodes} physical nodes: neither divides the other"
    ))
}

pub(crate) fn empty_canonical_node(samples: u64, canonical_nodes: u64) -> Error {
    OrderProblem::CanonicalNodes.error(format!(
        "{samples} samples for {canonical_nodes} canonical nodes"
    ))
}

pub(crate) fn no_share(stream: usize, what: &str, of: u64) -> Error {
    OrderProblem::NoShare.of_stream(stream, format!("its share of {what} {of} is 0"))
}

pub(crate) fn beyond_end(position: u64, samples: u64) -> Error {
    OrderProblem::StatePosition.at(
        "state",
        format!("position {position} is beyond the {samples} samples of the epoch"),
    )
}

pub(crate) fn no_such_step(step: u64, steps: u64) -> Error {
    OrderProblem::NoSuchStep.error(format!(
        "there is no step {step}: the epoch has {steps} from where it starts"
    ))
}

pub(crate) fn no_such_sample(sample: u64, samples: u64) -> Error {
    OrderProblem::NoSuchSample.error(format!(
        "there is no sample {sample}: the streams have {samples}"
    ))
}

pub(crate) fn lengths_count(found: u64, samples: u64) -> Error {
    OrderProblem::Lengths.at(
        "lengths",
        format!("there are {found} lengths for {samples} samples"),
    )
}

/// Returns an error unless the value of an option is valid. `expected` describes the valid values.
pub(crate) fn ensure(
    is_valid: bool,
    option: &'static str,
    value: u64,
    expected: &'static str,
) -> Result<(), Error> {
    match is_valid {
        true => Ok(()),
        false => Err(bad_value(option, value, expected)),
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::ErrorKind;

    use super::*;
    use crate::{Epoch, Request};

    /// Formats an error as the command line and Python do.
    fn rendered(error: &Error) -> String {
        let object = error
            .object()
            .map_or(String::new(), |object| format!("{object}: "));
        let hint = error
            .hint()
            .map_or(String::new(), |hint| format!("; {hint}"));
        format!("error[{}]: {object}{error}{hint}", error.id())
    }

    /// Returns the error of a configuration with these keys besides the required ones, which they may repeat.
    fn refused(keys: &str) -> String {
        let mut config = serde_json::json!({
            "streams": [{"shards": [3]}, {"shards": [9]}], "batch_size": 1, "nodes": 1, "ranks_per_node": 1,
            "workers_per_rank": 1, "shuffle": true,
        });
        let keys: serde_json::Value = serde_json::from_str(keys).unwrap();
        let changed = keys.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(changed);
        let request: Request = serde_json::from_value(config).unwrap();
        let epoch = request.config().and_then(|config| Epoch::new(&config));
        rendered(&epoch.unwrap_err())
    }

    #[test]
    fn config_errors_have_readable_messages() {
        for (keys, line) in [
            (
                r#"{"batch_size": 0}"#,
                "error[config-value]: batch_size: is 0, which is not from 1 to 1048576",
            ),
            (
                r#"{"shuffle_algo": "py1\nb"}"#,
                "error[config-value]: shuffle_algo: \"py1\\nb\" is none of naive, py1s, py2s, py1br, py1e, shardmill",
            ),
            (
                r#"{"streams": []}"#,
                "error[config-streams]: there are no streams",
            ),
            (
                r#"{"streams": [{"shards": [1]}, {"shards": [0]}]}"#,
                "error[config-streams]: stream 1: has no samples",
            ),
            (
                r#"{"streams": [{"shards": [1], "proportion": 1}, {"shards": [1]}]}"#,
                "error[config-weights]: stream 1: proportions on some streams and not on others; set a proportion for every stream, or for none",
            ),
            (
                r#"{"streams": [{"shards": [1], "repeat": 1, "choose": 1}]}"#,
                "error[config-weights]: stream 0: more than one of proportion, repeat and choose",
            ),
            (
                r#"{"streams": [{"shards": [1], "repeat": -1.5}]}"#,
                "error[config-weights]: stream 0: repeat is -1.5, which is not a number from 0 to 2^63",
            ),
            (
                r#"{"streams": [{"shards": [1], "proportion": 0}]}"#,
                "error[config-weights]: proportions add up to 0",
            ),
            (
                r#"{"streams": [{"shards": [1], "choose": 0}]}"#,
                "error[config-weights]: no samples are left to choose",
            ),
            (
                r#"{"shuffle_algo": "py1br", "shuffle_block_size": 0}"#,
                "error[config-value]: shuffle_block_size: no integer is at least 0 and below 0; use a larger shuffle_block_size",
            ),
            (
                r#"{"nodes": 3, "num_canonical_nodes": 4}"#,
                "error[config-world]: 4 canonical and 3 physical nodes: neither divides the other; choose num_canonical_nodes so that one divides the other",
            ),
            (
                r#"{"num_canonical_nodes": 15}"#,
                "error[config-world]: 12 samples for 15 canonical nodes; use fewer canonical nodes",
            ),
            (
                r#"{"streams": [{"shards": [3]}], "nodes": 8, "num_canonical_nodes": 1}"#,
                "error[config-world]: 3 samples are too few to pad 1 canonical nodes over 8 nodes; use fewer canonical nodes",
            ),
            (
                r#"{"nodes": 3, "batch_size": 4, "resume": {"epoch": 0, "sample_in_epoch": 0,
                    "num_canonical_nodes": 4, "shuffle_seed": 0, "initial_physical_nodes": 5}}"#,
                "error[config-world]: a global batch of 12 samples cannot be divided over the 5 devices of the first run; keep nodes x ranks x batch_size as it was in the first run",
            ),
            (
                r#"{"resume": {"epoch": 0, "sample_in_epoch": 20, "num_canonical_nodes": 1, "shuffle_seed": 0}}"#,
                "error[state-position]: state: position 20 is beyond the 12 samples of the epoch",
            ),
            (
                r#"{"resume": {"epoch": 0, "sample_in_epoch": 0, "shuffle_seed": 0}}"#,
                "error[state-field]: state: has no num_canonical_nodes",
            ),
            (
                r#"{"batching_method": "per_stream", "batch_size": 8}"#,
                "error[config-batching]: stream 0: 3 samples do not fill a batch of 8; use a smaller batch, or choose more samples from the stream",
            ),
            (
                r#"{"batching_method": "stratified"}"#,
                "error[config-batching]: stream 0: its share of a global batch of 1 is 0; use a larger global batch or shuffle block, or raise the stream's proportion",
            ),
            (
                r#"{"mixture": {"schedule": []}}"#,
                "error[config-mixture]: mixture: the schedule has no points",
            ),
        ] {
            assert_eq!(refused(keys), line, "{keys}");
        }
    }

    #[test]
    fn request_errors_have_readable_messages() {
        for (error, line) in [
            (
                choose_too_many(3, 2),
                "error[config-weights]: 3 distinct values wanted of 2",
            ),
            (
                no_such_step(9, 9),
                "error[no-such-step]: there is no step 9: the epoch has 9 from where it starts; count steps from 0 at the start of the epoch or of the state",
            ),
            (
                no_such_sample(7, 7),
                "error[no-such-sample]: there is no sample 7: the streams have 7",
            ),
            (
                lengths_count(3, 4),
                "error[config-lengths]: lengths: there are 3 lengths for 4 samples; pass one length for each sample, in the order of their numbers",
            ),
            (
                outside_world("rank", 8, 8),
                "error[config-world]: rank 8 of 8",
            ),
            (
                crate::num::room::<u64>(1 << 50, "the order of naive").unwrap_err(),
                "error[out-of-memory]: 9007199254740992 bytes for the order of naive cannot be had; use another shuffle_algo than naive, whole repeats, or a larger granularity or batch",
            ),
        ] {
            assert_eq!(rendered(&error), line);
            let is_memory = error.id() == "out-of-memory";
            assert_eq!(error.kind() == ErrorKind::Resource, is_memory);
        }
    }
}
