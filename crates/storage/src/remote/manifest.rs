//! A listing stored in a file: one line per object, sorted by the bytes of the name.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write as _;

use percent_encoding::percent_decode_str;
use ring::digest::{Context, SHA256};

use super::pages::Listed;
use super::payload::hex;
use crate::dir::{Dir, PublishMode};
use crate::error::StorageError;
use crate::file::FileHandle;
use crate::temp::TempFile;

const MAGIC: &str = "shardmill-objects 1";

/// The maximum length of a line: an escaped key of 1,024 bytes (three per byte), a number and a tag.
const LINE: usize = 16 << 10;

/// The number of bytes read at once.
const CHUNK: u64 = 256 << 10;

/// An object of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The name relative to the location, as the store returns it. It is not checked.
    pub name: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The version tag: an `ETag` or a time. Empty if the store has none.
    pub tag: String,
}

impl ManifestEntry {
    /// Returns whether the object is a folder marker, which some tools upload: its name ends with a slash.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        self.name.ends_with('/')
    }
}

fn escape_into(text: &str, into: &mut String) {
    if text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'%')
    {
        into.push_str(text);
        return;
    }
    for letter in text.chars() {
        if letter.is_control() || letter == '%' {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                // Writing to a String cannot fail.
                let _ = write!(into, "%{byte:02X}");
            }
        } else {
            into.push(letter);
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    Some(text.into_owned())
}

fn write_line(name: &str, bytes: u64, tag: &str, into: &mut String) {
    escape_into(name, into);
    let _ = write!(into, "\t{bytes}\t");
    escape_into(tag, into);
    into.push('\n');
}

fn read_line(line: &str) -> Option<ManifestEntry> {
    let mut fields = line.split('\t');
    let entry = ManifestEntry {
        name: unescape(fields.next()?)?,
        bytes: fields.next()?.parse().ok()?,
        tag: unescape(fields.next()?)?,
    };
    fields.next().is_none().then_some(entry)
}

/// The objects of one page, in the spool file.
#[derive(Debug)]
struct Run {
    first: String,
    last: String,
    offset: u64,
    bytes: u64,
    sum: ListReport,
    /// No name is in it twice.
    is_plain: bool,
}

/// Unsorted pages in a file, with an index in memory to sort them: some hundred bytes per page.
pub(super) struct Spool {
    file: TempFile,
    runs: Vec<Run>,
    text: String,
}

/// The totals of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListReport {
    /// The number of objects.
    pub objects: u64,
    /// The sum of their lengths.
    pub bytes: u64,
    /// The number of pages requested, without retries.
    pub pages: u64,
    /// Objects that were listed more than once, for example because of concurrent writes. They are in the file once.
    pub repeated: u64,
    /// Objects whose names end with a slash, which some tools create for folders.
    pub markers: u64,
    /// Objects whose names are not valid paths, such as `a//b`. They cannot be read by name.
    pub no_paths: u64,
}

impl ListReport {
    fn count(&mut self, name: &str, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if name.ends_with('/') {
            self.markers += 1;
        } else if shardmill_core::check_relative_path(name).is_err() {
            self.no_paths += 1;
        }
    }

    fn add(&mut self, other: &Self) {
        self.objects += other.objects;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.markers += other.markers;
        self.no_paths += other.no_paths;
    }
}

impl Spool {
    pub(super) fn new(dir: &Dir) -> Result<Self, StorageError> {
        Ok(Self {
            file: dir.temp_file(None)?,
            runs: Vec::new(),
            text: String::new(),
        })
    }

