//! The identity of an order, which decides whether a state belongs to a run.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use shardmill_core::Error;
use shardmill_mds::{HashAlgo, Hasher};
use shardmill_order::{BatchingMethod, EpochConfig, ShuffleAlgo, weights};

use super::json::{Json, Object, VERSION, check_size, parse_json, text_found};
use crate::error::{ReaderProblem, STATE, state_field, state_missing};

/// A hash of everything that decides which samples a run gives, and in what order. A state fits every run with an equal
/// fingerprint.
///
/// It covers the shard sizes of all streams, the deleted samples, and how many samples of each stream an epoch takes.
/// It also covers the options that decide the order: the shuffle, its algorithm and block size, and the sampling and
/// batching methods. Batching methods other than `random` count in global batches, so for them it covers the global
/// batch size too. For `device_per_stream` it covers the nodes and ranks.
///
/// It does not cover the seed, epoch and canonical nodes, which are in the state, nor anything else of the world. One
/// state therefore serves every rank and any world.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

/// The named terms that an order depends on, and its fingerprint.
///
/// The names and values are for messages; only the fingerprint decides. States of earlier versions have no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderIdentity {
    fingerprint: Fingerprint,
    terms: Vec<(String, String)>,
}

/// Collects the terms of an order, for its fingerprint and for messages.
struct Terms {
    hasher: Hasher,
    named: Vec<(String, String)>,
}

impl Terms {
    fn put(&mut self, number: u64) {
        self.hasher.update(&number.to_le_bytes());
    }

    fn name(&mut self, name: &str, value: impl fmt::Display) {
        self.named.push((name.to_owned(), value.to_string()));
    }

    fn put_named(&mut self, name: &str, number: u64) {
        self.put(number);
        self.name(name, number);
    }
}

impl OrderIdentity {
    /// Computes the identity of the order of a run. The default of the block size depends on `canonical_nodes`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for streams without samples, and for invalid weights or replications.
    pub fn new(config: &EpochConfig, canonical_nodes: Option<u64>) -> Result<Self, Error> {
        let mut shares = weights::shares(&config.streams, config.epoch_size, config.shuffle.seed)?;
        let epoch_of_mixture = match &config.sampling.mixture {
            None => None,
            Some(_) => Some(config.mixture_sizes()?.1),
        };
        if epoch_of_mixture.is_some() {
            // What an epoch takes of each stream depends on the weights, which the state records.
            for share in &mut shares {
                share.choose = share.samples;
            }
        }
        let mixed = config.batching_method != BatchingMethod::Random;
        let mut terms = Terms {
            hasher: Hasher::new(HashAlgo::Sha256),
            named: Vec::new(),
        };
        terms.put(VERSION);
        terms.put_named("streams", config.streams.len() as u64);
        let mut sizes = Hasher::new(HashAlgo::Sha256);
        let (mut samples, mut shards, mut chosen) = (0u64, 0u64, 0u64);
        for (stream, share) in config.streams.iter().zip(&shares) {
            terms.put(stream.shards.len() as u64);
            shards = shards.saturating_add(stream.shards.len() as u64);
            for size in &*stream.shards {
                terms.put(*size);
                sizes.update(&size.to_le_bytes());
                samples = samples.saturating_add(*size);
            }
            terms.put(share.choose);
            chosen = chosen.saturating_add(share.choose);
            if mixed {
                terms.put(share.proportion.to_bits());
            }
        }
        for (number, stream) in (0_u64..).zip(&config.streams) {
            // Without deleted samples, the fingerprint equals that of versions without this feature.
            if let Some(deleted) = stream.deleted {
                terms.put(number);
                terms.hasher.update(&deleted);
                let mut hasher = Hasher::new(HashAlgo::Sha256);
                hasher.update(&deleted);
                terms.name(&format!("deleted_samples[{number}]"), short(hasher));
            }
        }
        terms.name("samples", samples);
        terms.name("shards", shards);
        terms.name("shard_sizes", short(sizes));
        if let Some(epoch_size) = epoch_of_mixture {
            terms.hasher.update(b"mixture\n");
            terms.put_named("epoch_size", epoch_size);
            terms.name("mixture", "yes");
        } else {
            terms.name("epoch_size", chosen);
        }
        terms.put_named("sampling_granularity", config.sampling.granularity);
        let block = config.shuffle.block_size.or_else(|| {
            let nodes = canonical_nodes.filter(|nodes| *nodes > 0)?;
            Some((4_000_000 / nodes).max(1 << 18))
        });
        let block = match config.shuffle.algo {
            ShuffleAlgo::Py1br | ShuffleAlgo::Py1e | ShuffleAlgo::Shardmill
                if config.shuffle.enabled =>
            {
                block.unwrap_or(0)
            }
            _ => 0,
        };
        terms.put_named("shuffle_block_size", block);
        if mixed {
            let world = match config.replication {
                None => config.world,
                Some(replication) => config.world.replicate(replication)?,
            };
            terms.put_named(
                "global_batch_size",
                world.ranks().saturating_mul(config.batch_size),
            );
            if config.batching_method == BatchingMethod::DevicePerStream {
                terms.put_named("nodes", world.nodes);
                terms.put_named("ranks_per_node", world.ranks_per_node);
            }
        }
        let shuffle = if config.shuffle.enabled {
            config.shuffle.algo.name()
        } else {
            "none"
        };
        for (name, value) in [
            ("shuffle_algo", shuffle),
            ("sampling_method", config.sampling.method.name()),
            ("batching_method", config.batching_method.name()),
        ] {
            terms.hasher.update(value.as_bytes());
            terms.hasher.update(b"\n");
            terms.name(name, value);
        }
        let hash = terms.hasher.finish();
        let bytes = hash.as_bytes().first_chunk().copied();
        Ok(Self::of(
            Fingerprint(bytes.unwrap_or_default()),
            terms.named,
        ))
    }

