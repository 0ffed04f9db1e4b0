//! A tokenizer file, and the tokens of one text.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use shardmill_codec::{HashAlgo, hash_hex};
use shardmill_core::catch_panic::catch;
use shardmill_core::{Error, escape};
use tokenizers::models::ModelWrapper;
use tokenizers::{Encoding, Model as _, OffsetReferential, OffsetType, PreTokenizer as _, Token};

use crate::error::Problem;
use crate::scores;
use crate::word_cache::WordCache;

/// The largest tokenizer file that is read, in bytes. The largest known ones have about 40 MB.
const MAX_BYTES: u64 = 1 << 28;

/// The most special tokens that a message lists.
const SHOWN_TOKENS: usize = 20;

/// Which tokens a text gets in addition to its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenOptions {
    /// Whether the post-processor of the tokenizer adds its special tokens.
    pub special_tokens: bool,
    /// A token before each text.
    pub prepend: Option<String>,
    /// A token after each text.
    pub append: Option<String>,
}

/// A tokenizer of a file `tokenizer.json`.
///
/// The same text always has the same tokens: those that `Tokenizer.encode` of the Python package `tokenizers` returns
/// without truncation and padding. The file may ask for both; they belong to batches of a model and are ignored.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    sha256: String,
    ids: u64,
    before: Vec<u32>,
    after: Vec<u32>,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("sha256", &self.sha256)
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Opens a tokenizer file.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is not a tokenizer (`Corrupt`), its tokens are random (`Unsupported`), or it lacks a
    /// token of the options (`InvalidInput`).
    pub fn open(path: &Path, options: &TokenOptions) -> Result<Self, Error> {
        let shown = path.display().to_string();
        let failed = |error| Error::io("cannot read the tokenizer", error).about(&shown);
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        Self::parse(&bytes, &shown, options)
    }

    fn parse(bytes: &[u8], path: &str, options: &TokenOptions) -> Result<Self, Error> {
        let reject = |reason| not_a_tokenizer(path, reason);
        if bytes.len() as u64 > MAX_BYTES {
            return Err(reject(format!("it has more than {MAX_BYTES} bytes")));
        }
        let parsed = guarded(|| tokenizers::Tokenizer::from_bytes(bytes));
        let mut inner = parsed.map_err(reject)?;
        if let ModelWrapper::BPE(model) = inner.get_model()
            && let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0)
        {
            let reason =
                format!("has a BPE dropout of {dropout}, so the tokens of a text are random");
            return Err(Problem::Random.at(path, reason));
        }
        if let ModelWrapper::Unigram(model) = inner.get_model() {
            let model = guarded(|| scores::as_in_package(model)).map_err(reject)?;
            inner.with_model(model);
        }
        inner.with_padding(None);
        let truncated = inner.with_truncation(None).map(drop);
        truncated.map_err(|error| reject(error.to_string()))?;
        let (mut before, mut after) = affixes(&inner, options.special_tokens, path)?;
        if let Some(token) = &options.prepend {
            before.insert(0, id_of(&inner, "--prepend", token)?);
        }
        if let Some(token) = &options.append {
            after.push(id_of(&inner, "--append", token)?);
        }
        // Ids may have gaps, so the number of tokens does not give the largest id.
        let added = before.iter().chain(&after).copied();
        let largest = inner.get_vocab(true).into_values().chain(added).max();
        Ok(Self {
            sha256: hash_hex(HashAlgo::Sha256, bytes),
            ids: largest.map_or(0, |largest| u64::from(largest) + 1),
            inner,
            before,
            after,
        })
    }

    /// Returns the SHA-256 of the file, as 64 hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the number above the largest id.
    #[must_use]
    pub const fn ids(&self) -> u64 {
        self.ids
    }

    /// Appends the tokens of a text to `ids`, with the added ones.
    pub(crate) fn push_tokens(
        &self,
        text: &str,
        cache: &mut WordCache,
        ids: &mut Vec<u32>,
    ) -> Result<(), tokenizers::Error> {
        ids.extend_from_slice(&self.before);
        let (inner, added) = (&self.inner, self.inner.get_added_vocabulary());
        let mut words = added.extract_and_normalize(inner.get_normalizer(), text);
        if let Some(pre_tokenizer) = inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut words)?;
        }
        for (word, _, tokens) in words.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            if let Some(tokens) = tokens {
                ids.extend(tokens.iter().map(|token| token.id));
            } else if let Some(known) = cache.get(word) {
                ids.extend_from_slice(known);
            } else {
                let start = ids.len();
                let tokens = inner.get_model().tokenize(word)?;
                ids.extend(tokens.into_iter().map(|token| token.id));
                cache.insert(word, ids.get(start..).unwrap_or_default());
            }
        }
        ids.extend_from_slice(&self.after);
        Ok(())
    }

    /// Returns the tokens of a text, with the added ones.
    ///
    /// # Errors
    ///
    /// The message of the tokenizer, for example because a word is unknown and it has no token for unknown words.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut ids = Vec::new();
        guarded(|| self.push_tokens(text, &mut WordCache::default(), &mut ids))?;
        Ok(ids)
    }

    /// Returns the text of tokens. Special tokens are kept.
    ///
    /// # Errors
    ///
    /// The message of the tokenizer.
    pub fn decode(&self, ids: &[u32]) -> Result<String, String> {
        guarded(|| self.inner.decode(ids, false))
    }
}

