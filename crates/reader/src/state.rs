//! Where a run stands, as JSON: the five keys of MosaicML Streaming, and what tells whose state it is.
//!
//! A state comes from a checkpoint, and so from outside: it is bounded, read strictly, and compared with the run that
//! wants to go on from it (reliability rules O3 and O5). Keys that are not known are passed over, because later versions
//! of either program may add some.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use shardmill_core::{Diagnostic, ErrorKind, escape};
use shardmill_mds::{HashAlgo, Hasher};
use shardmill_order::{BatchingMethod, EpochConfig, OrderError, ShuffleAlgo, State, weights};
use shardmill_storage::{FileHandle, StorageError};

/// No state is longer (reliability limit L12).
pub const MOST_STATE_BYTES: u64 = 64 << 10;

/// The newest form of the key `shardmill` that is understood.
const VERSION: u64 = 1;

/// Larger counts are not exact in the floats of other programs, and no order has them.
const MOST: u64 = 1 << 53;

/// A state and the fingerprint of the run that it was made in.
///
/// As JSON it is what MosaicML Streaming writes and reads, with one key more:
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunState {
    /// Where the run stands.
    pub state: State,
    fingerprint: Option<Fingerprint>,
}

impl RunState {
    /// A state of the run with this fingerprint.
    #[must_use]
    pub const fn new(state: State, fingerprint: Fingerprint) -> Self {
        Self {
            state,
            fingerprint: Some(fingerprint),
        }
    }

