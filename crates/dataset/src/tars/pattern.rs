//! Parses patterns as users of webdataset write them: `train-{000000..000146}.tar`, or several of them joined by `::`.

use std::collections::HashSet;
use std::path::Path;

use shardmill_core::{Error, check_relative_path, escape};
use shardmill_storage::{Location, StorageError};
use shardmill_webdataset::{MAX_NAMES, WebdatasetError, expand_braces};

use crate::error::DatasetError;
use crate::listing::is_tar_name;
use crate::problem::DatasetProblem;

/// The tar files that a pattern names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarPattern {
    text: String,
    folder: Location,
    names: Vec<String>,
}

impl TarPattern {
    /// Parses a pattern. Returns `None` for a text that is not a pattern of tar files: one without braces and `::`, or
    /// one that names other files. The name of an existing file is not a pattern either.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Described`]: unmatched braces, or more than [`MAX_NAMES`] files. [`DatasetProblem::PatternApart`]: files
    /// in several stores. [`DatasetProblem::PatternTwice`]: repeated files. [`DatasetError::Storage`]: an invalid location.
    pub fn parse(text: &str) -> Result<Option<Self>, DatasetError> {
        if !(text.contains('{') || text.contains("::")) || Path::new(text).exists() {
            return Ok(None);
        }
        let mut all = Vec::new();
        for part in parts(text) {
            match expand_braces(part) {
                Ok(names) => all.extend(names),
                // Braces in names of other files are not an error.
                Err(_) if !part.contains(".tar") && !part.contains(".tgz") => return Ok(None),
                Err(error) => return Err(Error::from(error).into()),
            }
            if all.len() as u64 > MAX_NAMES {
                let error = WebdatasetError::too_many_names(text, MAX_NAMES);
                return Err(Error::from(error).into());
            }
        }
        if all.iter().any(|name| !is_tar_name(name)) || matches!(&*all, [one] if one == text) {
            return Ok(None);
        }
        Self::of_all(text, &all).map(Some)
    }

    /// Parses the name of a dataset of tar files: a pattern, or a single tar file, which is a pattern of one. Returns
    /// `None` for folders and for names that are not those of tar files. A local file need not exist.
    pub fn named(text: &str) -> Result<Option<Self>, DatasetError> {
        if let Some(pattern) = Self::parse(text)? {
            return Ok(Some(pattern));
        }
        let (_, name) = text.rsplit_once('/').unwrap_or(("", text));
        if !is_tar_name(name) {
            return Ok(None);
        }
        let is_file = match Location::parse(text)? {
            Location::Local(path) => !path.is_dir(),
            Location::Remote(location) => {
                let name = location.split_name().map(|(_, name)| name);
                name.is_some_and(is_tar_name)
            }
        };
        if !is_file {
            return Ok(None);
        }
        Self::of_all(text, &[text.to_owned()]).map(Some)
    }

    /// Makes a pattern of the files that the text names.
    fn of_all(text: &str, all: &[String]) -> Result<Self, DatasetError> {
        let shown = escape(text);
        let apart = || {
            let reason =
                format!("the pattern `{shown}` names tar files that have no folder in common");
            DatasetProblem::PatternApart.of_call(reason)
        };
        let common = common_folder(all);
        let rest = common.split_once("://").map(|(_, rest)| rest);
        let has_url = || all.iter().any(|one| one.contains("://"));
        if rest.is_some_and(|rest| rest.is_empty()) || common.is_empty() && has_url() {
            return Err(apart());
        }
        let folder = Location::parse(match common {
            "" => ".",
            "/" => "/",
            common => common.trim_end_matches('/'),
        })?;
        let mut seen = HashSet::new();
        let mut names = Vec::with_capacity(all.len());
        for full in all {
            let name = beneath(&folder, common, full)?;
            let Some(name) = name else {
                return Err(apart());
            };
            if let Err(source) = check_relative_path(&name) {
                let reason = format!("the pattern `{shown}` names `{}`: {source}", escape(&name));
                return Err(DatasetProblem::PatternName.of_call(reason));
            }
            if !seen.insert(name.clone()) {
                let reason = format!("the pattern `{shown}` names `{}` twice", escape(&name));
                return Err(DatasetProblem::PatternTwice.of_call(reason));
            }
            names.push(name);
        }
        Ok(Self {
            text: text.to_owned(),
            folder,
            names,
        })
    }

    /// Returns the text of the pattern.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the folder that contains all of its files, directly or in subfolders.
    #[must_use]
    pub const fn folder(&self) -> &Location {
        &self.folder
    }

    /// Returns the names of its files, relative to the folder, in the order of the pattern.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the locations of its files.
    pub fn locations(&self) -> impl Iterator<Item = Location> {
        self.names.iter().map(|name| match &self.folder {
            // Paths stay as they were written, without a leading dot.
            Location::Local(path) if path == Path::new(".") => Location::from(Path::new(name)),
            folder => folder.join(name),
        })
    }
}

/// Splits a list of patterns at `::`, except within an IPv6 address in brackets.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut is_host = false;
    let mut skip = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if skip => skip = false,
            b'[' if text.get(..at).is_some_and(|head| head.ends_with("://")) => is_host = true,
            b']' => is_host = false,
            b':' if !is_host && text.get(at..).is_some_and(|rest| rest.starts_with("::")) => {
                parts.extend(text.get(start..at));
                start = at + 2;
                skip = true;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts
}

/// Returns the common prefix of all names, up to a slash.
fn common_folder(all: &[String]) -> &str {
    let Some((first, rest)) = all.split_first() else {
        return "";
    };
    let mut common = first.rfind('/').map_or(0, |slash| slash + 1);
    for other in rest {
        let same = first.bytes().zip(other.bytes());
        let same = same.take(common).take_while(|(a, b)| a == b).count();
        if same < common {
            let head = first.as_bytes().get(..same).unwrap_or_default();
            common = head
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or(0, |slash| slash + 1);
        }
    }
    first.get(..common).unwrap_or_default()
}

/// Returns the name of a file relative to the folder.
fn beneath(folder: &Location, common: &str, full: &str) -> Result<Option<String>, StorageError> {
    if let (Location::Local(_), false) = (folder, common.contains("://")) {
        return Ok(full.strip_prefix(common).map(str::to_owned));
    }
    // A URL can encode the same character in several ways.
    Ok(match (folder, Location::parse(full)?) {
        (Location::Local(folder), Location::Local(path)) => {
            let rest = path.strip_prefix(folder).ok();
            rest.and_then(Path::to_str).map(str::to_owned)
        }
        (Location::Remote(folder), Location::Remote(location)) => {
            location.strip_prefix(folder).map(str::to_owned)
        }
        _ => None,
    })
}
