//! Errors of configurations and states.

use shardmill_core::{Diagnostic, ErrorKind};

/// Why an order cannot be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum OrderError {
    /// A value out of range: zero for a count, or a product beyond the supported size.
    #[error("is {value}, which is not {expected}")]
    BadValue {
        option: &'static str,
        value: u64,
        expected: &'static str,
    },
    /// A name that is not in the list of known names.
    #[error("{value:?} is none of {known}")]
    UnknownName {
        option: &'static str,
        value: String,
        known: String,
    },
    /// The configuration has no streams.
    #[error("there are no streams")]
    NoStreams,
    /// A stream has no samples.
    #[error("has no samples")]
    EmptyStream { stream: usize },
    /// Only some streams have proportions, or an epoch size is combined with absolute weights.
    #[error("{reason}")]
    MixedWeights { stream: usize, reason: &'static str },
    /// A stream has several weights.
    #[error("more than one of proportion, repeat and choose")]
    SeveralWeights { stream: usize },
    /// A weight is negative, not a number, or too large.
    #[error("{weight} is {value}, which is not a number from 0 to 2^63")]
    BadWeight {
        stream: usize,
        weight: &'static str,
        value: f64,
    },
    /// The sum of the proportions is not a positive finite number.
    #[error("proportions add up to {sum}")]
    NoWeight { sum: f64 },
    /// The weights leave an epoch without samples.
    #[error("no samples are left to choose")]
    NothingChosen { stream: Option<usize> },
    /// More distinct values are wanted than exist.
    #[error("{wanted} distinct values wanted of {of}")]
    ChooseTooMany { wanted: u64, of: u64 },
    /// A range of integers is empty, because the shuffle block is too small for the algorithm.
    #[error("no integer is at least {low} and below {high}")]
    EmptyRange { low: u64, high: u64 },
    /// Neither the canonical nodes divide the physical nodes, nor the reverse.
    #[error("{canonical_nodes} canonical and {nodes} physical nodes: neither divides the other")]
    NodesDoNotDivide { canonical_nodes: u64, nodes: u64 },
    /// There are more canonical nodes than samples, and the shuffle needs a sample in each.
    #[error("{samples} samples for {canonical_nodes} canonical nodes")]
    EmptyCanonicalNode { samples: u64, canonical_nodes: u64 },
    /// The devices of the first run cannot share the global batch equally.
    #[error(
        "a global batch of {global_batch} samples cannot be divided over the {devices} devices of the first run"
    )]
    GlobalBatch { global_batch: u64, devices: u64 },
    /// The position to resume from is beyond the end of the epoch.
    #[error("position {position} is beyond the {samples} samples of the epoch")]
    BeyondEnd { position: u64, samples: u64 },
    /// There are too few samples to repeat as padding of a canonical node.
    #[error(
        "{samples} samples are too few to pad {canonical_nodes} canonical nodes over {nodes} nodes"
    )]
    TooFewToPad {
        samples: u64,
        canonical_nodes: u64,
        nodes: u64,
    },
    /// A stream cannot fill one batch.
    #[error("{samples} samples do not fill a batch of {batch}")]
    StreamTooSmall {
        stream: usize,
        samples: u64,
        batch: u64,
    },
    /// A stream's share of a global batch or of the shuffle block is 0.
    #[error("its share of {what} {of} is 0")]
    NoShare {
        stream: usize,
        what: &'static str,
        of: u64,
    },
    /// A state lacks a field that is needed to resume.
    #[error("has no {field}")]
    StateField { field: &'static str },
    /// There is not enough memory.
    #[error("{bytes} bytes for {what} cannot be had")]
    Memory { what: &'static str, bytes: u64 },
    /// The epoch has no such step.
    #[error("there is no step {step}: the epoch has {steps} from where it starts")]
    StepBeyond { step: u64, steps: u64 },
    /// A range of skipped samples or rows does not consist of whole steps.
    #[error(
        "the {what} {from} to {to} of the epoch are not whole steps: a step has {global_batch}, counted from {start}"
    )]
    SkipsPartOfStep {
        what: &'static str,
        from: u64,
        to: u64,
        global_batch: u64,
        start: u64,
    },
    /// The streams have no such sample.
    #[error("there is no sample {sample}: the streams have {samples}")]
    SampleBeyond { sample: u64, samples: u64 },
    /// The weights of streams over time are invalid.
    #[error("{reason}")]
    Mixture { reason: String },
    /// The lengths are not those of the samples.
    #[error("there are {found} lengths for {samples} samples")]
    LengthsCount { found: u64, samples: u64 },
    /// A document has more tokens than a row.
    #[error("sample {sample} has {tokens} tokens, more than the {most} of a row")]
    DocumentTooLong { sample: u64, tokens: u32, most: u32 },
    /// A rank or worker is outside the world.
    #[error("{what} {value} of {of}")]
    OutsideWorld {
        what: &'static str,
        value: u64,
        of: u64,
    },
}

