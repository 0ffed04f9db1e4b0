//! The state of a run as JSON: the five keys of MosaicML Streaming, and one that identifies the run.
//!
//! A state comes from a checkpoint, and is therefore untrusted. Its size is limited, it is parsed strictly, and it is
//! compared with the run that resumes from it. Unknown keys are ignored, because later versions of either program may
//! add some.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use shardmill_core::{Diagnostic, ErrorKind, escape};
use shardmill_order::{EpochConfig, OrderError, State};
use shardmill_storage::{FileHandle, StorageError};

mod identity;

pub use identity::{Fingerprint, OrderDifferences, OrderIdentity};

/// The most bytes of a state.
pub const MOST_STATE_BYTES: u64 = 64 << 10;

/// The newest version of the key `shardmill` that this program reads.
const VERSION: u64 = 1;

/// Larger counts are not exact as floats in other programs, and no order has them.
const MOST: u64 = 1 << 53;

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
/// # Ok::<(), shardmill_reader::StateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The position of the run.
    pub state: State,
    identity: Option<OrderIdentity>,
}

impl RunState {
    /// Makes the state of a run with this order.
    #[must_use]
    pub const fn new(state: State, identity: OrderIdentity) -> Self {
        Self {
            state,
            identity: Some(identity),
        }
    }

    /// Parses a state from JSON.
    ///
    /// COMPAT: MosaicML Streaming increments the epoch when an iteration starts, so a state from before the first one
    /// has the epoch -1. Here that is the start of epoch 0, with the seed and the canonical nodes of the state.
    ///
    /// # Errors
    ///
    /// [`StateError::Size`], [`StateError::Pickle`], [`StateError::NotJson`], [`StateError::Missing`],
    /// [`StateError::Field`], [`StateError::Position`], [`StateError::Newer`].
    pub fn parse(bytes: &[u8]) -> Result<Self, StateError> {
        check_size(bytes.len() as u64)?;
        if let Some(what) = pickled(bytes) {
            return Err(StateError::Pickle { what });
        }
        let root: Json = serde_json::from_slice(bytes).map_err(|error| StateError::NotJson {
            reason: error.to_string(),
        })?;
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
        Ok(Self { state, identity })
    }

    /// Reads a state from a file.
    ///
    /// # Errors
    ///
    /// As [`RunState::parse`]; [`StateError::Storage`].
    pub fn load(path: &Path) -> Result<Self, StateError> {
        let file = FileHandle::open(path)?;
        check_size(file.len())?;
        Self::parse(&file.read_all(MOST_STATE_BYTES)?)
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
        format!(
            r#"{{"epoch": {}, "sample_in_epoch": {}, "num_canonical_nodes": {}, "shuffle_seed": {}, "initial_physical_nodes": {}{ours}}}"#,
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

    /// Returns the state for a run that resumes from it. The run must have the same samples in the same order.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`] with the differences; [`StateError::Order`] for invalid weights.
    pub fn resume(&self, config: &EpochConfig) -> Result<State, StateError> {
        if let Some(identity) = &self.identity {
            identity.check(config, self.state.num_canonical_nodes)?;
        }
        Ok(self.state)
    }
}

fn check_size(bytes: u64) -> Result<(), StateError> {
    if bytes > MOST_STATE_BYTES {
        return Err(StateError::Size {
            bytes,
            most: MOST_STATE_BYTES,
        });
    }
    Ok(())
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

/// An error of reading or using a state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state is too long.
    #[error("it has {bytes} bytes, more than the {most} of the longest state")]
    Size {
        /// Its length.
        bytes: u64,
        /// The maximum length.
        most: u64,
    },
    /// A format that is not read, because it could run code.
    #[error("it is {what}, which is not read because it could run code")]
    Pickle {
        /// The name of the format.
        what: &'static str,
    },
    /// Not a single JSON value, or a JSON object with a repeated key.
    #[error("it is not the JSON of a state: {reason}")]
    NotJson {
        /// What is wrong, and its position.
        reason: String,
    },
    /// A required key is missing.
    #[error("it has no {field}")]
    Missing {
        /// The key.
        field: &'static str,
    },
    /// A value has the wrong type, or is invalid in a state.
    #[error("{field} is {found}, not {expected}")]
    Field {
        /// The key.
        field: &'static str,
        /// The value.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A position that no epoch has.
    #[error("{field} is {found}, beyond {most}")]
    Position {
        /// The key.
        field: &'static str,
        /// The value.
        found: u64,
        /// The largest possible position.
        most: u64,
    },
    /// The state was written by a later version in another form.
    #[error("its version is {found}, and the newest that is known is {known}")]
    Newer {
        /// The version of the state.
        found: u64,
        /// The newest version that this program reads.
        known: u64,
    },
    /// The state was made in a run over other shards or in another order.
    #[error(
        "it was made for the order {found}, and this run has the order {expected}{differences}"
    )]
    Foreign {
        /// The fingerprint in the state.
        found: Fingerprint,
        /// The fingerprint of this run.
        expected: Fingerprint,
        /// The differences, if the state records the terms of its order.
        differences: OrderDifferences,
    },
    /// Streams or weights that no order can be computed for.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Diagnostic for StateError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Size { .. }
            | Self::NotJson { .. }
            | Self::Missing { .. }
            | Self::Field { .. }
            | Self::Position { .. } => ErrorKind::Corrupt,
            Self::Pickle { .. } | Self::Newer { .. } => ErrorKind::Unsupported,
            Self::Foreign { .. } => ErrorKind::Conflict,
            Self::Order(error) => error.kind(),
            Self::Storage(error) => error.kind(),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Size { .. } => "state-size",
            Self::Pickle { .. } => "state-pickle",
            Self::NotJson { .. } | Self::Missing { .. } | Self::Field { .. } => "state-format",
            Self::Position { .. } => "state-position",
            Self::Newer { .. } => "state-newer",
            Self::Foreign { .. } => "state-foreign",
            Self::Order(error) => error.id(),
            Self::Storage(error) => error.id(),
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Order(error) => error.object(),
            Self::Storage(error) => error.object(),
            _ => Some("state".to_owned()),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Pickle { .. } => "store the dictionary that state_dict() returns as JSON",
            Self::Newer { .. } => "read it with the version that wrote it, or a later one",
            Self::Foreign { .. } => {
                "use the datasets, weights, shuffle, sampling and batching of the run that made it, or begin anew"
            }
            Self::Order(error) => return error.hint(),
            Self::Storage(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// A JSON value without repeated keys in its objects.
#[derive(Debug)]
enum Json {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List,
    Map(Vec<(String, Json)>),
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Unsigned(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Text(text) => f.write_str(&text_found(text)),
            Self::List => f.write_str("a list"),
            Self::Map(_) => f.write_str("an object"),
        }
    }
}

/// Formats a string from a state for a message.
fn text_found(text: &str) -> String {
    let mut shown: String = text.chars().take(40).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("`{}`", escape(&shown))
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Strict)
    }
}

