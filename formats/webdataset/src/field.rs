//! Determines the type of a field from its extension.

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
