//! Columns of text as columns of tokens.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray as _, LargeListArray, UInt16Array, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use rayon::ThreadPool;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use shardmill_core::{Error, lock};

use crate::error::Problem;
use crate::tokenizer::{Tokenizer, guarded};
use crate::word_cache::WordCache;

/// The bytes of text that a thread takes at once.
const PIECE_BYTES: usize = 1 << 17;

/// The number of ids that two bytes express.
const TWO_BYTES: u64 = 1 << 16;

/// What the values of a column of text are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// Text.
    Text,
    /// Bytes, which must be UTF-8.
    Bytes,
}

impl TextKind {
    /// Returns the kind of a column of this type; `None` if it holds neither text nor bytes.
    #[must_use]
    pub fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(Self::Text),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(Self::Bytes),
            DataType::Dictionary(_, values) => Self::of(values),
            _ => None,
        }
    }
}

/// What becomes of a text without tokens: an empty one, or one of spaces only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyTokens {
    /// It has an empty list.
    Keep,
    /// It becomes a null.
    Null,
    /// It is an error.
    Refuse,
}

/// Turns columns of text into columns of tokens, on several threads.
pub struct ColumnTokenizer {
    tokenizer: Tokenizer,
    column: String,
    empty: EmptyTokens,
    jobs: usize,
    pool: Mutex<Option<Arc<ThreadPool>>>,
    /// The caches that no thread uses at the moment.
    caches: Mutex<Vec<WordCache>>,
}

impl ColumnTokenizer {
    /// Creates a tokenizer for a column of this name, which uses `jobs` threads.
    #[must_use]
    pub fn new(tokenizer: Tokenizer, column: String, empty: EmptyTokens, jobs: usize) -> Self {
        Self {
            tokenizer,
            column,
            empty,
            jobs,
            pool: Mutex::new(None),
            caches: Mutex::default(),
        }
    }

    /// Returns the tokenizer.
    #[must_use]
    pub const fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the type of the columns of tokens: lists of two bytes for each token if all ids fit, else of four.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        DataType::LargeList(self.item())
    }

    fn item(&self) -> Arc<Field> {
        let number = match self.tokenizer.ids() <= TWO_BYTES {
            true => DataType::UInt16,
            false => DataType::UInt32,
        };
        Arc::new(Field::new_list_field(number, false))
    }

    /// Returns the tokens of each text. A null stays a null. `describe_row` names a row for error messages.
    ///
    /// # Errors
    ///
    /// The error of the first row that cannot be tokenized.
    pub fn encode(
        &self,
        texts: &ArrayRef,
        describe_row: impl Fn(usize) -> String + Sync,
    ) -> Result<ArrayRef, Error> {
        let texts = as_bytes(texts)?;
        let values = values(&texts)?;
        let pieces = pieces(&texts, &values);
        let encode = |rows: Range<usize>| self.encode_piece(&texts, &values, rows, &describe_row);
        let encoded: Vec<_> = match self.jobs > 1 && pieces.len() > 1 {
            true => self
                .pool()?
                .install(|| pieces.into_par_iter().map(encode).collect()),
            false => pieces.into_iter().map(encode).collect(),
        };
        let encoded: Vec<Piece> = encoded.into_iter().collect::<Result<_, _>>()?;
        self.list(&texts, &encoded)
    }

    /// Returns the threads, and starts them the first time.
    fn pool(&self) -> Result<Arc<ThreadPool>, Error> {
        let mut pool = lock(&self.pool);
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let builder = rayon::ThreadPoolBuilder::new().num_threads(self.jobs);
        let built = builder.thread_name(|number| format!("tokenize-{number}"));
        let built = built.build().map_err(|error| {
            let reason = format!("cannot start threads for the tokenizer: {error}");
            Problem::Threads.error(reason)
        })?;
        Ok(Arc::clone(pool.insert(Arc::new(built))))
    }

    fn encode_piece(
        &self,
        texts: &ArrayRef,
        values: &Values<'_>,
        rows: Range<usize>,
        describe_row: impl Fn(usize) -> String,
    ) -> Result<Piece, Error> {
        let idle = || lock(&self.caches);
        let mut cache = idle().pop().unwrap_or_default();
        let mut piece = Piece::default();
        for row in rows {
            if texts.is_valid(row) {
                let wrong = |problem: Problem, reason: String| {
                    problem.at(
                        format!("{}, column {}", describe_row(row), self.column),
                        reason,
                    )
                };
                let text = std::str::from_utf8(values(row)).map_err(|error| {
                    let at = error.valid_up_to();
                    let reason =
                        format!("the text is not UTF-8: the byte at {at} cannot be decoded");
                    wrong(Problem::NotUtf8, reason)
                })?;
                let start = piece.ids.len();
                let pushed =
                    guarded(|| self.tokenizer.push_tokens(text, &mut cache, &mut piece.ids));
                pushed.map_err(|reason| {
                    wrong(Problem::Failed, format!("the tokenizer failed: {reason}"))
                })?;
                if self.empty == EmptyTokens::Refuse && piece.ids.len() == start {
                    let reason = "the text has no tokens, and an array of MDS has at least one";
                    return Err(wrong(Problem::NoTokens, reason.to_owned()));
                }
            }
            piece.ends.push(piece.ids.len());
        }
        idle().push(cache);
        Ok(piece)
    }

    /// Joins the pieces to one column.
    fn list(&self, texts: &ArrayRef, pieces: &[Piece]) -> Result<ArrayRef, Error> {
        let lengths = pieces.iter().flat_map(Piece::lengths);
        let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
        let ids = pieces.iter().flat_map(|piece| &piece.ids);
        let item = self.item();
        let values: ArrayRef = match item.data_type() {
            DataType::UInt16 => {
                let ids: Result<Vec<u16>, _> = ids.map(|id| u16::try_from(*id)).collect();
                let ids = ids.map_err(|_| bug("a token is not in the vocabulary"))?;
                Arc::new(UInt16Array::from(ids))
            }
            _ => Arc::new(UInt32Array::from_iter_values(ids.copied())),
        };
        let nulls = match self.empty {
            EmptyTokens::Null => Some(offsets.lengths().map(|length| length > 0).collect()),
            EmptyTokens::Keep | EmptyTokens::Refuse => texts.logical_nulls(),
        };
        let nulls = nulls.filter(|nulls: &NullBuffer| nulls.null_count() > 0);
        let list = LargeListArray::try_new(item, offsets, values, nulls);
        let lengths = |_| bug("the lists of tokens have other lengths than their values");
        Ok(Arc::new(list.map_err(lengths)?))
    }
}

