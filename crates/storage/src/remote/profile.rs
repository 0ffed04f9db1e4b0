//! A profile of a configuration file, and the errors about it, which never show a value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::settings::{HOME, Settings, is_graphic};
use crate::error::StorageError;

/// The fields of a profile. Has no `Debug`, because they may be secret.
#[derive(Clone)]
pub(super) struct Profile {
    /// The file, or the files, for messages.
    pub(super) file: String,
    pub(super) name: String,
    pub(super) fields: BTreeMap<String, String>,
}

impl Profile {
    /// Returns the value of a field that is not empty.
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        let value = self.fields.get(field)?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// Returns a value that is used in a header, after checking its characters.
    pub(super) fn header(&self, field: &'static str) -> Result<Option<String>, StorageError> {
        match self.text(field) {
            Some(value) if !is_graphic(value) => Err(self.value(field)),
            value => Ok(value.map(str::to_owned)),
        }
    }

    /// Returns the value of a required field.
    pub(super) fn needs(&self, field: &'static str) -> Result<String, StorageError> {
        self.header(field)?.ok_or_else(|| self.without(field))
    }

    /// Returns the error for a field whose value is not valid.
    pub(super) fn value(&self, field: &str) -> StorageError {
        let name = &self.name;
        let message = format!("{field} of the profile {name:?} cannot have this value");
        self.error(message, None)
    }

    /// Returns the error for a required field without a value.
    pub(super) fn without(&self, field: &str) -> StorageError {
        self.error(format!("the profile {:?} has no {field}", self.name), None)
    }

    /// Returns the error for a field that selects an unsupported login.
    pub(super) fn login(&self, field: &str, hint: &'static str) -> StorageError {
        let name = &self.name;
        let message = format!("the profile {name:?} logs in by {field}, which is not supported");
        self.error(message, Some(hint))
    }

    pub(super) fn error(&self, message: String, hint: Option<&'static str>) -> StorageError {
        StorageError::Profile { message, hint }.at(&self.file)
    }
}

/// Returns the error for a line that is not valid, or that repeats a profile or a field. Lines are counted from 1.
pub(super) fn bad_line(line: usize) -> StorageError {
    StorageError::Profile {
        message: format!("line {line}: expected `[profile]` or `key = value`, each only once"),
        hint: Some(
            "a line is [PROFILE], FIELD = VALUE, empty, or begins with # or ;, and no profile or field occurs twice",
        ),
    }
}

/// Returns the error for a profile that is not one of the `known` profiles.
pub(super) fn no_profile<'a>(
    profile: &str,
    known: impl ExactSizeIterator<Item = &'a String>,
    hint: &'static str,
) -> StorageError {
    /// The profiles that the message shows.
    const MAX_SHOWN: usize = 10;

    let more = if known.len() > MAX_SHOWN { ", …" } else { "" };
    let names: Vec<_> = known
        .take(MAX_SHOWN)
        .map(|name| format!("{name:?}"))
        .collect();
    let others = match names.is_empty() {
        true => String::new(),
        false => format!(", but {}{more}", names.join(", ")),
    };
    let message = format!("there is no profile {profile:?}{others}");
    let hint = Some(hint);
    StorageError::Profile { message, hint }
}

/// Returns the path of a configuration file that a setting names, or of the one in the home directory.
pub(super) fn config_file(known: &Settings<'_>, name: &str, below_home: &str) -> Option<PathBuf> {
    let home = known.text(HOME).map(Path::new);
    match (known.text(name), home) {
        (Some(given), Some(home)) => Some(match given.strip_prefix("~/") {
            Some(below) => home.join(below),
            None => PathBuf::from(given),
        }),
        (Some(given), None) => Some(PathBuf::from(given)),
        (None, home) => home.map(|home| home.join(below_home)),
    }
}

/// Returns whether the error only means that the file does not exist.
pub(super) fn is_nowhere(error: &StorageError) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error, StorageError::Io { source, .. } if matches!(source.kind(), NotADirectory | NotFound))
}

/// Returns the lines before the first byte that is not UTF-8, or the text.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, usize> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        before.split(|byte| *byte == b'\n').count()
    })?;
    Ok(text.trim_start_matches('\u{feff}'))
}
