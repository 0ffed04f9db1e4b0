//! Splits member names into key and field by the rules of each reader.

use std::borrow::Cow;
use std::str::FromStr;

use shardmill_core::escape;

use crate::error::{WebdatasetError, WebdatasetProblem};

shardmill_core::named_enum! {
    /// A reader of WebDataset shards, with its own rules.
    pub enum Consumer {
        /// The package `webdataset`, and this crate.
        Webdataset = "webdataset",
        /// The `webdataset` builder of Hugging Face `datasets`.
        Hf = "hf",
        /// NVIDIA DALI with `wds2idx`.
        Dali = "dali",
        /// Megatron-Energon.
        Energon = "energon",
        /// The package `wids`.
        Wids = "wids",
        /// `open_clip`.
        OpenClip = "open_clip",
    }
}

impl Consumer {
    /// Returns key and field of a member; `None` if this reader skips it.
    ///
    /// ```
    /// use shardmill_webdataset::Consumer;
    ///
    /// let split = |reader: Consumer, name| reader.split(name).map(|(key, field)| (key, field.into_owned()));
    /// assert_eq!(split(Consumer::Webdataset, "a.b/c.seg.JPG"), Some(("a.b/c", "seg.jpg".to_owned())));
    /// assert_eq!(split(Consumer::Wids, "a.b/c.seg.JPG"), Some(("a.b/c", ".seg.JPG".to_owned())));
    /// assert_eq!(split(Consumer::Webdataset, "a/.hidden"), Some(("a/", "hidden".to_owned())));
    /// assert_eq!(split(Consumer::Hf, "a/.hidden"), None);
    /// ```
    #[must_use]
    pub fn split(self, name: &str) -> Option<(&str, Cow<'_, str>)> {
        match self {
            Self::Webdataset | Self::OpenClip => {
                if is_metadata(name) {
                    return None;
                }
                let (key, field) = split_reference(name)?;
                Some((key, lower(field)))
            }
            Self::Energon => {
                if is_metadata(name) {
                    return None;
                }
                split_reference(name).map(borrowed)
            }
            Self::Hf => {
                let base = base(name);
                if base.starts_with('.') || base.starts_with("__") {
                    return None;
                }
                split_reference(name).map(borrowed)
            }
            Self::Dali => {
                let base_at = name.len() - base(name).len();
                let dot = base_at + base(name).find('.')?;
                let (key, field) = cut(name, dot)?;
                if key.is_empty() || key.ends_with('/') {
                    return None;
                }
                Some(borrowed((key, field)))
            }
            Self::Wids => split_wids(name).map(borrowed),
        }
    }
}

impl FromStr for Consumer {
    type Err = WebdatasetError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::from_name(name).ok_or_else(|| {
            let reason = format!("unknown reader `{}`", escape(name));
            WebdatasetProblem::UnknownConsumer.because(reason)
        })
    }
}

const fn borrowed<'a>((key, field): (&'a str, &'a str)) -> (&'a str, Cow<'a, str>) {
    (key, Cow::Borrowed(field))
}

fn lower(field: &str) -> Cow<'_, str> {
    let is_lower = field
        .bytes()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
    if is_lower {
        Cow::Borrowed(field)
    } else {
        Cow::Owned(field.to_lowercase())
    }
}

/// Returns the text after the last slash.
fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Splits a name at the dot at position `dot`.
fn cut(name: &str, dot: usize) -> Option<(&str, &str)> {
    let (key, field) = name.split_at_checked(dot)?;
    Some((key, field.strip_prefix('.')?))
}

/// Splits key and field by the rule of the original: the key ends at the first dot after the last slash.
///
/// Source: webdataset 1.0.2, `tariterators.py`, the pattern `^((?:.*/|)[^.]+)[.]([^/]*)$`. Its part `[^.]+` may include
/// slashes, so a name that starts with a dot belongs to a key that ends with a slash.
fn split_reference(name: &str) -> Option<(&str, &str)> {
    let base = base(name);
    let base_at = name.len() - base.len();
    let dot = base.find('.')?;
    if dot == 0 {
        // `a/.hidden`: the key is `a/`, unless the folder's own name contains a dot.
        let folder = name.get(..base_at)?.strip_suffix('/')?;
        if self::base(folder).contains('.') {
            return None;
        }
    }
    cut(name, base_at + dot)
}

