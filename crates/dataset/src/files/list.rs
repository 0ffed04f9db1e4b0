//! Lists the files of a tree, or reads the list that an earlier process stored.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use glob::{MatchOptions, Pattern};
use sha2::{Digest as _, Sha256};
use shardmill_core::{Limits, escape};
use shardmill_storage::{Dir, Folder, ListOptions, ListedFile, PublishMode, Remote, StorageError};

use super::tree::{FileEntry, FileForm, FileList, FileOptions, KnownFiles};
use crate::error::DatasetError;
use crate::problem::DatasetProblem;
use shardmill_cache::private_folder;

/// The name of the list in the cache's own folder.
pub const LIST: &str = "files.list";
/// The first line of a list: its type and version.
const MAGIC: &str = "shardmill-files 1";

/// Patterns are case-sensitive, and `*` does not match `/`.
const RULES: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The patterns of a caller.
#[derive(Debug)]
struct Filter {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    only: Option<Arc<BTreeSet<String>>>,
}

impl Filter {
    fn new(options: &FileOptions) -> Result<Self, DatasetError> {
        let compile = |option: &'static str, texts: &[String]| {
            let one = |text: &String| {
                Pattern::new(text).map_err(|error| {
                    let reason = format!("`{}` is no pattern: {}", escape(text), error.msg);
                    DatasetProblem::FilePattern.at(option, reason)
                })
            };
            texts.iter().map(one).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            include: compile("include", &options.include)?,
            exclude: compile("exclude", &options.exclude)?,
            only: options.only.as_ref().map(|only| Arc::clone(&only.paths)),
        })
    }

    fn takes(&self, path: &str) -> bool {
        if self.only.as_ref().is_some_and(|only| !only.contains(path)) {
            return false;
        }
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let fits = |pattern: &Pattern| {
            let text = if pattern.as_str().contains('/') {
                path
            } else {
                name
            };
            pattern.matches_with(text, RULES)
        };
        (self.include.is_empty() || self.include.iter().any(fits)) && !self.exclude.iter().any(fits)
    }
}