struct Strict;

impl<'de> Visitor<'de> for Strict {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Signed(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        // The elements of a list are not used, but must be JSON without repeated keys too.
        while items.next_element::<Json>()?.is_some() {}
        Ok(Json::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut map: Vec<(String, Json)> = Vec::new();
        while let Some(entry) = entries.next_entry::<String, Json>()? {
            map.push(entry);
        }
        let mut keys: Vec<&str> = map.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        if let Some([key, _]) = keys
            .array_windows::<2>()
            .find(|[left, right]| left == right)
        {
            return Err(A::Error::custom(format_args!(
                "the key {} is there twice",
                text_found(key)
            )));
        }
        Ok(Json::Map(map))
    }
}

/// The keys and values of an object.
struct Object<'a>(&'a [(String, Json)]);

impl<'a> Object<'a> {
    fn new(name: &'static str, value: &'a Json) -> Result<Self, StateError> {
        match value {
            Json::Map(map) => Ok(Self(map)),
            other => Err(StateError::Field {
                field: name,
                found: other.to_string(),
                expected: "an object",
            }),
        }
    }

    fn get(&self, field: &str) -> Option<&'a Json> {
        self.0
            .iter()
            .find(|(key, _)| key == field)
            .map(|(_, value)| value)
    }

    /// Returns the fields that are numbers or strings, formatted for messages.
    fn texts(&self) -> Vec<(String, String)> {
        let shown = |value: &Json| match value {
            Json::Text(text) => Some(text.chars().take(40).collect()),
            Json::Unsigned(number) => Some(number.to_string()),
            _ => None,
        };
        let fields = self.0.iter();
        fields
            .filter_map(|(name, value)| Some((name.clone(), shown(value)?)))
            .collect()
    }

    fn need(&self, field: &'static str) -> Result<&'a Json, StateError> {
        self.get(field).ok_or(StateError::Missing { field })
    }

    fn whole(&self, field: &'static str) -> Result<u64, StateError> {
        match self.need(field)? {
            Json::Unsigned(number) => Ok(*number),
            other => Err(StateError::Field {
                field,
                found: other.to_string(),
                expected: "a whole number from 0 on",
            }),
        }
    }

    /// Reads a number of epochs or samples.
    fn count(&self, field: &'static str) -> Result<u64, StateError> {
        match self.whole(field)? {
            found if found > MOST => Err(StateError::Position {
                field,
                found,
                most: MOST,
            }),
            found => Ok(found),
        }
    }

    /// Reads a number of nodes, which may be `null`.
    fn nodes(&self, field: &'static str, value: &Json) -> Result<Option<u64>, StateError> {
        match value {
            Json::Null => Ok(None),
            Json::Unsigned(nodes @ 1..) => Ok(Some(*nodes)),
            other => Err(StateError::Field {
                field,
                found: other.to_string(),
                expected: "a number from 1 on, or null",
            }),
        }
    }
}

#[cfg(test)]
mod tests;