    /// Parses the output of [`OrderIdentity::render`], which is the value of the key `shardmill` of a state.
    ///
    /// # Errors
    ///
    /// [`ReaderProblem::StateFormat`], [`ReaderProblem::StateNewer`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        check_size(bytes.len() as u64)?;
        Self::from_json(&parse_json(bytes)?)
    }

    pub(super) fn from_json(value: &Json) -> Result<Self, Error> {
        let ours = Object::new("shardmill", value)?;
        let missing = || state_missing("shardmill.version");
        let version = match ours.get("version").ok_or_else(missing)? {
            Json::Unsigned(version @ 1..) => *version,
            other => {
                let expected = "a number from 1 on";
                return Err(state_field("shardmill.version", other, expected));
            }
        };
        if version > VERSION {
            return Err(ReaderProblem::StateNewer.at(
                STATE,
                format!("its version is {version}, and the newest that is known is {VERSION}"),
            ));
        }
        let missing = || state_missing("shardmill.fingerprint");
        let fingerprint = match ours.get("fingerprint").ok_or_else(missing)? {
            Json::Text(text) => text.parse()?,
            other => return Err(not_a_fingerprint(other)),
        };
        let terms = match ours.get("order") {
            None => Vec::new(),
            Some(order) => Object::new("shardmill.order", order)?.texts(),
        };
        Ok(Self::of(fingerprint, terms))
    }

    /// Returns the value of a named term; `None` in states of earlier versions.
    pub(super) fn term(&self, name: &str) -> Option<&str> {
        let found = self.terms.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Sorts the terms, because the keys of JSON objects have no order.
    fn of(fingerprint: Fingerprint, mut terms: Vec<(String, String)>) -> Self {
        terms.sort_unstable();
        Self { fingerprint, terms }
    }

    /// Formats the identity as a JSON object on one line.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!(
            r#"{{"version": {VERSION}, "fingerprint": "{}""#,
            self.fingerprint
        );
        if !self.terms.is_empty() {
            text.push_str(r#", "order": {"#);
            for (number, (name, value)) in self.terms.iter().enumerate() {
                let comma = if number == 0 { "" } else { ", " };
                let name = serde_json::Value::from(name.as_str());
                let value = value.parse::<u64>().map_or_else(
                    |_| serde_json::Value::from(value.as_str()),
                    serde_json::Value::from,
                );
                // Writing to a string does not fail.
                let _written = write!(text, "{comma}{name}: {value}");
            }
            text.push('}');
        }
        text.push('}');
        text
    }

    /// Returns the fingerprint.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Checks that a run has this order.
    ///
    /// # Errors
    ///
    /// [`ReaderProblem::StateForeign`] with the differences; `InvalidInput` for invalid weights.
    pub fn check(&self, config: &EpochConfig, canonical_nodes: Option<u64>) -> Result<(), Error> {
        let expected = Self::new(config, canonical_nodes)?;
        if self.fingerprint == expected.fingerprint {
            return Ok(());
        }
        let mut differences = String::new();
        for (name, found) in &self.terms {
            let here = expected.terms.iter().find(|(other, _)| other == name);
            if let Some((_, here)) = here.filter(|(_, here)| here != found) {
                let start = if differences.is_empty() { ": " } else { ", " };
                differences.push_str(&format!("{start}{name} was {found} and is {here}"));
            }
        }
        Err(ReaderProblem::StateForeign.at(
            STATE,
            format!(
                "it was made for the order {}, and this run has the order {}{differences}",
                self.fingerprint, expected.fingerprint
            ),
        ))
    }
}

fn short(hasher: Hasher) -> String {
    let digest = hasher.finish();
    let bytes = digest.as_bytes().iter().take(4);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match u128::from_str_radix(text, 16) {
            Ok(number) if text.len() == 32 && text.bytes().all(is_digit) => {
                Ok(Self(number.to_be_bytes()))
            }
            _ => Err(not_a_fingerprint(text_found(text))),
        }
    }
}

fn not_a_fingerprint(found: impl fmt::Display) -> Error {
    let expected = "32 hexadecimal digits";
    state_field("shardmill.fingerprint", found, expected)
}
