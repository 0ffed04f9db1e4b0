//! The state of a run as JSON: the five keys of MosaicML Streaming, and one that identifies the run.
//!
//! A state comes from a checkpoint, and is therefore untrusted. Its size is limited, it is parsed strictly, and it is
//! compared with the run that resumes from it. Unknown keys are ignored, because later versions of either program may
//! add some.

use std::path::Path;

use std::sync::Arc;

use serde::Deserialize;
use shardmill_core::Error;
use shardmill_order::{EpochConfig, Mixture, State};
use shardmill_storage::FileHandle;

mod adopt;
mod identity;
mod json;

use crate::error::{ReaderProblem, STATE, state_field};
pub use identity::{Fingerprint, OrderIdentity};
pub use json::MAX_STATE_BYTES;
use json::{Json, Object, check_size, parse_json};

/// A state, and the identity of the order that it was made for.
///
/// As JSON it has the keys that MosaicML Streaming writes and reads, and one more:
///
/// ```
/// use shardmill_reader::RunState;
///
/// let theirs = br#"{"epoch": 1, "sample_in_epoch": 640, "num_canonical_nodes": 2, "shuffle_seed": 9176,
///                   "initial_physical_nodes": 2}"#;
/// let state = RunState::parse(theirs)?;
/// assert_eq!((state.state.sample_in_epoch, state.fingerprint()), (640, None));
/// # Ok::<(), shardmill_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RunState {
    /// The position of the run.
    pub state: State,
    identity: Option<OrderIdentity>,
    mixture: Option<Mixture>,
}

/// The weights of a state, with those that changed while the run progressed.
#[derive(Deserialize)]
struct RecordedMixture {
    mixture: Option<Mixture>,
}

impl RunState {
    /// Makes the state of a run with this order.
    #[must_use]
    pub const fn new(state: State, identity: OrderIdentity) -> Self {
        Self {
            state,
            identity: Some(identity),
            mixture: None,
        }
    }

    /// Parses a state from JSON.
    ///
    /// COMPAT: MosaicML Streaming increments the epoch when an iteration starts, so a state from before the first one
    /// has the epoch -1. Here that is the start of epoch 0, with the seed and the canonical nodes of the state.
    ///
    /// # Errors
    ///
    /// [`ReaderProblem::StateSize`], [`ReaderProblem::StatePickle`], [`ReaderProblem::StateFormat`],
    /// [`ReaderProblem::StatePosition`], [`ReaderProblem::StateNewer`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        check_size(bytes.len() as u64)?;
        if let Some(what) = pickled(bytes) {
            return Err(ReaderProblem::StatePickle.at(
                STATE,
                format!("it is {what}, which is not read because it could run code"),
            ));
        }
        let root: Json = parse_json(bytes)?;
        let root = Object::new("the state", &root)?;
        // The version is checked first, because a newer version may change the meaning of every key.
        let identity = root
            .get("shardmill")
            .map(OrderIdentity::from_json)
            .transpose()?;
        let sample_in_epoch = root.count("sample_in_epoch")?;
        let epoch = match root.get("epoch") {
            Some(Json::Signed(-1)) if sample_in_epoch == 0 => 0,
            _ => root.count("epoch")?,
        };
        let state = State {
            epoch,
            sample_in_epoch,
            num_canonical_nodes: root
                .nodes("num_canonical_nodes", root.need("num_canonical_nodes")?)?,
            shuffle_seed: root.whole("shuffle_seed")?,
            initial_physical_nodes: match root.get("initial_physical_nodes") {
                None => None,
                Some(value) => root.nodes("initial_physical_nodes", value)?,
            },
        };
        let recorded: RecordedMixture = serde_json::from_slice(bytes)
            .map_err(|error| state_field("mixture", error, "a mixture"))?;
        Ok(Self {
            state,
            identity,
            mixture: recorded.mixture,
        })
    }

    /// Reads a state from a file.
    ///
    /// # Errors
    ///
    /// As [`RunState::parse`]; an error of the dataset.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = FileHandle::open(path)?;
        check_size(file.len())?;
        Self::parse(&file.read_all(MAX_STATE_BYTES)?)
    }

    /// Formats the state as JSON on one line.
    #[must_use]
    pub fn render(&self) -> String {
        let number =
            |value: Option<u64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        let state = &self.state;
        let ours = self.identity.as_ref().map_or_else(String::new, |identity| {
            format!(r#", "shardmill": {}"#, identity.render())
        });
        let mixture = self.mixture.as_ref().map_or_else(String::new, |mixture| {
            format!(r#", "mixture": {}"#, mixture.to_json())
        });
        format!(
            r#"{{"epoch": {}, "sample_in_epoch": {}, "num_canonical_nodes": {}, "shuffle_seed": {}, "initial_physical_nodes": {}{ours}{mixture}}}"#,
            state.epoch,
            state.sample_in_epoch,
            number(state.num_canonical_nodes),
            state.shuffle_seed,
            number(state.initial_physical_nodes),
        )
    }

    /// Returns the fingerprint of the order that the state was made for; `None` for a state of MosaicML Streaming.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.identity.as_ref().map(OrderIdentity::fingerprint)
    }

    /// Sets the mixture with which a run continues: that of the state, and from its position on that of `config`, if it
    /// differs.
    ///
    /// # Errors
    ///
    /// [`ReaderProblem::StateMixture`] if it differs before that; `InvalidInput` for an invalid mixture.
    pub fn resume_mixture(&self, config: &mut EpochConfig) -> Result<(), Error> {
        if let Some(recorded) = &self.mixture {
            let mixture = continued_mixture(recorded, config, &self.state)?;
            config.sampling.mixture = Some(Arc::new(mixture));
        }
        Ok(())
    }

    /// Returns the state for a run that resumes from it. The run must have the same samples in the same order.
    ///
    /// # Errors
    ///
    /// [`ReaderProblem::StateForeign`] with the differences; `InvalidInput` for invalid weights.
    pub fn resume(&self, config: &EpochConfig) -> Result<State, Error> {
        if let Some(identity) = &self.identity {
            identity.check(config, self.state.num_canonical_nodes)?;
        }
        Ok(self.state)
    }
}

/// Returns the mixture with which a run continues from a state that recorded one.
///
/// # Errors
///
/// [`ReaderProblem::StateMixture`] if the mixture of the run differs before the position of the state;
/// `InvalidInput` for an invalid mixture.
pub fn continued_mixture(
    recorded: &Mixture,
    config: &EpochConfig,
    state: &State,
) -> Result<Mixture, Error> {
    let Some(given) = &config.sampling.mixture else {
        return Ok(recorded.clone());
    };
    let (sizes, epoch_size) = config.mixture_sizes()?;
    let before = state.epoch.saturating_mul(epoch_size);
    let position = before.saturating_add(state.sample_in_epoch);
    recorded
        .resumed_with(given, sizes.len(), position)?
        .map_err(|sample| {
            ReaderProblem::StateMixture.at(STATE, format!(
                "its weights and those of this run differ from sample {sample} on, and it is at sample {position} of the run"
            ))
        })
}

/// Recognizes formats that could run code when other programs read them, and returns their name.
fn pickled(bytes: &[u8]) -> Option<&'static str> {
    match (bytes.first()?, bytes.last()?) {
        (0x80, _) => Some("a pickle"),
        // Protocols 0 and 1 have no header. They start with a mark, an empty dictionary or list, or a class, and end
        // with a stop.
        (b'(' | b'}' | b']' | b'c', b'.') => Some("a pickle"),
        _ if bytes.starts_with(b"PK\x03\x04") => {
            Some("a file of torch.save, or another zip archive")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