/// Returns the list of a tree. `local` is the folder that files are fetched to. It is `None` for a tree that is read in
/// place: then nothing is written.
pub fn open_list(
    source: &Folder,
    local: Option<&Dir>,
    location: &str,
    options: &FileOptions,
    limits: &Limits,
) -> Result<FileList, DatasetError> {
    let filter = Filter::new(options)?;
    let head = head_of(location, options);
    if let Some(known) = &options.known
        && *known.head == *head
        && !options.relist
    {
        return Ok(FileList {
            known: known.clone(),
            form: options.form,
        });
    }
    let finish = |found, text: &[u8]| finish(&head, found, text, location, options);
    let Some(local) = local else {
        let found = list(source, None, location, &filter, options, limits)?;
        let text = render(&head, &found);
        return finish(found, &text);
    };
    let own = private_folder(local)?;
    let path = own.path_of(LIST);
    let mut relist = options.relist;
    // If several processes list the tree at once, one list is stored and all processes use it.
    for _ in 0..3 {
        let kept = match own.open_file(LIST) {
            Ok(file) => Some(file.read_all(limits.index_bytes)?),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(kept) = kept {
            if !relist {
                let entries = parse(&kept, &head, &path)?;
                return finish(entries, &kept);
            }
            let found = list(source, Some(&own), location, &filter, options, limits)?;
            let text = render(&head, &found);
            if text == kept {
                return finish(found, &text);
            }
            // Without the old list, nothing identifies its files, so they are removed with it.
            if let Ok(old) = parse(&kept, &head_in(&kept), &path) {
                let old = FileList::new(&head, old, &kept, options.form);
                let files = shardmill_cache::forget(local, &old.digest(), |number| {
                    Some(old.get(number)?.blob(old.form, true))
                })?;
                if files > 0 {
                    let reason = format!("{files} files of the old list are in use");
                    return Err(DatasetProblem::FilesInUse.at(path, reason));
                }
            }
            own.remove(LIST)?;
            relist = false;
        }
        let found = list(source, Some(&own), location, &filter, options, limits)?;
        let text = render(&head, &found);
        match own.publish_bytes(None, LIST, &text, PublishMode::CreateNew) {
            Ok(()) => return finish(found, &text),
            // Another process stored its list first: use that one.
            Err(StorageError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(damaged(&path, "it appears and disappears"))
}

fn damaged(path: &Path, what: &str) -> DatasetError {
    DatasetProblem::FileList.at(path, format!("the list of files cannot be read: {what}"))
}

impl FileList {
    /// Makes the list with these entries. `head` identifies the tree and the patterns, and `text` is the whole list.
    fn new(head: &str, entries: Vec<ListedFile>, text: &[u8], form: FileForm) -> Self {
        Self {
            known: KnownFiles {
                head: Arc::from(head),
                entries: entries.into_iter().map(FileEntry::new).collect(),
                digest: Sha256::digest(text).into(),
            },
            form,
        }
    }
}

fn finish(
    head: &str,
    entries: Vec<ListedFile>,
    text: &[u8],
    location: &str,
    options: &FileOptions,
) -> Result<FileList, DatasetError> {
    // Whoever chose the files knows which of them are missing.
    if entries.is_empty() && options.only.is_none() {
        let is_filtered = !options.include.is_empty() || !options.exclude.is_empty();
        return Err(match is_filtered {
            true => DatasetProblem::TreeFiltered
                .at(location, "there are no files that the patterns take"),
            false => DatasetProblem::TreeEmpty.at(location, "there are no files"),
        });
    }
    Ok(FileList::new(head, entries, text, options.form))
}

/// Lists the files at the source.
fn list(
    source: &Folder,
    own: Option<&Dir>,
    location: &str,
    filter: &Filter,
    options: &FileOptions,
    limits: &Limits,
) -> Result<Vec<ListedFile>, DatasetError> {
    let found = match source {
        Folder::Local(dir) => dir.files(&|name| filter.takes(name))?,
        Folder::Store(store) => {
            let found = list_store(store.remote(), own, filter)?;
            check_clashes(&found)?;
            found
        }
    };
    let max = if options.form.has_data() {
        ("sample-bytes", limits.sample_bytes)
    } else {
        ("shard-bytes", limits.shard_bytes)
    };
    for entry in &found {
        let path = || Path::new(location).join(&entry.name);
        DatasetError::check_limit(max, entry.bytes, path)?;
    }
    Ok(found)
}

fn list_store(
    store: &Remote,
    own: Option<&Dir>,
    filter: &Filter,
) -> Result<Vec<ListedFile>, DatasetError> {
    let mut found = Vec::new();
    let options = ListOptions::default();
    for entry in store.list_sorted("", own.map(Dir::path), &options, &mut |_| true)? {
        let entry = entry?;
        if !filter.takes(&entry.name) {
            continue;
        }
        if let Err(source) = shardmill_core::check_relative_path(&entry.name) {
            let name = store.display(&entry.name);
            return Err(StorageError::Name { name, source }.into());
        }
        found.push(entry);
    }
    Ok(found)
}

/// Checks that no object is also a folder of others: a store may have `a` and `a/b`, but a folder cannot.
fn check_clashes(entries: &[ListedFile]) -> Result<(), DatasetError> {
    let mut last = "";
    for entry in entries {
        let Some((folder, _)) = entry.name.rsplit_once('/') else {
            continue;
        };
        // Files of the same folder are mostly adjacent.
        if folder == last {
            continue;
        }
        last = folder;
        let ends = folder.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([folder.len()]) {
            let above = folder.get(..end).unwrap_or_default();
            if entries
                .binary_search_by(|other| other.name.as_str().cmp(above))
                .is_ok()
            {
                let other = escape(&entry.name);
                let reason = format!("it is a file, and `{other}` lies in a folder of that name");
                return Err(DatasetProblem::TreeClash.at(above, reason));
            }
        }
    }
    Ok(())
}

/// Returns the second line of a list, which identifies the tree and the patterns.
fn head_of(location: &str, options: &FileOptions) -> String {
    let (include, exclude) = (&options.include, &options.exclude);
    match &options.only {
        None => serde_json::json!([location, include, exclude]).to_string(),
        Some(only) => serde_json::json!([location, include, exclude, only.identity]).to_string(),
    }
}

/// Returns the second line of a stored list.
fn head_in(text: &[u8]) -> String {
    let line = text.split(|byte| *byte == b'\n').nth(1);
    String::from_utf8_lossy(line.unwrap_or_default()).into_owned()
}

fn render(head: &str, entries: &[ListedFile]) -> Vec<u8> {
    let mut text = format!("{MAGIC}\n{head}\n");
    for entry in entries {
        let line = serde_json::json!([entry.name, entry.bytes, entry.tag]);
        text.push_str(&line.to_string());
        text.push('\n');
    }
    // The last line detects a truncated list.
    text.push_str(&format!("end {}\n", entries.len()));
    text.into_bytes()
}

fn parse(bytes: &[u8], head: &str, path: &Path) -> Result<Vec<ListedFile>, DatasetError> {
    let damaged = |what| damaged(path, what);
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Err(damaged("it is of another form"));
    }
    let found = lines.next().unwrap_or_default();
    if found != head {
        let kept: Option<(String, Vec<String>, Vec<String>)> = serde_json::from_str(found).ok();
        let kept = kept.map_or_else(String::new, |(location, _, _)| location);
        let kept = escape(&kept).into_owned();
        let reason = format!(
            "the folder keeps the files of {}, by other patterns or from another place",
            escape(&kept)
        );
        return Err(DatasetProblem::OtherTree.at(path, reason));
    }
    let mut entries: Vec<ListedFile> = Vec::new();
    for line in lines.by_ref() {
        if let Some(count) = line.strip_prefix("end ") {
            let whole = count.parse() == Ok(entries.len()) && lines.next().is_none();
            return if whole {
                Ok(entries)
            } else {
                Err(damaged("it is not whole"))
            };
        }
        let (name, bytes, tag): (String, u64, String) =
            serde_json::from_str(line).map_err(|_| damaged("a line of it is none"))?;
        if shardmill_core::check_relative_path(&name).is_err()
            || entries.last().is_some_and(|last| last.name >= name)
        {
            return Err(damaged("its names are out of order, or none of files"));
        }
        entries.push(ListedFile { name, bytes, tag });
    }
    Err(damaged("it is not whole"))
}