/// The tokens of consecutive rows.
#[derive(Default)]
struct Piece {
    ids: Vec<u32>,
    /// The end of each row in `ids`.
    ends: Vec<usize>,
}

impl Piece {
    fn lengths(&self) -> impl Iterator<Item = usize> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.ends.iter().zip(starts).map(|(end, start)| end - start)
    }
}

/// Returns the bytes of a row.
type Values<'a> = Box<dyn Fn(usize) -> &'a [u8] + Sync + 'a>;

/// Returns the values of a column of bytes.
fn values(bytes: &ArrayRef) -> Result<Values<'_>, Error> {
    Ok(match bytes.data_type() {
        DataType::Binary => {
            let bytes = bytes.as_binary::<i32>();
            Box::new(|row| bytes.value(row))
        }
        DataType::LargeBinary => {
            let bytes = bytes.as_binary::<i64>();
            Box::new(|row| bytes.value(row))
        }
        DataType::BinaryView => {
            let bytes = bytes.as_binary_view();
            Box::new(|row| bytes.value(row))
        }
        _ => return Err(bug("a column to tokenize holds neither text nor bytes")),
    })
}

/// Builds the error about a broken invariant inside this crate.
fn bug(what: &str) -> Error {
    Problem::Bug.error(what)
}

/// Returns a column of text or bytes as one of bytes. Text is not copied.
fn as_bytes(texts: &ArrayRef) -> Result<ArrayRef, Error> {
    let bytes = match texts.data_type() {
        DataType::Dictionary(_, values) => {
            let texts = cast(texts, values);
            return as_bytes(&texts.map_err(|_| bug("a dictionary cannot be expanded"))?);
        }
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        DataType::Utf8View => DataType::BinaryView,
        _ => return Ok(Arc::clone(texts)),
    };
    cast(texts, &bytes).map_err(|_| bug("a text has no bytes"))
}

/// Divides the rows into runs of about [`PIECE_BYTES`].
fn pieces(texts: &ArrayRef, values: &Values<'_>) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for row in 0..texts.len() {
        bytes += match texts.is_valid(row) {
            true => values(row).len(),
            false => 0,
        };
        if bytes >= PIECE_BYTES {
            pieces.push(start..row + 1);
            (start, bytes) = (row + 1, 0);
        }
    }
    if start < texts.len() {
        pieces.push(start..texts.len());
    }
    pieces
}
