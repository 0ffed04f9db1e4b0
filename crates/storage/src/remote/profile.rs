//! A profile of a configuration file, and the errors about it, which never show a value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::settings::{HOME, Settings};
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
            Some(value) if !value.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(self.value(field))
            }
            value => Ok(value.map(str::to_owned)),
        }
    }

    /// Returns the value of a required field.
    pub(super) fn needs(&self, field: &'static str) -> Result<String, StorageError> {
        self.header(field)?.ok_or_else(|| self.without(field))
    }

    /// Returns the error for a field whose value is not valid.
    pub(super) fn value(&self, field: &'static str) -> StorageError {
        let profile = self.name.clone();
        StorageError::ProfileValue { profile, field }.at(&self.file)
    }

    /// Returns the error for a required field without a value.
    pub(super) fn without(&self, field: &'static str) -> StorageError {
        let profile = self.name.clone();
        StorageError::ProfileWithout { profile, field }.at(&self.file)
    }

    /// Returns the error for a field that selects an unsupported login.
    pub(super) fn login(&self, field: &str, hint: &'static str) -> StorageError {
        let (profile, field) = (self.name.clone(), field.to_owned());
        StorageError::ProfileLogin {
            profile,
            field,
            hint,
        }
        .at(&self.file)
    }
}

/// Returns the path of a configuration file that a setting names, or of the one in the home directory.
pub(super) fn config_file(known: &Settings<'_>, name: &str, beneath_home: &str) -> Option<PathBuf> {
    let home = known.text(HOME).map(Path::new);
    match (known.text(name), home) {
        (Some(given), Some(home)) => Some(match given.strip_prefix("~/") {
            Some(beneath) => home.join(beneath),
            None => PathBuf::from(given),
        }),
        (Some(given), None) => Some(PathBuf::from(given)),
        (None, home) => home.map(|home| home.join(beneath_home)),
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