/// Runs a call of the tokenizer, which may panic for a file that contradicts itself.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Result<T, tokenizers::Error>) -> Result<T, String> {
    let result = catch(call).map_err(|_| "it contradicts itself".to_owned())?;
    result.map_err(|error| error.to_string())
}

/// Returns the tokens that the post-processor puts before and after each text.
fn affixes(
    inner: &tokenizers::Tokenizer,
    special_tokens: bool,
    path: &str,
) -> Result<(Vec<u32>, Vec<u32>), Error> {
    // No vocabulary has these ids.
    const MARKS: [u32; 2] = [u32::MAX - 1, u32::MAX];
    let marks = MARKS.map(|id| Token::new(id, "x".to_owned(), (0, 1)));
    let marks = Encoding::from_tokens(marks.to_vec(), 0);
    let processed = guarded(|| inner.post_process(marks, None, special_tokens));
    let processed = processed.map_err(|reason| not_a_tokenizer(path, reason))?;
    let ids = processed.get_ids();
    let marks = ids.iter().filter(|id| MARKS.contains(id)).count();
    match ids.windows(2).position(|pair| pair == MARKS) {
        Some(at) if marks == 2 => Ok((
            ids.get(..at).unwrap_or_default().to_vec(),
            ids.get(at + 2..).unwrap_or_default().to_vec(),
        )),
        _ => {
            let reason = "its post-processor repeats or rearranges the tokens of a text";
            Err(Problem::Template.at(path, reason))
        }
    }
}

fn not_a_tokenizer(path: &str, reason: String) -> Error {
    Problem::File.at(path, format!("is not a tokenizer: {reason}"))
}

fn id_of(inner: &tokenizers::Tokenizer, option: &str, token: &str) -> Result<u32, Error> {
    inner.token_to_id(token).ok_or_else(|| {
        let mut known: Vec<_> = inner.get_added_tokens_decoder().into_iter().collect();
        known.retain(|(_, token)| token.special);
        known.sort_by_key(|(id, _)| *id);
        let reason = format!("the tokenizer has no token `{}`", escape(token));
        let error = Problem::Token.at(option, reason);
        if known.is_empty() {
            return error;
        }
        let shown = known.iter().take(SHOWN_TOKENS);
        let shown = shown.map(|(_, token)| format!("`{}`", escape(&token.content)));
        let shown: Vec<_> = shown.collect();
        let tail = match known.len() - shown.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        error.with_hint(format!("its special tokens are {}{tail}", shown.join(", ")))
    })
}
