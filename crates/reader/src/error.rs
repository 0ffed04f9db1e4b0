//! The errors of reading.

use std::fmt::Display;

use shardmill_core::Error;

/// What the errors of a state are about.
pub(crate) const STATE: &str = "state";

shardmill_core::problems! {
    /// What is wrong with a state or a request, if a sentence says all that is known about it.
    #[non_exhaustive]
    pub enum ReaderProblem -> Error {
        /// Several samples have the same key.
        KeyTwice => (Corrupt, "key-twice", "read the samples by their numbers, or as a dataset for each split"),
        /// A column does not have tokens.
        TokensColumn => (InvalidInput, "tokens-column", "name a column of one array of integers, or of bytes with the type of the tokens"),
        /// A sample does not have as many tokens as its length says.
        TokensLength => (InvalidInput, "tokens-length", "pass the lengths of this dataset, or none to measure them"),
        /// The state is too long.
        StateSize => (Corrupt, "state-size"),
        /// The state has a format that is not read, because it could run code.
        StatePickle => (Unsupported, "state-pickle", "store the dictionary that state_dict() returns as JSON"),
        /// The state is not JSON, repeats a key, lacks one, or has an invalid value.
        StateFormat => (Corrupt, "state-format"),
        /// No epoch has the position of the state.
        StatePosition => (Corrupt, "state-position"),
        /// A later version wrote the state in another form.
        StateNewer => (Unsupported, "state-newer", "read it with the version that wrote it, or a later one"),
        /// The state was made in a run over other shards or in another order.
        StateForeign => (Conflict, "state-foreign", "use the datasets, weights, shuffle, sampling and batching of the run that made it, or begin anew"),
        /// The weights of the mixture differ before the position of the state.
        StateMixture => (Conflict, "state-mixture", "change weights after the position of the state only, or omit the mixture to continue that of the state"),
        /// The streams have no sample of that number.
        SampleBeyond => (InvalidInput, "no-such-sample"),
        /// A thread that fills batches ended without a result.
        CollatorLost => (Bug, "internal-filler"),
        /// A thread could not be started.
        Thread => (Resource, "no-thread"),
        /// The caller requested to stop.
        Interrupted => (Interrupted, "interrupted"),
    }
}

/// Builds the error for a value in a state that is not as `expected`.
pub(crate) fn state_field(field: &str, found: impl Display, expected: &str) -> Error {
    let reason = format!("{field} is {found}, not {expected}");
    ReaderProblem::StateFormat.at(STATE, reason)
}

pub(crate) fn state_missing(field: &str) -> Error {
    ReaderProblem::StateFormat.at(STATE, format!("it has no {field}"))
}

pub(crate) fn sample_beyond(sample: u64, samples: u64) -> Error {
    let reason = format!("there is no sample {sample}: the streams have {samples}");
    ReaderProblem::SampleBeyond.error(reason)
}

pub(crate) fn collator_lost() -> Error {
    ReaderProblem::CollatorLost.error("a thread that fills batches ended without a result")
}

/// Builds the error for a thread that cannot be started.
#[must_use]
pub fn no_thread(source: std::io::Error) -> Error {
    let error = ReaderProblem::Thread.error("cannot start a thread");
    error.because(source)
}

/// Builds the error for a caller that requested to stop.
#[must_use]
pub fn interrupted() -> Error {
    ReaderProblem::Interrupted.error("stopped before the end")
}
