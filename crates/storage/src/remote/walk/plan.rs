//! Decides where a listing is cut.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::StorageError;
use crate::remote::pages::{Listed, Page};

/// Appended to a prefix, this sorts after every key with that prefix.
const LAST: char = '\u{10ffff}';

/// The budget of requests that may find little: this number, plus this share of the full pages. In all there are at
/// most 1.45 times as many requests as pages, plus this number.
const WASTE: f64 = 20.0;
const WASTE_SHARE: f64 = 0.45;

/// The estimated number of pages an interval must have left to be cut.
const WORTH: f64 = 2.0;

/// With this many requests in flight, only intervals that have proved to be long are cut. This is the usual number of
/// tasks.
const ENOUGH: u64 = 32;

/// The maximum number of letters that are remembered.
const LETTERS: usize = 256;

/// Estimates are at most this many pages.
const MANY: f64 = 1e9;

/// The capabilities of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// The number of objects per page.
    pub(crate) size: u32,
    pub(crate) begins_anywhere: bool,
    pub(crate) has_folders: bool,
}

/// A part of the key space: keys with the prefix, after `after` (exclusive) and up to `end` (inclusive).
#[derive(Clone, Debug, Default)]
pub(super) struct Interval {
    pub(super) prefix: String,
    pub(super) after: Option<String>,
    pub(super) end: Option<String>,
    pub(super) token: Option<String>,
    /// The last key that was listed.
    pub(super) pos: Option<String>,
    /// The first key of the last page.
    pub(super) from: String,
    /// The number of pages since it was cut.
    pub(super) pages: u32,
}

impl Interval {
    /// Returns how many leading bytes of `key` all remaining keys of the interval share.
    fn known(&self, key: &str) -> usize {
        let end = self.end.as_ref();
        end.map_or(self.prefix.len(), |end| common(key, end))
    }

    /// Returns whether all remaining keys of the interval begin with `folder`.
    fn is_within(&self, folder: &str) -> bool {
        self.prefix.starts_with(folder)
            || self.end.as_ref().is_some_and(|end| end.starts_with(folder))
                && self.pos.as_ref().is_some_and(|pos| pos.starts_with(folder))
    }
}

/// Returns the direct subfolder of `folder` that contains `key`.
fn child_of<'a>(key: &'a str, folder: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(folder)?;
    let end = folder.len() + rest.find('/')?;
    key.get(..=end)
}

/// The next job of a task.
pub(super) enum Job {
    List(u64),
    /// Lists the direct subfolders of a prefix, to cut the interval by them.
    Fold(u64, String),
}

/// The state of a listing.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) intervals: BTreeMap<u64, Interval>,
    /// Intervals that no task has started.
    pub(super) waiting: Vec<u64>,
    next: u64,
    pub(super) requests: Requests,
    /// The number of keys that were found.
    pub(super) keys: u64,
    /// The letters at which keys differ: all of them, and those of each position.
    letters: BTreeSet<char>,
    at: BTreeMap<LetterPosition, BTreeSet<char>>,
    /// The smallest letter at each position, after all known ones, for which a cut found nothing.
    refuted: BTreeMap<LetterPosition, char>,
    pub(super) folders: Folders,
    pub(super) failed: Option<StorageError>,
}

/// The requests of a listing.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) answered: u64,
    pub(super) active: u64,
}

/// Prefixes whose direct subfolders are listed.
#[derive(Debug, Default)]
pub(super) struct Folders {
    requested: BTreeSet<String>,
    pub(super) active: BTreeSet<String>,
}

/// The position of a letter in a key: the number of separators before it, and the number of letters and digits since
/// the last separator. So parts of different lengths before it do not matter.
pub(super) type LetterPosition = (usize, usize);

/// Returns the position after a letter.
fn position_after(position: LetterPosition, letter: char) -> LetterPosition {
    if letter.is_alphanumeric() {
        (position.0, position.1 + 1)
    } else {
        (position.0 + 1, 0)
    }
}

/// Returns the letters of a text with their offsets and positions.
fn letters_of(text: &str) -> impl Iterator<Item = (usize, char, LetterPosition)> {
    let mut next = (0, 0);
    text.char_indices().map(move |(at, letter)| {
        let position = next;
        next = position_after(position, letter);
        (at, letter, position)
    })
}