impl Diagnostic for OrderError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Memory { .. } => ErrorKind::Resource,
            _ => ErrorKind::InvalidInput,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::BadValue { .. } | Self::UnknownName { .. } | Self::EmptyRange { .. } => {
                "config-value"
            }
            Self::NoStreams | Self::EmptyStream { .. } => "config-streams",
            Self::MixedWeights { .. }
            | Self::SeveralWeights { .. }
            | Self::BadWeight { .. }
            | Self::NoWeight { .. }
            | Self::NothingChosen { .. }
            | Self::ChooseTooMany { .. } => "config-weights",
            Self::Mixture { .. } => "config-mixture",
            Self::NodesDoNotDivide { .. }
            | Self::EmptyCanonicalNode { .. }
            | Self::GlobalBatch { .. }
            | Self::TooFewToPad { .. }
            | Self::OutsideWorld { .. } => "config-world",
            Self::StreamTooSmall { .. } | Self::NoShare { .. } => "config-batching",
            Self::BeyondEnd { .. } => "state-position",
            Self::StateField { .. } => "state-field",
            Self::StepBeyond { .. } => "no-such-step",
            Self::SkipsPartOfStep { .. } => "config-skip",
            Self::SampleBeyond { .. } => "no-such-sample",
            Self::LengthsCount { .. } => "config-lengths",
            Self::DocumentTooLong { .. } => "document-too-long",
            Self::Memory { .. } => "out-of-memory",
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::BadValue { option, .. } | Self::UnknownName { option, .. } => {
                Some((*option).to_owned())
            }
            Self::SkipsPartOfStep { .. } => Some("skip".to_owned()),
            Self::LengthsCount { .. } => Some("lengths".to_owned()),
            Self::EmptyStream { stream }
            | Self::MixedWeights { stream, .. }
            | Self::SeveralWeights { stream }
            | Self::BadWeight { stream, .. }
            | Self::NothingChosen {
                stream: Some(stream),
            }
            | Self::StreamTooSmall { stream, .. }
            | Self::NoShare { stream, .. } => Some(format!("stream {stream}")),
            Self::EmptyRange { .. } => Some("shuffle_block_size".to_owned()),
            Self::Mixture { .. } => Some("mixture".to_owned()),
            Self::BeyondEnd { .. } | Self::StateField { .. } => Some("state".to_owned()),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::EmptyCanonicalNode { .. } | Self::TooFewToPad { .. } => {
                "use fewer canonical nodes"
            }
            Self::NodesDoNotDivide { .. } => {
                "choose num_canonical_nodes so that one divides the other"
            }
            Self::GlobalBatch { .. } => {
                "keep nodes x ranks x batch_size as it was in the first run"
            }
            Self::EmptyRange { .. } => "use a larger shuffle_block_size",
            Self::NoShare { .. } => {
                "use a larger global batch or shuffle block, or raise the stream's proportion"
            }
            Self::StreamTooSmall { .. } => "use a smaller batch, or give the stream more samples",
            Self::Memory { .. } => {
                "use another shuffle_algo than naive, whole repeats, or a larger granularity or batch"
            }
            Self::MixedWeights { .. } => "give every stream a proportion, or none",
            Self::SkipsPartOfStep { .. } => {
                "keep nodes x ranks x batch_size as it was in the run that the steps are of"
            }
            Self::LengthsCount { .. } => {
                "give one length for each sample that is read, in the order of their numbers"
            }
            Self::DocumentTooLong { .. } => "split or truncate long documents, or use longer rows",
            Self::StepBeyond { .. } => {
                "count steps from 0 at the start of the epoch or of the state"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Returns an error unless the value of an option is valid. `expected` describes the valid values.
pub(crate) fn ensure(
    is_valid: bool,
    option: &'static str,
    value: u64,
    expected: &'static str,
) -> Result<(), OrderError> {
    match is_valid {
        true => Ok(()),
        false => Err(OrderError::BadValue {
            option,
            value,
            expected,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats an error as the command line and Python do.
    fn rendered(error: &OrderError) -> String {
        let object = error
            .object()
            .map_or(String::new(), |object| format!("{object}: "));
        let hint = error
            .hint()
            .map_or(String::new(), |hint| format!("; {hint}"));
        format!("error[{}]: {object}{error}{hint}", error.id())
    }

    #[test]
    fn every_error_reads_as_one_line() {
        use OrderError as E;
        let all = [
            (
                E::BadValue {
                    option: "batch_size",
                    value: 0,
                    expected: "from 1 to 1048576",
                },
                "error[config-value]: batch_size: is 0, which is not from 1 to 1048576",
            ),
            (
                E::UnknownName {
                    option: "shuffle_algo",
                    value: "py1\nb".to_owned(),
                    known: "naive, py1s".to_owned(),
                },
                "error[config-value]: shuffle_algo: \"py1\\nb\" is none of naive, py1s",
            ),
            (E::NoStreams, "error[config-streams]: there are no streams"),
            (
                E::EmptyStream { stream: 2 },
                "error[config-streams]: stream 2: has no samples",
            ),
            (
                E::MixedWeights {
                    stream: 1,
                    reason: "proportions on some streams and not on others",
                },
                "error[config-weights]: stream 1: proportions on some streams and not on others; give every stream a proportion, or none",
            ),
            (
                E::SeveralWeights { stream: 1 },
                "error[config-weights]: stream 1: more than one of proportion, repeat and choose",
            ),
            (
                E::BadWeight {
                    stream: 0,
                    weight: "repeat",
                    value: -1.5,
                },
                "error[config-weights]: stream 0: repeat is -1.5, which is not a number from 0 to 2^63",
            ),
            (
                E::NoWeight { sum: 0.0 },
                "error[config-weights]: proportions add up to 0",
            ),
            (
                E::NothingChosen { stream: None },
                "error[config-weights]: no samples are left to choose",
            ),
            (
                E::ChooseTooMany { wanted: 3, of: 2 },
                "error[config-weights]: 3 distinct values wanted of 2",
            ),
            (
                E::EmptyRange { low: 0, high: 0 },
                "error[config-value]: shuffle_block_size: no integer is at least 0 and below 0; use a larger shuffle_block_size",
            ),
            (
                E::NodesDoNotDivide {
                    canonical_nodes: 4,
                    nodes: 3,
                },
                "error[config-world]: 4 canonical and 3 physical nodes: neither divides the other; choose num_canonical_nodes so that one divides the other",
            ),
            (
                E::EmptyCanonicalNode {
                    samples: 3,
                    canonical_nodes: 5,
                },
                "error[config-world]: 3 samples for 5 canonical nodes; use fewer canonical nodes",
            ),
            (
                E::GlobalBatch {
                    global_batch: 12,
                    devices: 5,
                },
                "error[config-world]: a global batch of 12 samples cannot be divided over the 5 devices of the first run; keep nodes x ranks x batch_size as it was in the first run",
            ),
            (
                E::BeyondEnd {
                    position: 20,
                    samples: 12,
                },
                "error[state-position]: state: position 20 is beyond the 12 samples of the epoch",
            ),
            (
                E::TooFewToPad {
                    samples: 3,
                    canonical_nodes: 1,
                    nodes: 8,
                },
                "error[config-world]: 3 samples are too few to pad 1 canonical nodes over 8 nodes; use fewer canonical nodes",
            ),
            (
                E::StreamTooSmall {
                    stream: 1,
                    samples: 3,
                    batch: 8,
                },
                "error[config-batching]: stream 1: 3 samples do not fill a batch of 8; use a smaller batch, or give the stream more samples",
            ),
            (
                E::NoShare {
                    stream: 1,
                    what: "a global batch of",
                    of: 8,
                },
                "error[config-batching]: stream 1: its share of a global batch of 8 is 0; use a larger global batch or shuffle block, or raise the stream's proportion",
            ),
            (
                E::StateField {
                    field: "num_canonical_nodes",
                },
                "error[state-field]: state: has no num_canonical_nodes",
            ),
            (
                E::StepBeyond { step: 9, steps: 9 },
                "error[no-such-step]: there is no step 9: the epoch has 9 from where it starts; count steps from 0 at the start of the epoch or of the state",
            ),
            (
                E::SkipsPartOfStep {
                    what: "samples",
                    from: 8,
                    to: 24,
                    global_batch: 16,
                    start: 0,
                },
                "error[config-skip]: skip: the samples 8 to 24 of the epoch are not whole steps: a step has 16, counted from 0; keep nodes x ranks x batch_size as it was in the run that the steps are of",
            ),
            (
                E::SampleBeyond {
                    sample: 7,
                    samples: 7,
                },
                "error[no-such-sample]: there is no sample 7: the streams have 7",
            ),
            (
                E::Mixture {
                    reason: "the schedule has no points".to_owned(),
                },
                "error[config-mixture]: mixture: the schedule has no points",
            ),
            (
                E::LengthsCount {
                    found: 3,
                    samples: 4,
                },
                "error[config-lengths]: lengths: there are 3 lengths for 4 samples; give one length for each sample that is read, in the order of their numbers",
            ),
            (
                E::DocumentTooLong {
                    sample: 2,
                    tokens: 9,
                    most: 8,
                },
                "error[document-too-long]: sample 2 has 9 tokens, more than the 8 of a row; split or truncate long documents, or use longer rows",
            ),
            (
                E::OutsideWorld {
                    what: "rank",
                    value: 8,
                    of: 8,
                },
                "error[config-world]: rank 8 of 8",
            ),
            (
                E::Memory {
                    what: "the order of naive",
                    bytes: 800,
                },
                "error[out-of-memory]: 800 bytes for the order of naive cannot be had; use another shuffle_algo than naive, whole repeats, or a larger granularity or batch",
            ),
        ];
        for (error, line) in all {
            assert_eq!(rendered(&error), line);
            let resource = matches!(error, OrderError::Memory { .. });
            assert_eq!(error.kind() == ErrorKind::Resource, resource);
        }
    }
}