    /// Appends a page. `root` is the common prefix of all keys.
    pub(super) fn push(&mut self, root: &str, mut page: Vec<Listed>) -> Result<(), StorageError> {
        if !page.is_sorted_by(|a, b| a.key <= b.key) {
            page.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let name = |listed: &Listed| listed.key.strip_prefix(root).unwrap_or_default().to_owned();
        let (Some(first), Some(last)) = (page.first().map(name), page.last().map(name)) else {
            return Ok(());
        };
        self.text.clear();
        let mut sum = ListReport::default();
        for listed in &page {
            let name = listed.key.strip_prefix(root).unwrap_or_default();
            sum.count(name, listed.bytes);
            write_line(name, listed.bytes, &listed.tag, &mut self.text);
        }
        let is_plain = page.is_sorted_by(|a, b| a.key < b.key);
        let offset = self.file.written();
        let written = self.file.write_all(self.text.as_bytes());
        written.map_err(|error| self.file.write_error(error))?;
        self.runs.push(Run {
            first,
            last,
            offset,
            bytes: self.text.len() as u64,
            sum,
            is_plain,
        });
        Ok(())
    }

    /// Writes all objects in order to the file `target`. `shown` is the location in the first line.
    pub(super) fn finish(
        mut self,
        dir: &Dir,
        target: &str,
        shown: &str,
    ) -> Result<ListReport, StorageError> {
        self.file
            .flush()
            .map_err(|error| self.file.write_error(error))?;
        let spool = FileHandle::open(&self.file.path())?;
        self.runs.sort_by(|a, b| a.first.cmp(&b.first));
        let folder = target.rsplit_once('/').map(|(folder, _)| folder);
        let mut out = Out {
            file: dir.temp_file(folder)?,
            hash: Context::new(&SHA256),
            sum: ListReport::default(),
            text: String::new(),
            last: None,
        };
        let mut head = format!("{MAGIC}\t");
        escape_into(shown, &mut head);
        head.push('\n');
        out.write(&head)?;
        // Merge overlapping runs. Pages of one listing do not overlap; runs of nested folders do, one per level. Each
        // run is listed under its next name, and under its offset because two runs may have the same name.
        let mut open: BTreeMap<(String, u64), VecDeque<ManifestEntry>> = BTreeMap::new();
        let mut runs = self.runs.into_iter().peekable();
        loop {
            // Most runs do not overlap, and are copied as they are.
            if open.is_empty()
                && let Some(run) = runs.next_if(|run| run.is_plain)
            {
                let alone = runs.peek().is_none_or(|next| run.last < next.first)
                    && out.last.as_ref().is_none_or(|last| *last < run.first);
                if alone {
                    out.copy(&spool, &run)?;
                    continue;
                }
                open.insert((run.first.clone(), run.offset), entries_of(&spool, &run)?);
            }
            while let Some(run) = runs.next_if(|run| {
                let first = open.first_key_value();
                first.is_none_or(|((name, _), _)| run.first <= *name)
            }) {
                open.insert((run.first.clone(), run.offset), entries_of(&spool, &run)?);
            }
            let Some(((_, offset), mut rest)) = open.pop_first() else {
                break;
            };
            if let Some(entry) = rest.pop_front() {
                out.push(entry)?;
            }
            if let Some(next) = rest.front() {
                open.insert((next.name.clone(), offset), rest);
            }
        }
        out.finish(target)
    }
}

/// Reads a run back.
fn entries_of(spool: &FileHandle, run: &Run) -> Result<VecDeque<ManifestEntry>, StorageError> {
    let bytes = spool.read_range(run.offset, run.bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| changed(spool))?;
    let entries: Option<VecDeque<_>> = text.lines().map(read_line).collect();
    entries
        .filter(|entries| entries.back().is_some_and(|last| last.name == run.last))
        .ok_or_else(|| changed(spool))
}

fn changed(file: &FileHandle) -> StorageError {
    StorageError::Changed {
        path: file.path().to_owned(),
        expected: file.len(),
        found: file.len(),
    }
}

struct Out {
    file: TempFile,
    hash: Context,
    sum: ListReport,
    text: String,
    last: Option<String>,
}

impl Out {
    fn write(&mut self, text: &str) -> Result<(), StorageError> {
        self.hash.update(text.as_bytes());
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| self.file.write_error(error))
    }

    fn push(&mut self, entry: ManifestEntry) -> Result<(), StorageError> {
        if self.last.as_ref() == Some(&entry.name) {
            self.sum.repeated += 1;
            return Ok(());
        }
        self.sum.count(&entry.name, entry.bytes);
        write_line(&entry.name, entry.bytes, &entry.tag, &mut self.text);
        self.last = Some(entry.name);
        if self.text.len() >= 128 << 10 {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        let text = std::mem::take(&mut self.text);
        self.write(&text)
    }

    fn copy(&mut self, spool: &FileHandle, run: &Run) -> Result<(), StorageError> {
        self.flush()?;
        let bytes = spool.read_range(run.offset, run.bytes)?;
        let text = String::from_utf8(bytes).map_err(|_| changed(spool))?;
        self.write(&text)?;
        self.sum.add(&run.sum);
        self.last = Some(run.last.clone());
        Ok(())
    }

    fn finish(mut self, target: &str) -> Result<ListReport, StorageError> {
        self.flush()?;
        let hex = hex(self.hash.clone().finish().as_ref());
        let end = format!("end\t{}\t{hex}\n", self.sum.objects);
        let written = self.file.write_all(end.as_bytes());
        written.map_err(|error| self.file.write_error(error))?;
        self.file.publish(target, PublishMode::Replace)?;
        Ok(self.sum)
    }
}

/// A listing stored in a file.
#[derive(Debug)]
pub struct Manifest {
    file: FileHandle,
    shown: String,
    objects: u64,
    digest: String,
    /// The offsets of the first entry and of the end line.
    from: u64,
    to: u64,
}

impl Manifest {
    /// Opens a file that [`Remote::list_to`](super::Remote::list_to) wrote. Only reads its beginning and its end.
    ///
    /// # Errors
    ///
    /// As [`Dir::open_file`]; `storage-answer` for a file that is not a manifest or is truncated.
    pub fn open(dir: &Dir, name: &str) -> Result<Self, StorageError> {
        let file = dir.open_file(name)?;
        let size = file.len();
        let head = file.read_range(0, size.min(LINE as u64))?;
        let tail_from = size.saturating_sub(256);
        let tail = file.read_range(tail_from, size - tail_from)?;
        let parsed = (|| {
            let line = head.split(|byte| *byte == b'\n').next()?;
            let shown = std::str::from_utf8(line).ok()?;
            let shown = unescape(shown.strip_prefix(MAGIC)?.strip_prefix('\t')?)?;
            let body = tail.strip_suffix(b"\n")?;
            let begin = body.iter().rposition(|byte| *byte == b'\n')? + 1;
            let mut words = std::str::from_utf8(body.get(begin..)?).ok()?.split('\t');
            let is_end = words.next()? == "end";
            let objects = words.next()?.parse().ok()?;
            let digest = words.next()?.to_owned();
            let right = is_end && digest.len() == 64;
            right.then_some((shown, objects, digest, line.len() as u64 + 1, begin as u64))
        })();
        let Some((shown, objects, digest, from, begin)) = parsed else {
            return Err(no_manifest(&file));
        };
        Ok(Self {
            shown,
            objects,
            digest,
            from,
            to: tail_from + begin,
            file,
        })
    }