/// Returns the length of the common prefix of two texts in bytes, at a character boundary.
fn common(a: &str, b: &str) -> usize {
    let mut pairs = a.char_indices().zip(b.chars());
    let differs = pairs.find(|((_, a), b)| a != b);
    differs.map_or_else(|| a.len().min(b.len()), |((at, _), _)| at)
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl State {
    /// Returns whether no task has anything left to do.
    pub(super) fn is_over(&self) -> bool {
        self.failed.is_some() || self.intervals.is_empty() && self.folders.active.is_empty()
    }

    pub(super) fn add(&mut self, interval: Interval) {
        let id = self.next;
        self.next += 1;
        self.intervals.insert(id, interval);
        self.waiting.push(id);
    }

    /// Learns where keys differ, from a page of an interval.
    pub(super) fn learn(&mut self, interval: &Interval, objects: &[Listed]) {
        // PERF: a sample of the pairs is enough.
        for pair in objects.windows(2).step_by(7) {
            let [a, b] = pair else { continue };
            self.differ(&a.key, &b.key);
        }
        if let (Some(a), Some(b)) = (objects.first(), objects.last()) {
            self.differ(&a.key, &b.key);
            if let Some(before) = interval.pos.as_ref().or(interval.after.as_ref()) {
                self.differ(before, &a.key);
            }
        }
    }

    /// Records the letters at which two keys differ.
    fn differ(&mut self, a: &str, b: &str) {
        let mut pairs = letters_of(a).zip(b.chars());
        let Some(((_, a, position), b)) = pairs.find(|((_, a, _), b)| a != b) else {
            return;
        };
        let here = self.at.entry(position).or_default();
        for letters in [here, &mut self.letters] {
            if letters.len() < LETTERS {
                letters.extend([a, b]);
            }
        }
    }

    /// Learns that a cut found nothing.
    pub(super) fn refute(&mut self, cut: &str) {
        let Some((_, letter, position)) = letters_of(cut).last() else {
            return;
        };
        let known = self.at.get(&position).and_then(BTreeSet::last);
        if letter != LAST && known.is_none_or(|last| *last < letter) {
            let refuted = self.refuted.entry(position).or_insert(letter);
            *refuted = letter.min(*refuted);
        }
    }

    /// Returns the letters that are expected at a position, sorted: those at which keys differ there, and those of
    /// other positions that complete numbers, hexadecimal numbers or foreign words. `own` is the letter of the key that
    /// was listed last. After a separator of that key, keys do not differ.
    fn alphabet(&self, position: LetterPosition, own: Option<char>) -> Vec<char> {
        let known = self.at.get(&position);
        let known = known.filter(|_| own.is_none_or(char::is_alphanumeric));
        let Some(known) = known else {
            return own.into_iter().collect();
        };
        let refuted = self.refuted.get(&position).copied().unwrap_or(LAST);
        let has = |is: fn(&char) -> bool| known.iter().any(is);
        let is_number = has(char::is_ascii_digit);
        let is_hexadecimal = is_number && has(char::is_ascii_lowercase);
        let is_foreign = has(|letter| !letter.is_ascii());
        let completes = |letter: char| match letter {
            '0'..='9' => is_number,
            'a'..='f' => is_hexadecimal,
            _ => is_foreign && !letter.is_ascii(),
        };
        let letters = self.letters.iter().copied();
        let mut found: Vec<char> = letters
            .filter(|letter| known.contains(letter) || *letter < refuted && completes(*letter))
            .collect();
        if let Some(own) = own
            && let Err(at) = found.binary_search(&own)
        {
            found.insert(at, own);
        }
        found
    }

    /// Converts the text after an offset to a number of at most 1, with the letters of each position as digits. `pos` is
    /// the key that was listed last.
    fn value(&self, text: &str, at: usize, pos: &str) -> f64 {
        const EXACT: f64 = 1e-12;

        let (mut scale, mut value) = (1.0, 0.0);
        let mut own = pos.get(at..).unwrap_or_default().chars();
        let mut is_own = true;
        for (_, letter, position) in letters_of(text).skip_while(|(offset, ..)| *offset < at) {
            let here = own.next().filter(|_| is_own);
            is_own &= here == Some(letter);
            let alphabet = self.alphabet(position, here);
            let base = alphabet.len().max(1);
            let digit = match letter {
                LAST => base,
                _ => alphabet.partition_point(|known| *known < letter),
            };
            scale /= number(base);
            value += scale * number(digit);
            if digit >= base || scale < EXACT {
                break;
            }
        }
        value
    }

    /// Returns the number of the end of an interval.
    fn value_of_end(&self, interval: &Interval, at: usize, pos: &str) -> f64 {
        let end = interval.end.as_ref();
        end.map_or(1.0, |end| self.value(end, at, pos))
    }

    /// Estimates how many pages an interval has left, if its density stays that of the last page.
    fn left(&self, interval: &Interval) -> f64 {
        let Some(pos) = interval.pos.as_deref() else {
            return 0.0;
        };
        if self.probe(interval).is_some() {
            return MANY;
        }
        let level = interval.known(pos).min(common(&interval.from, pos));
        let here = self.value(pos, level, pos);
        let width = here - self.value(&interval.from, level, pos);
        let guess = if width > 0.0 {
            (self.value_of_end(interval, level, pos) - here) / width
        } else {
            MANY
        };
        // An interval that was long so far is likely to stay long.
        guess.max(f64::from(interval.pages) / 2.0).min(MANY)
    }

    /// Returns a position after all keys that share the prefix within which differences were seen. The request there
    /// shows whether keys also differ earlier. If it finds nothing, the range is not searched again.
    fn probe(&self, interval: &Interval) -> Option<String> {
        let pos = interval.pos.as_deref()?;
        let known = interval.known(pos);
        let deepest = common(&interval.from, pos);
        let (at, ..) = letters_of(pos)
            .skip_while(|(at, ..)| *at < known)
            .find(|(at, _, position)| *at >= deepest || self.at.contains_key(position))?;
        (at > known).then(|| format!("{}{LAST}", pos.get(..at).unwrap_or_default()))
    }

    /// Returns a position after all letters that are expected where an interval has no end: after the digits, in the
    /// middle of the remaining lower case letters. Returns `None` where such a cut has found nothing.
    fn beyond(&self, interval: &Interval) -> Option<String> {
        let pos = interval.pos.as_deref()?;
        let level = interval.known(pos);
        let end = interval.end.as_ref().and_then(|end| end.get(level..));
        let (_, own, position) = letters_of(pos).find(|(at, ..)| *at == level)?;
        if end.is_some_and(|end| !end.starts_with(LAST))
            || !self.at.contains_key(&position)
            || self.refuted.contains_key(&position)
        {
            return None;
        }
        let next = match *self.alphabet(position, Some(own)).last()? {
            '0'..='9' => ':',
            last @ 'a'..='y' => char::from_u32((u32::from(last) + u32::from('{')).div_ceil(2))?,
            last => char::from_u32(u32::from(last) + 1)?,
        };
        Some(format!("{}{next}", pos.get(..level)?))
    }

    /// Returns the position in the middle of what an interval has left, as numbers.
    fn middle(&self, interval: &Interval) -> Option<String> {
        /// How many letters may follow those of the last key.
        const LONGER: usize = 8;

        let pos = interval.pos.as_deref()?;
        let level = interval.known(pos);
        let end = self.value_of_end(interval, level, pos);
        let mut rest = f64::midpoint(self.value(pos, level, pos), end);
        let mut text = pos.get(..level)?.to_owned();
        let mut position = text.chars().fold((0, 0), position_after);
        let mut own = pos.get(level..)?.chars();
        while text.len() <= pos.len() + LONGER {
            let here = own.next();
            let alphabet = self.alphabet(position, here);
            rest *= number(alphabet.len());
            let digits = alphabet.iter().enumerate();
            let (digit, letter) = digits.take_while(|(at, _)| number(*at) <= rest).last()?;
            rest -= number(digit);
            text.push(*letter);
            if here != Some(*letter) {
                return Some(text);
            }
            position = position_after(position, *letter);
        }
        None
    }

    /// Returns the shallowest folder in an interval that was not listed yet, and that the last page did not leave.
    fn fold(&self, interval: &Interval) -> Option<String> {
        let pos = interval.pos.as_deref()?;
        let known = pos.get(..interval.known(pos))?;
        let mut folder = known.rfind('/').map_or(0, |at| at + 1);
        loop {
            let name = pos.get(..folder)?;
            let child = pos.get(folder..)?.find('/')?;
            if !interval.from.starts_with(name) {
                return None;
            }
            if !self.folders.requested.contains(name) {
                let name = name.to_owned();
                return Some(name).filter(|name| interval.is_within(name));
            }
            folder += child + 1;
        }
    }

    fn may_waste(&self, size: u32) -> bool {
        let full =
            number(usize::try_from(self.keys).unwrap_or(usize::MAX)) / f64::from(size.max(1));
        let calls = number(
            usize::try_from(self.requests.answered + self.requests.active).unwrap_or(usize::MAX),
        );
        calls - full <= WASTE + WASTE_SHARE * full
    }

    /// Returns a job for an idle task.
    pub(super) fn steal(&mut self, ways: Ways) -> Option<Job> {
        if ways.has_folders || !self.may_waste(ways.size) {
            return None;
        }
        let mut order: Vec<(u64, f64)> = self
            .intervals
            .iter()
            .filter(|(id, interval)| interval.pos.is_some() && !self.waiting.contains(id))
            .filter(|(_, interval)| self.requests.active < ENOUGH || interval.pages >= 2)
            .map(|(id, interval)| (*id, self.left(interval)))
            .filter(|(_, left)| *left >= WORTH)
            .collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (id, _) in order {
            let interval = self.intervals.get(&id)?;
            if ways.begins_anywhere {
                let point = self.probe(interval).or_else(|| self.beyond(interval));
                let point = point.or_else(|| self.middle(interval));
                if let Some(new) = point.and_then(|point| self.cut(id, point)) {
                    return Some(Job::List(new));
                }
            } else if let Some(folder) = self.fold(interval) {
                self.folders.requested.insert(folder.clone());
                self.folders.active.insert(folder.clone());
                return Some(Job::Fold(id, folder));
            }
        }
        None
    }

    /// Cuts an interval in two. Returns the id of the part after `point`.
    fn cut(&mut self, id: u64, point: String) -> Option<u64> {
        let interval = self.intervals.get_mut(&id)?;
        let behind = interval.pos.as_ref().is_none_or(|pos| point > *pos)
            && interval.after.as_ref().is_none_or(|after| point > *after)
            && interval.end.as_ref().is_none_or(|end| point < *end);
        if !behind {
            return None;
        }
        let new = Interval {
            prefix: interval.prefix.clone(),
            after: Some(point.clone()),
            end: interval.end.replace(point),
            ..Interval::default()
        };
        interval.pages = 0;
        let new_id = self.next;
        self.next += 1;
        self.intervals.insert(new_id, new);
        Some(new_id)
    }

    /// Makes each folder an interval of its own, for stores where a listing cannot begin at any key. The current
    /// interval ends after its current folder. Returns the objects that are not in a subfolder.
    pub(super) fn part_by_folders(&mut self, id: u64, folder: &str, found: Page) -> Vec<Listed> {
        let Some(interval) = self.intervals.get_mut(&id) else {
            return Vec::new();
        };
        // Meanwhile the interval may have left the folder, or may extend past it.
        let Some(pos) = interval.pos.clone().filter(|pos| pos.starts_with(folder)) else {
            return Vec::new();
        };
        if !interval.is_within(folder) {
            return Vec::new();
        }
        let stop = match child_of(&pos, folder) {
            Some(child) => format!("{child}{LAST}"),
            None => pos,
        };
        let end = interval.end.clone();
        if end.as_ref().is_some_and(|end| *end <= stop) {
            return Vec::new();
        }
        interval.end = Some(stop.clone());
        interval.pages = 0;
        let prefix = interval.prefix.clone();
        let inside = |key: &str| {
            *key > *stop && end.as_ref().is_none_or(|end| *key <= **end) && key.starts_with(&prefix)
        };
        for name in found.prefixes {
            // The end of the interval may be within a folder.
            let cut = end.as_ref().filter(|end| end.starts_with(&name)).cloned();
            if name > stop
                && name.starts_with(&prefix)
                && end.as_ref().is_none_or(|end| name <= *end)
            {
                self.add(Interval {
                    prefix: name,
                    end: cut,
                    ..Interval::default()
                });
            }
        }
        let objects = found.objects.into_iter();
        objects.filter(|listed| inside(&listed.key)).collect()
    }
}
