//! The profiles of `~/.aws/config` and `~/.aws/credentials`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use shardmill_core::{Diagnostic as _, ErrorKind};

use super::grammar::{Section, nested, parse};
use crate::error::StorageError;
use crate::file::FileHandle;
use crate::remote::profile::{Profile, bad_line, config_file, is_nowhere, no_profile};
use crate::remote::settings::{HOME, Settings, is_label};

/// The maximum number of bytes of a file.
const MAX_BYTES: u64 = 4 << 20;

/// The name of the profile that is used if none is named.
const DEFAULT: &str = "default";

/// The fields of a pair of keys.
const KEYS: [&str; 4] = [
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_security_token",
];

const NAMES: &str = "check AWS_PROFILE, AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE";

/// The configuration files, and the profile that is used.
#[derive(Clone)]
pub(crate) struct Files {
    config: Option<PathBuf>,
    credentials: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    /// The profile that a setting names.
    named: Option<String>,
}

impl Files {
    /// Returns the files that the settings name, or those in the home directory.
    pub(crate) fn of(known: &Settings<'_>) -> Self {
        let named = known.first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]);
        Self {
            config: config_file(known, "AWS_CONFIG_FILE", ".aws/config"),
            credentials: config_file(known, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
            home: known.text(HOME).map(PathBuf::from),
            named: named.map(|(_, name)| name.to_owned()),
        }
    }

    /// Returns the name of the profile that is used.
    pub(super) fn profile(&self) -> &str {
        self.named.as_deref().unwrap_or(DEFAULT)
    }

    /// Returns a path with `~` for the home directory.
    pub(super) fn shown(&self, path: &Path) -> String {
        let below = self
            .home
            .as_ref()
            .and_then(|home| path.strip_prefix(home).ok());
        match below {
            Some(below) => format!("~/{}", below.display()),
            None => path.display().to_string(),
        }
    }

    /// Returns the files for messages.
    fn both(&self) -> String {
        let files = [&self.config, &self.credentials].into_iter().flatten();
        let files: Vec<_> = files.map(|path| self.shown(path)).collect();
        files.join(", ")
    }

    /// Parses a file. One that does not exist has no sections, as in the tools of Amazon.
    fn sections(&self, path: Option<&Path>) -> Result<Vec<(String, Section)>, StorageError> {
        let Some(path) = path.filter(|path| *path != Path::new("/dev/null")) else {
            return Ok(Vec::new());
        };
        let bytes = match FileHandle::open(path) {
            Ok(handle) => handle.read_all(MAX_BYTES)?,
            // A home directory of another user has no files, unless a profile is named.
            Err(error)
                if is_nowhere(&error)
                    || self.named.is_none() && error.kind() == ErrorKind::Permission =>
            {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        parse(&bytes).map_err(|line| bad_line(line).at(self.shown(path)))
    }
}

/// The parsed files. Has no `Debug`, because they contain secrets.
pub(crate) struct Profiles {
    pub(super) files: Files,
    config: BTreeMap<String, Section>,
    credentials: BTreeMap<String, Section>,
    sessions: BTreeMap<String, Section>,
    services: BTreeMap<String, Section>,
}

impl Profiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// `url-profile` for a line that is not valid, and for a named profile that no file has; errors of reading.
    pub(crate) fn read(files: &Files) -> Result<Self, StorageError> {
        let mut all = Self {
            files: files.clone(),
            config: BTreeMap::new(),
            credentials: BTreeMap::new(),
            sessions: BTreeMap::new(),
            services: BTreeMap::new(),
        };
        let mut prefixed = Vec::new();
        for (name, section) in files.sections(files.config.as_deref())? {
            match section_name(&name) {
                Some(("profile", name)) => prefixed.push((name, section)),
                Some(("sso-session", name)) => {
                    all.sessions.insert(name, section);
                }
                Some(("services", name)) => {
                    all.services.insert(name, section);
                }
                _ if name == DEFAULT => {
                    all.config.insert(name, section);
                }
                _ => {}
            }
        }
        // `[profile default]` wins over `[default]`.
        all.config.extend(prefixed);
        let credentials = files.sections(files.credentials.as_deref())?;
        all.credentials.extend(credentials);
        match &files.named {
            Some(name) if !all.has(name) => Err(all.missing(name)),
            _ => Ok(all),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.config.contains_key(name) || self.credentials.contains_key(name)
    }

    /// Returns the error for a profile that no file has.
    fn missing(&self, name: &str) -> StorageError {
        let known = self.config.keys().chain(self.credentials.keys());
        let known: BTreeSet<&String> = known.collect();
        no_profile(name, known.into_iter(), NAMES).at(self.files.both())
    }

    /// Returns a profile. The fields of the credentials file win.
    pub(super) fn profile(&self, name: &str) -> Result<Profile, StorageError> {
        if !self.has(name) {
            return Err(self.missing(name));
        }
        let mut fields = self.config.get(name).cloned().unwrap_or_default();
        let credentials = self.credentials.get(name).cloned().unwrap_or_default();
        // The parts of a pair of keys come from one file.
        if KEYS.iter().any(|key| credentials.contains_key(*key)) {
            fields.retain(|field, _| !KEYS.contains(&field.as_str()));
        }
        fields.extend(credentials);
        let file = match self.config.contains_key(name) {
            true => &self.files.config,
            false => &self.files.credentials,
        };
        Ok(Profile {
            file: file
                .as_ref()
                .map_or_else(String::new, |path| self.files.shown(path)),
            name: name.to_owned(),
            fields,
        })
    }

    /// Returns the profile that is used, if it exists.
    pub(super) fn used(&self) -> Result<Option<Profile>, StorageError> {
        let name = self.files.profile();
        self.has(name).then(|| self.profile(name)).transpose()
    }

    /// Returns whether the credentials file has a field of a profile.
    pub(super) fn is_in_credentials(&self, profile: &str, field: &str) -> bool {
        let section = self.credentials.get(profile);
        section.is_some_and(|section| section.contains_key(field))
    }

    /// Returns the file that a field of a profile is in, for messages.
    pub(super) fn file_of(&self, profile: &str, field: &str) -> String {
        let file = match self.is_in_credentials(profile, field) {
            true => &self.files.credentials,
            false => &self.files.config,
        };
        file.as_ref()
            .map_or_else(String::new, |path| self.files.shown(path))
    }

    /// Returns a section `[sso-session NAME]`, as a profile.
    pub(super) fn session(&self, name: &str) -> Option<Profile> {
        let fields = self.sessions.get(name)?.clone();
        let file = self.files.config.as_ref();
        Some(Profile {
            file: file.map_or_else(String::new, |path| self.files.shown(path)),
            name: format!("sso-session {name}"),
            fields,
        })
    }

    /// Returns the region of the profile.
    ///
    /// # Errors
    ///
    /// `url-profile` if it has characters that no region has.
    pub(crate) fn region(&self) -> Result<Option<String>, StorageError> {
        let Some(profile) = self.used()? else {
            return Ok(None);
        };
        match profile.text("region") {
            Some(region) if !is_label(region) => Err(profile.value("region")),
            region => Ok(region.map(str::to_owned)),
        }
    }

    /// Returns the endpoint of a service (`s3`, `sts`, `sso`) in the profile: that of its `services` section, else the
    /// general one.
    ///
    /// # Errors
    ///
    /// `url-profile` for a section that does not exist, or whose lines are not `KEY = VALUE`.
    pub(crate) fn endpoint(&self, service: &'static str) -> Result<Option<String>, StorageError> {
        let Some(profile) = self.used()? else {
            return Ok(None);
        };
        let general = profile.text("endpoint_url").map(str::to_owned);
        let Some(section) = profile.text("services") else {
            return Ok(general);
        };
        let section = self.services.get(section);
        let section = section.ok_or_else(|| profile.value("services"))?;
        let Some(text) = section.get(service) else {
            return Ok(general);
        };
        let mut fields = nested(text).ok_or_else(|| profile.value("services"))?;
        let own = fields.remove("endpoint_url").filter(|url| !url.is_empty());
        Ok(own.or(general))
    }
}

/// Splits the name of a section into its type and its name, as in `[profile "my own"]`.
fn section_name(text: &str) -> Option<(&'static str, String)> {
    let kinds = ["profile", "sso-session", "services"];
    let kind = kinds.into_iter().find(|kind| text.starts_with(kind))?;
    let words = shlex::split(text.strip_prefix(kind)?)?;
    match <[String; 1]>::try_from(words) {
        Ok([name])
            if text
                .as_bytes()
                .get(kind.len())
                .is_some_and(u8::is_ascii_whitespace) =>
        {
            Some((kind, name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_names_are_split_into_kind_and_name() {
        for (text, expected) in [
            ("profile a", Some(("profile", "a"))),
            ("profile \"a b\"", Some(("profile", "a b"))),
            ("profile\ta", Some(("profile", "a"))),
            ("sso-session corp", Some(("sso-session", "corp"))),
            ("services x", Some(("services", "x"))),
            ("profile", None),
            ("profilea", None),
            ("profile a b", None),
            ("profile \"a", None),
            ("default", None),
            ("other a", None),
        ] {
            let expected = expected.map(|(kind, name)| (kind, name.to_owned()));
            assert_eq!(section_name(text), expected, "{text}");
        }
    }
}