/// Splits at the first dot of the last component that has one.
///
/// Source: wids at a52927f~1, the pattern `(.*/)?.*?(\..*)`, anchored at both ends.
fn split_wids(name: &str) -> Option<(&str, &str)> {
    let last = name.rfind('.')?;
    let before = name.get(..last)?;
    let component = before.rfind('/').map_or(0, |slash| slash + 1);
    let dot = component + name.get(component..)?.find('.')?;
    name.split_at_checked(dot)
}

/// Returns whether the original treats a member as metadata: its first component starts and ends with two underscores.
fn is_metadata(name: &str) -> bool {
    let first = name.split('/').next().unwrap_or(name);
    first.len() >= 4 && first.starts_with("__") && first.ends_with("__")
}

/// Returns whether the original reserves the name of a field for a value of its own: the key, the shard's URL, and the
/// path of its local copy.
///
/// Source: webdataset 1.0.2, `tariterators.py`, `group_by_keys`, which treats these as duplicates.
pub(crate) fn is_reserved(field: &str) -> bool {
    matches!(field, "__key__" | "__url__" | "__local_path__")
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::*;

    fn all(consumer: Consumer, name: &str) -> Option<(String, String)> {
        consumer
            .split(name)
            .map(|(key, field)| (key.to_owned(), field.into_owned()))
    }

    #[test]
    fn names_are_split_like_webdataset() {
        for (name, expected) in [
            ("a/b.jpg", Some(("a/b", "jpg"))),
            ("a.b/c.seg.jpg", Some(("a.b/c", "seg.jpg"))),
            ("x.y/z.w/k.1.2", Some(("x.y/z.w/k", "1.2"))),
            ("./a.jpg", Some(("./a", "jpg"))),
            ("/abs/x.y.z", Some(("/abs/x", "y.z"))),
            ("noext", None),
            ("a/b", None),
            ("dir.d/x", None),
            ("__key__", None),
            (".hidden", None),
            ("a/.hidden", Some(("a/", "hidden"))),
            ("a/.h.txt", Some(("a/", "h.txt"))),
            ("x.y/.h", None),
            ("x.y/b/.h.txt", Some(("x.y/b/", "h.txt"))),
            ("/.h", Some(("/", "h"))),
            ("a..b", Some(("a", ".b"))),
            ("a.", Some(("a", ""))),
            ("A.JPG", Some(("A", "jpg"))),
            ("__hdr__", None),
            ("__meta__/x.json", None),
            ("__hdr__.json", Some(("__hdr__", "json"))),
            ("d/__k__.txt", Some(("d/__k__", "txt"))),
            ("__a.txt", Some(("__a", "txt"))),
            ("é/ü.É", Some(("é/ü", "é"))),
            ("", None),
        ] {
            let expected = expected.map(|(key, field)| (key.to_owned(), field.to_owned()));
            assert_eq!(all(Consumer::Webdataset, name), expected, "{name}");
        }
    }

    #[test]
    fn names_are_split_like_each_other_reader() {
        let pair = |key: &str, field: &str| Some((key.to_owned(), field.to_owned()));
        for (consumer, name, expected) in [
            (Consumer::Hf, "__hdr__.json", None),
            (Consumer::Hf, "d/__k__.txt", None),
            (Consumer::Hf, "__a.txt", None),
            (Consumer::Hf, "a/.hidden", None),
            (Consumer::Hf, "__meta__/x.json", pair("__meta__/x", "json")),
            (Consumer::Hf, "A.JPG", pair("A", "JPG")),
            (Consumer::Energon, "A.JPG", pair("A", "JPG")),
            (Consumer::Energon, "__meta__/x.json", None),
            (Consumer::Dali, ".h", None),
            (Consumer::Dali, "a/.h", None),
            (Consumer::Dali, "a.b/c.D.e", pair("a.b/c", "D.e")),
            (Consumer::Dali, "a.b/c", None),
            (Consumer::Wids, "a.b/c.seg.jpg", pair("a.b/c", ".seg.jpg")),
            (Consumer::Wids, "a/.hidden", pair("a/", ".hidden")),
            (Consumer::Wids, ".hidden", pair("", ".hidden")),
            (Consumer::Wids, "a.b/c", pair("a", ".b/c")),
            (Consumer::Wids, "x.y/p.q/c", pair("x.y/p", ".q/c")),
            (Consumer::Wids, "a/b", None),
        ] {
            assert_eq!(all(consumer, name), expected, "{consumer} {name}");
        }
    }

    #[test]
    fn reader_names_round_trip() {
        for consumer in Consumer::ALL {
            assert_eq!(consumer.name().parse(), Ok(consumer));
        }
        assert_eq!(
            "HF".parse::<Consumer>().unwrap_err().id(),
            "consumer-unknown"
        );
    }
}
