//! Determines the type of a field from its extension.

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};

/// The type of a field, from the text after its last dot, without a trailing `.gz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// A whole number in ASCII: `cls`, `cls2`, `index`, `inx`, `id`; `class` and `count`, which the original writes but
    /// does not read.
    Int,
    /// Text in UTF-8: `txt`, `text`, `transcript`; `html` and `htm`, which the original writes but does not read.
    Text,
    /// JSON: `json`, `jsn`.
    Json,
    /// A NumPy array: `npy`.
    Npy,
    /// Several NumPy arrays in a ZIP file: `npz`.
    Npz,
    /// Arrays in the original's own format: `ten`, `tb`; `tenbin`, which the original writes but does not read.
    Tensors,
    /// `MessagePack`: `mp`, `msg`; `msgpack`, which the original writes but does not read.
    MessagePack,
    /// CBOR: `cbor`.
    Cbor,
    /// An image: `jpg`, `png`, `webp` and so on.
    Image,
    /// A video: `mp4`, `webm` and so on.
    Video,
    /// Sound: `flac`, `wav` and so on.
    Audio,
    /// A Python pickle or a torch file. Reading it would run code, so it is treated as bytes.
    Pickle,
    /// Any other extension: bytes.
    Other,
}

impl FieldKind {
    /// Returns the kind of a field, and whether a trailing `.gz` marks it as compressed with gzip.
    #[must_use]
    pub fn of(field: &str) -> (Self, bool) {
        let (rest, is_gzip) = match field.strip_suffix(".gz") {
            Some(rest) => (rest, true),
            None => (field, false),
        };
        let extension = rest.rsplit('.').next().unwrap_or(rest).to_lowercase();
        let kind = match extension.as_str() {
            "cls" | "cls2" | "class" | "count" | "index" | "inx" | "id" => Self::Int,
            "txt" | "text" | "transcript" | "html" | "htm" => Self::Text,
            "json" | "jsn" => Self::Json,
            "npy" => Self::Npy,
            "npz" => Self::Npz,
            "ten" | "tb" | "tenbin" => Self::Tensors,
            "mp" | "msg" | "msgpack" => Self::MessagePack,
            "cbor" => Self::Cbor,
            "jpg" | "jpeg" | "png" | "ppm" | "pgm" | "pbm" | "pnm" | "tif" | "tiff" | "webp"
            | "bmp" | "gif" | "img" | "image" => Self::Image,
            "mp4" | "ogv" | "mjpeg" | "avi" | "mov" | "h264" | "mpg" | "mpeg" | "webm" | "wmv"
            | "mkv" => Self::Video,
            "flac" | "mp3" | "sox" | "wav" | "m4a" | "ogg" | "wma" => Self::Audio,
            "pyd" | "pkl" | "pickle" | "pth" | "pt" => Self::Pickle,
            _ => Self::Other,
        };
        (kind, is_gzip)
    }
}

/// A field that does not match its extension, or a value that cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// A value that the extension has no encoding for.
    #[error("a {value} cannot be written as field `{}`", escape(field))]
    NoEncoder {
        /// The field.
        field: String,
        /// The kind of value.
        value: &'static str,
    },
    /// A pickle or a torch file.
    #[error(
        "field `{}` holds a pickle, which runs code when it is read",
        escape(field)
    )]
    Pickle {
        /// The field.
        field: String,
    },
    /// Text that is not UTF-8.
    #[error(
        "field `{}` is not UTF-8 from byte {offset} of {length}",
        escape(field)
    )]
    Utf8 {
        /// The field.
        field: String,
        /// The first byte that is not part of a character.
        offset: u64,
        /// The bytes of the field.
        length: u64,
    },
    /// Text that is not a 64-bit integer.
    #[error(
        "field `{}` is not a whole number of 64 bits: `{}`",
        escape(field),
        escape(found)
    )]
    Number {
        /// The field.
        field: String,
        /// The text, at most its first 40 characters.
        found: String,
    },
    /// Text that is not JSON.
    #[error("field `{}` is not JSON: {reason}", escape(field))]
    Json {
        /// The field.
        field: String,
        /// The position of the syntax error.
        reason: String,
    },
    /// An array that is damaged or of an unsupported kind.
    #[error("field `{}` {reason}", escape(field))]
    Array {
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A gzip stream that is damaged.
    #[error("field `{}` is damaged gzip: {reason}", escape(field))]
    Gzip {
        /// The field.
        field: String,
        /// The decoder's message.
        reason: String,
    },
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl Diagnostic for FieldError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoEncoder { .. } => ErrorKind::InvalidInput,
            Self::Pickle { .. } | Self::Limit(_) => ErrorKind::Unsupported,
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::NoEncoder { .. } => "field-encoder",
            Self::Pickle { .. } => "encoding-unsafe",
            Self::Utf8 { .. } => "field-utf8",
            Self::Number { .. } => "field-number",
            Self::Json { .. } => "json-syntax",
            Self::Array { .. } => "field-array",
            Self::Gzip { .. } => "compression-damaged",
            Self::Limit(limit) => limit.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoEncoder { .. } => Some(
                "numbers go into cls, text into txt, JSON into json, arrays into npy or ten; bytes go anywhere"
                    .to_owned(),
            ),
            Self::Limit(limit) => Some(limit.hint()),
            _ => None,
        }
    }
}