    /// Reads a state from JSON.
    ///
    /// COMPAT: MosaicML Streaming counts epochs from the start of an iteration, so that its state from before the first one
    /// has the epoch -1. Here it is the start of epoch 0, with the seed and the canonical nodes of the state.
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
        // A newer form may mean something else by every key, so its version comes first.
        let fingerprint = root.get("shardmill").map(fingerprint_of).transpose()?;
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
        Ok(Self { state, fingerprint })
    }

    /// Reads a state from a file that the user named.
    ///
    /// # Errors
    ///
    /// As [`RunState::parse`]; [`StateError::Storage`].
    pub fn load(path: &Path) -> Result<Self, StateError> {
        let file = FileHandle::open(path)?;
        check_size(file.len())?;
        Self::parse(&file.read_all(MOST_STATE_BYTES)?)
    }

    /// The state as JSON on one line.
    #[must_use]
    pub fn render(&self) -> String {
        let number =
            |value: Option<u64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        let state = &self.state;
        let ours = self.fingerprint.map_or_else(String::new, |fingerprint| {
            format!(r#", "shardmill": {{"version": {VERSION}, "fingerprint": "{fingerprint}"}}"#)
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

    /// Which run it was made in; `None` for a state of MosaicML Streaming.
    #[must_use]
    pub const fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// The state for a run that is to go on from it, which has to have the same samples in the same order.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`] with both fingerprints; [`StateError::Order`] for weights that cannot be.
    pub fn resume(&self, config: &EpochConfig) -> Result<State, StateError> {
        if let Some(found) = self.fingerprint {
            let expected = Fingerprint::new(config, self.state.num_canonical_nodes)?;
            if found != expected {
                return Err(StateError::Foreign { found, expected });
            }
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

/// What it is that is not JSON and could run code when others read it.
fn pickled(bytes: &[u8]) -> Option<&'static str> {
    match (bytes.first()?, bytes.last()?) {
        (0x80, _) => Some("a pickle"),
        // Protocols 0 and 1, which have no header: a mark, an empty dictionary or list, a class; and the stop.
        (b'(' | b'}' | b']' | b'c', b'.') => Some("a pickle"),
        _ if bytes.starts_with(b"PK\x03\x04") => {
            Some("a file of torch.save, or another zip archive")
        }
        _ => None,
    }
}

/// Tells runs apart that would not give the same samples in the same order: two states fit each other when it is equal.
///
/// Covers the shard sizes of all streams, how many samples of each an epoch takes, and the options that decide the order:
/// shuffle, algorithm, block size, sampling and batching method. For the batching methods other than `random`, which count
/// in global batches, also the size of one, and for `device_per_stream` nodes and ranks. Not seed, epoch and canonical
/// nodes, which are in the state, nor anything else about the world: one state serves every rank and any world.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The fingerprint of a run with so many canonical nodes, on which the default of the block size depends.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for streams without samples, weights and replications that cannot be.
    pub fn new(config: &EpochConfig, canonical_nodes: Option<u64>) -> Result<Self, OrderError> {
        let shares = weights::shares(&config.streams, config.epoch_size, config.shuffle_seed)?;
        let mixed = config.batching_method != BatchingMethod::Random;
        let mut hasher = Hasher::new(HashAlgo::Sha256);
        let mut put = |number: u64| hasher.update(&number.to_le_bytes());
        put(VERSION);
        put(config.streams.len() as u64);
        for (stream, share) in config.streams.iter().zip(&shares) {
            put(stream.shards.len() as u64);
            for size in &*stream.shards {
                put(*size);
            }
            put(share.choose);
            if mixed {
                put(share.proportion.to_bits());
            }
        }
        for (number, stream) in (0_u64..).zip(&config.streams) {
            // Without deleted samples it is what it was before there was such a thing.
            if let Some(deleted) = stream.deleted {
                let (first, second) = (deleted.first_chunk::<8>(), deleted.last_chunk::<8>());
                put(number);
                put(first.map_or(0, |word| u64::from_le_bytes(*word)));
                put(second.map_or(0, |word| u64::from_le_bytes(*word)));
            }
        }
        put(config.sampling_granularity);
        let block = config.shuffle_block_size.or_else(|| {
            let nodes = canonical_nodes.filter(|nodes| *nodes > 0)?;
            Some((4_000_000 / nodes).max(1 << 18))
        });
        put(match config.shuffle_algo {
            ShuffleAlgo::Py1br | ShuffleAlgo::Py1e | ShuffleAlgo::Shardmill if config.shuffle => {
                block.unwrap_or(0)
            }
            _ => 0,
        });
        if mixed {
            let world = match config.replication {
                None => config.world,
                Some(replication) => config.world.replicate(replication)?,
            };
            put(world.ranks().saturating_mul(config.batch_size));
            if config.batching_method == BatchingMethod::DevicePerStream {
                put(world.nodes);
                put(world.ranks_per_node);
            }
        }
        let shuffle = if config.shuffle {
            config.shuffle_algo.name()
        } else {
            "none"
        };
        for name in [
            shuffle,
            config.sampling_method.name(),
            config.batching_method.name(),
        ] {
            hasher.update(name.as_bytes());
            hasher.update(b"\n");
        }
        let mut bytes = [0; 16];
        for (byte, hashed) in bytes.iter_mut().zip(hasher.finish().as_bytes()) {
            *byte = *hashed;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = StateError;

    fn from_str(text: &str) -> Result<Self, StateError> {
        let error = || StateError::Field {
            field: "shardmill.fingerprint",
            found: text_found(text),
            expected: "32 hexadecimal digits",
        };
        let mut bytes = [0; 16];
        if text.len() != 32
            || !text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Err(error());
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| error())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| error())?;
        }
        Ok(Self(bytes))
    }
}

fn fingerprint_of(value: &Json) -> Result<Fingerprint, StateError> {
    let ours = Object::new("shardmill", value)?;
    let version = match ours.get("version") {
        None => {
            return Err(StateError::Missing {
                field: "shardmill.version",
            });
        }
        Some(Json::Unsigned(version @ 1..)) => *version,
        Some(other) => {
            return Err(StateError::Field {
                field: "shardmill.version",
                found: other.to_string(),
                expected: "a number from 1 on",
            });
        }
    };
    if version > VERSION {
        return Err(StateError::Newer {
            found: version,
            known: VERSION,
        });
    }
    match ours.get("fingerprint") {
        None => Err(StateError::Missing {
            field: "shardmill.fingerprint",
        }),
        Some(Json::Text(text)) => text.parse(),
        Some(other) => Err(StateError::Field {
            field: "shardmill.fingerprint",
            found: other.to_string(),
            expected: "32 hexadecimal digits",
        }),
    }
}

/// Why a state cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Too long for a state.
    #[error("it has {bytes} bytes, more than the {most} of the longest state")]
    Size {
        /// Its length.
        bytes: u64,
        /// The longest that is read.
        most: u64,
    },
    /// Something that is not read because it could run code.
    #[error("it is {what}, which is not read because it could run code")]
    Pickle {
        /// What it is.
        what: &'static str,
    },
    /// Something that is not one JSON value, or has a key twice.
    #[error("it is not the JSON of a state: {reason}")]
    NotJson {
        /// What is wrong and where.
        reason: String,
    },
    /// A key that has to be there is not.
    #[error("it has no {field}")]
    Missing {
        /// The key.
        field: &'static str,
    },
    /// A value of another type, or none that a state can have.
    #[error("{field} is {found}, not {expected}")]
    Field {
        /// The key.
        field: &'static str,
        /// The value.
        found: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// A position that no epoch has.
    #[error("{field} is {found}, beyond {most}")]
    Position {
        /// The key.
        field: &'static str,
        /// The value.
        found: u64,
        /// The largest that is possible.
        most: u64,
    },
    /// Written by a later version in another form.
    #[error("its version is {found}, and the newest that is known is {known}")]
    Newer {
        /// Its version.
        found: u64,
        /// The newest that this program reads.
        known: u64,
    },
    /// Made in a run over other shards or in another order.
    #[error("it was made for the order {found}, and this run has the order {expected}")]
    Foreign {
        /// The fingerprint in the state.
        found: Fingerprint,
        /// The fingerprint of this run.
        expected: Fingerprint,
    },
    /// Streams or weights that no order can be made of.
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
                "use the data sets, weights, shuffle, sampling and batching of the run that made it"
            }
            Self::Order(error) => return error.hint(),
            Self::Storage(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// A JSON value in which no object has a key twice.
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

/// A string from a state, for a message.
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
        // What a list holds is of no use, but has to be JSON without double keys too.
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

/// The keys of an object, with its name for messages.
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

    /// A number of epochs or samples.
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

    /// A number of nodes, which may not be known.
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