    /// Returns the listed URL, for display.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.shown
    }

    /// Returns the number of objects.
    #[must_use]
    pub const fn objects(&self) -> u64 {
        self.objects
    }

    /// Returns the SHA-256 of location and objects in hexadecimal. Equal listings have equal digests.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns an iterator over the objects, sorted by the bytes of their names. Uses a few hundred KiB of memory.
    #[must_use]
    pub fn entries(&self) -> ManifestEntries<'_> {
        ManifestEntries {
            manifest: self,
            at: self.from,
            held: Vec::new(),
            used: 0,
            count: 0,
            hash: self.hash_of_head(),
            failed: false,
        }
    }

    fn hash_of_head(&self) -> Context {
        let mut head = format!("{MAGIC}\t");
        escape_into(&self.shown, &mut head);
        head.push('\n');
        let mut hash = Context::new(&SHA256);
        hash.update(head.as_bytes());
        hash
    }

    /// Calls `each` for every difference, in the order of the names, with the old entry and the new entry.
    ///
    /// # Errors
    ///
    /// Errors of reading either manifest, and errors of `each`.
    pub fn compare(
        &self,
        now: &Self,
        mut each: impl FnMut(Option<&ManifestEntry>, Option<&ManifestEntry>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        if self.digest == now.digest {
            return Ok(());
        }
        let (mut old, mut new) = (self.entries(), now.entries());
        let (mut before, mut after) = (old.next().transpose()?, new.next().transpose()?);
        loop {
            let order = match (&before, &after) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(before), Some(after)) => before.name.cmp(&after.name),
            };
            match order {
                Ordering::Less => each(before.as_ref(), None)?,
                Ordering::Greater => each(None, after.as_ref())?,
                Ordering::Equal if before != after => each(before.as_ref(), after.as_ref())?,
                Ordering::Equal => {}
            }
            if order != Ordering::Greater {
                before = old.next().transpose()?;
            }
            if order != Ordering::Less {
                after = new.next().transpose()?;
            }
        }
    }
}

fn no_manifest(file: &FileHandle) -> StorageError {
    let what = "the file is no list of objects, or was cut off or changed";
    StorageError::Answer { what: what.into() }.at(file.path().to_string_lossy())
}

/// An iterator over the objects of a [`Manifest`]. The last step compares the digest.
pub struct ManifestEntries<'a> {
    manifest: &'a Manifest,
    at: u64,
    held: Vec<u8>,
    used: usize,
    count: u64,
    hash: Context,
    failed: bool,
}

impl std::fmt::Debug for ManifestEntries<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManifestEntries")
            .field("manifest", &self.manifest)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl ManifestEntries<'_> {
    fn step(&mut self) -> Result<Option<ManifestEntry>, StorageError> {
        let wrong = || no_manifest(&self.manifest.file);
        loop {
            let rest = self.held.get(self.used..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest.get(..end).unwrap_or_default();
                let line = std::str::from_utf8(line).map_err(|_| wrong())?;
                let entry = read_line(line).ok_or_else(wrong)?;
                self.hash.update(rest.get(..=end).unwrap_or_default());
                self.used += end + 1;
                self.count += 1;
                return Ok(Some(entry));
            }
            if self.at >= self.manifest.to {
                let hex = hex(self.hash.clone().finish().as_ref());
                let right = rest.is_empty()
                    && self.count == self.manifest.objects
                    && hex == self.manifest.digest;
                return if right { Ok(None) } else { Err(wrong()) };
            }
            if rest.len() > LINE {
                return Err(wrong());
            }
            self.held.drain(..self.used);
            self.used = 0;
            let length = CHUNK.min(self.manifest.to - self.at);
            let more = self.manifest.file.read_range(self.at, length)?;
            self.at += length;
            self.held.extend_from_slice(&more);
        }
    }
}

impl Iterator for ManifestEntries<'_> {
    type Item = Result<ManifestEntry, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = self.step().transpose();
        self.failed = !matches!(step, Some(Ok(_)));
        step
    }
}
