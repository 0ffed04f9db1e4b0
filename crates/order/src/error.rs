//! What can be wrong with a configuration or a state.

use shardmill_core::{Diagnostic, ErrorKind};

/// Why an order cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// A value that no order has: zero where something is counted, a product beyond what is supported.
    #[error("is {value}, which is not {expected}")]
    BadValue {
        /// The option, as it is spelled everywhere.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        expected: &'static str,
    },
    /// A name that is not in a closed list.
    #[error("{value:?} is none of {known}")]
    UnknownName {
        /// The option, as it is spelled everywhere.
        option: &'static str,
        /// What was asked for.
        value: String,
        /// What there is.
        known: &'static str,
    },
    /// No streams at all.
    #[error("there are no streams")]
    NoStreams,
    /// A stream without a single sample.
    #[error("has no samples")]
    EmptyStream {
        /// Which stream, from 0.
        stream: usize,
    },
    /// Proportions on some streams only, or an epoch size together with absolute weights.
    #[error("{reason}")]
    MixedWeights {
        /// Which stream, from 0.
        stream: usize,
        /// What does not go together.
        reason: &'static str,
    },
    /// A weight that is negative, not a number, or too large.
    #[error("{weight} is {value}, which is not a number from 0 to 2^63")]
    BadWeight {
        /// Which stream, from 0.
        stream: usize,
        /// `proportion` or `repeat`.
        weight: &'static str,
        /// Its value.
        value: f64,
    },
    /// Proportions that add up to nothing.
    #[error("proportions add up to {sum}")]
    NoWeight {
        /// The sum.
        sum: f64,
    },
    /// The weights leave an epoch without samples.
    #[error("no samples are left to choose")]
    NothingChosen {
        /// The stream that is left empty, or `None` for the whole epoch.
        stream: Option<usize>,
    },
    /// More distinct things wanted than there are.
    #[error("{wanted} distinct values wanted of {of}")]
    ChooseTooMany {
        /// How many.
        wanted: u64,
        /// Of how many.
        of: u64,
    },
    /// An empty range of integers; a shuffle block too small for its algorithm.
    #[error("no integer is at least {low} and below {high}")]
    EmptyRange {
        /// Lower bound.
        low: u64,
        /// Upper bound, exclusive.
        high: u64,
    },
    /// Canonical and physical nodes do not divide one another.
    #[error("{canonical_nodes} canonical and {nodes} physical nodes: neither divides the other")]
    NodesDoNotDivide {
        /// Canonical nodes.
        canonical_nodes: u64,
        /// Physical nodes: of this run, or of the first one.
        nodes: u64,
    },
    /// More canonical nodes than samples, for a shuffle that needs one in each.
    #[error("{samples} samples for {canonical_nodes} canonical nodes")]
    EmptyCanonicalNode {
        /// Samples of the epoch or stream.
        samples: u64,
        /// Canonical nodes.
        canonical_nodes: u64,
    },
    /// A global batch that the initial run's devices cannot share.
    #[error("a global batch of {global_batch} samples cannot be divided over the {devices} devices of the first run")]
    GlobalBatch {
        /// Samples of a global batch.
        global_batch: u64,
        /// Devices of the first run.
        devices: u64,
    },
    /// A position beyond the end.
    #[error("position {position} is beyond the {samples} samples of the epoch")]
    BeyondEnd {
        /// Where to resume.
        position: u64,
        /// How many samples there are.
        samples: u64,
    },
    /// Too few samples to repeat for the padding of a canonical node.
    #[error("{samples} samples are too few to pad {canonical_nodes} canonical nodes over {nodes} nodes")]
    TooFewToPad {
        /// Samples of the epoch or stream.
        samples: u64,
        /// Canonical nodes.
        canonical_nodes: u64,
        /// Physical nodes.
        nodes: u64,
    },
    /// A stream that cannot fill one batch of its kind.
    #[error("{samples} samples do not fill a batch of {batch}")]
    StreamTooSmall {
        /// Which stream, from 0.
        stream: usize,
        /// Samples it has for it.
        samples: u64,
        /// What a batch needs.
        batch: u64,
    },
    /// A stream whose share of a global batch or of the shuffle block is nothing.
    #[error("its share of {what} {of} is 0")]
    NoShare {
        /// Which stream, from 0.
        stream: usize,
        /// What is shared.
        what: &'static str,
        /// How much there is of it.
        of: u64,
    },
    /// A state without what is needed to continue.
    #[error("has no {field}")]
    StateField {
        /// The field.
        field: &'static str,
    },
    /// A rank or worker outside the world.
    #[error("{what} {value} of {of}")]
    OutsideWorld {
        /// `rank` or `worker`.
        what: &'static str,
        /// Which one was asked for.
        value: u64,
        /// How many there are.
        of: u64,
    },
}

impl Diagnostic for OrderError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidInput
    }

    fn id(&self) -> &'static str {
        match self {
            Self::BadValue { .. } | Self::UnknownName { .. } | Self::EmptyRange { .. } => "config-value",
            Self::NoStreams | Self::EmptyStream { .. } => "config-streams",
            Self::MixedWeights { .. }
            | Self::BadWeight { .. }
            | Self::NoWeight { .. }
            | Self::NothingChosen { .. }
            | Self::ChooseTooMany { .. } => "config-weights",
            Self::NodesDoNotDivide { .. }
            | Self::EmptyCanonicalNode { .. }
            | Self::GlobalBatch { .. }
            | Self::TooFewToPad { .. }
            | Self::OutsideWorld { .. } => "config-world",
            Self::StreamTooSmall { .. } | Self::NoShare { .. } => "config-batching",
            Self::BeyondEnd { .. } => "state-position",
            Self::StateField { .. } => "state-field",
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::BadValue { option, .. } | Self::UnknownName { option, .. } => Some((*option).to_owned()),
            Self::EmptyStream { stream }
            | Self::MixedWeights { stream, .. }
            | Self::BadWeight { stream, .. }
            | Self::NothingChosen { stream: Some(stream) }
            | Self::StreamTooSmall { stream, .. }
            | Self::NoShare { stream, .. } => Some(format!("stream {stream}")),
            Self::EmptyRange { .. } => Some("shuffle_block_size".to_owned()),
            Self::BeyondEnd { .. } | Self::StateField { .. } => Some("state".to_owned()),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::EmptyCanonicalNode { .. } | Self::TooFewToPad { .. } => "use fewer canonical nodes",
            Self::NodesDoNotDivide { .. } => "choose num_canonical_nodes so that one divides the other",
            Self::GlobalBatch { .. } => "keep nodes x ranks x batch_size as it was in the first run",
            Self::EmptyRange { .. } => "use a larger shuffle_block_size",
            Self::NoShare { .. } => "use a larger global batch or shuffle block, or raise the stream's proportion",
            Self::StreamTooSmall { .. } => "use a smaller batch, or give the stream more samples",
            Self::MixedWeights { .. } => "give every stream a proportion, or none",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
