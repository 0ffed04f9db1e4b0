//! Decides where a listing is cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::error::StorageError;
use crate::remote::pages::{Listed, Page};

/// Appended to a prefix, this sorts after every key with that prefix.
pub(super) const LAST: char = '\u{10ffff}';

/// The budget of requests that may find little: this number, plus this share of the full pages. In all there are at
/// most 1.45 times as many requests as pages, plus this number.
const WASTE: f64 = 20.0;
const WASTE_SHARE: f64 = 0.45;

/// The estimated number of pages an interval must have left to be cut.
const WORTH: f64 = 2.0;

/// With this many requests in flight, only intervals that have proved to be long are cut. This is the usual number of
/// tasks.
const ENOUGH: u64 = 32;

/// The maximum number of letters that are considered for a cut.
const LEVELS: usize = 24;

/// The maximum number of unverified guesses at a position.
const GUESSES: usize = 3;

/// The maximum number of letters that are remembered.
const LETTERS: usize = 256;

/// The number of parts that an interval is cut into by its folders.
const PARTS: usize = 16;

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
    /// The position of the original interval when this one was cut off.
    pub(super) origin: Option<String>,
    /// The guess by which it was cut off, if the cut was not based on known keys.
    pub(super) guess: Option<Guess>,
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
pub(super) fn child_of<'a>(key: &'a str, folder: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(folder)?;
    let end = folder.len() + rest.find('/')?;
    key.get(..=end)
}

/// A cut at a letter that was only seen at other positions.
#[derive(Clone, Debug)]
pub(super) struct Guess {
    /// The text before the letter.
    head: String,
    letter: char,
    position: LetterPosition,
}

/// The position of a cut.
struct Point {
    at: String,
    guess: Option<Guess>,
    /// The prefix to record as tried, if no difference was seen there.
    tried: Option<String>,
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
    letters: Letters,
    guesses: Guesses,
    pub(super) folders: Folders,
    pub(super) failed: Option<StorageError>,
}

/// The requests of a listing.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) answered: u64,
    pub(super) active: u64,
}

/// What was seen of the keys.
#[derive(Debug, Default)]
struct Letters {
    all: BTreeSet<char>,
    /// The letters that were seen at each position.
    at: BTreeMap<LetterPosition, BTreeSet<char>>,
    /// Positions at which keys differ that are a page apart, or more.
    wide: BTreeSet<LetterPosition>,
    /// Prefixes after which different letters were seen.
    varies: BTreeSet<String>,
}

/// The cuts that were not based on known keys.
#[derive(Debug, Default)]
struct Guesses {
    /// Prefixes at which a cut was made only because keys differ at the same position elsewhere.
    tried: BTreeSet<String>,
    /// The number of unverified guesses at each position.
    pending: BTreeMap<LetterPosition, usize>,
    /// Positions where a guess was right.
    trusted: BTreeSet<LetterPosition>,
    /// The smallest letter at each position for which a guess found nothing.
    refuted: BTreeMap<LetterPosition, char>,
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

/// Returns the letters of a text with their offsets and positions.
fn letters_of(text: &str) -> impl Iterator<Item = (usize, char, LetterPosition)> {
    let mut next = (0, 0);
    text.char_indices().map(move |(at, letter)| {
        let position = next;
        next = if letter.is_alphanumeric() {
            (position.0, position.1 + 1)
        } else {
            (position.0 + 1, 0)
        };
        (at, letter, position)
    })
}

/// Returns the class of a letter: digit, lower case, alphanumeric. Keys rarely mix classes at one position.
fn kind(letter: char) -> (bool, bool, bool) {
    (
        letter.is_ascii_digit(),
        letter.is_lowercase(),
        letter.is_alphanumeric(),
    )
}

/// Returns a position after all known letters: after the digits, after the capitals, in the middle of the remaining lower
/// case letters. If there is none, returns one after all keys that begin with the last letter.
fn beyond(head: &str, here: char, last: char) -> Option<String> {
    let next = match last {
        '0'..='9' => ':',
        'A'..='Z' => '[',
        'a'..='y' => char::from_u32((u32::from(last) + u32::from('{')).div_ceil(2))?,
        _ if last > here => return Some(format!("{head}{last}{LAST}")),
        _ => return None,
    };
    Some(format!("{head}{next}"))
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

    /// Learns where keys differ.
    pub(super) fn learn(&mut self, objects: &[Listed]) {
        // PERF: a sample of the pairs is enough.
        for pair in objects.windows(2).step_by(7) {
            let [a, b] = pair else { continue };
            self.note(&a.key, &b.key);
        }
        if let (Some(a), Some(b)) = (objects.first(), objects.last()) {
            self.differ(&a.key, &b.key);
        }
    }

    /// Records the letters at which two keys differ. Returns the text before them and their position.
    fn note<'a>(&mut self, a: &'a str, b: &str) -> Option<(&'a str, LetterPosition)> {
        let mut pairs = letters_of(a).zip(b.chars());
        let ((at, a_letter, position), b_letter) = pairs.find(|((_, a, _), b)| a != b)?;
        if self.letters.all.len() < LETTERS {
            self.letters.all.extend([a_letter, b_letter]);
        }
        let here = self.letters.at.entry(position).or_default();
        if here.len() < LETTERS {
            here.extend([a_letter, b_letter]);
        }
        Some((a.get(..at)?, position))
    }

    /// Learns from two keys that are far apart.
    pub(super) fn differ(&mut self, a: &str, b: &str) {
        if let Some((head, position)) = self.note(a, b) {
            self.letters.varies.insert(head.to_owned());
            self.letters.wide.insert(position);
        }
    }

    /// Learns from the first key after a cut, or from its absence.
    pub(super) fn found(&mut self, cut: &Interval, key: Option<&str>) {
        if let Some(guess) = &cut.guess {
            if let Some(count) = self.guesses.pending.get_mut(&guess.position) {
                *count = count.saturating_sub(1);
            }
            if key.is_some_and(|key| key.starts_with(&guess.head)) {
                self.guesses.trusted.insert(guess.position);
            } else {
                let known = self
                    .guesses
                    .refuted
                    .entry(guess.position)
                    .or_insert(guess.letter);
                *known = guess.letter.min(*known);
            }
        }
        if let (Some(origin), Some(key)) = (&cut.origin, key) {
            self.differ(origin, key);
        }
    }

    /// Converts the text after a letter to a number below 1, with the seen letters as digits.
    fn value(&self, text: &str, at: usize) -> f64 {
        let base = number(self.letters.all.len().max(2));
        let mut digit = 1.0 / base;
        let mut value = 0.0;
        for letter in text.get(at..).unwrap_or_default().chars().take(4) {
            value += number(self.letters.all.range(..letter).count()) * digit;
            digit /= base;
        }
        value
    }

    /// Estimates how many pages an interval has left, if its density stays that of the last page.
    fn left(&self, interval: &Interval) -> f64 {
        const MANY: f64 = 1e9;

        let Some(pos) = &interval.pos else {
            return 0.0;
        };
        let level = common(&interval.from, pos);
        let width = self.value(pos, level) - self.value(&interval.from, level);
        let base = number(self.letters.all.len().max(2));
        let end_level = interval.known(pos);
        let guess = if width <= 0.0 {
            MANY
        } else if end_level >= level {
            let end = interval.end.as_deref().unwrap_or_default();
            (self.value(end, level) - self.value(pos, level)) / width
        } else {
            let may_differ = |(at, _, position): &(usize, char, LetterPosition)| {
                self.letters.wide.contains(position)
                    || pos
                        .get(..*at)
                        .is_some_and(|head| self.letters.varies.contains(head))
            };
            let between = letters_of(pos)
                .skip_while(|(at, ..)| *at < end_level)
                .take_while(|(at, ..)| *at < level);
            let more = between.filter(may_differ).count();
            let more = i32::try_from(more).unwrap_or(i32::MAX);
            base.powi(more.min(30)) / width
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
        let (at, ..) =
            letters_of(pos)
                .skip_while(|(at, ..)| *at < known)
                .find(|(at, _, position)| {
                    *at >= deepest
                        || self.letters.wide.contains(position)
                        || pos
                            .get(..*at)
                            .is_some_and(|head| self.letters.varies.contains(head))
                })?;
        (at > known).then(|| format!("{}{LAST}", pos.get(..at).unwrap_or_default()))
    }

    /// Returns where to cut an interval; `None` if nothing is known.
    fn point(&self, interval: &Interval) -> Option<Point> {
        let pos = interval.pos.as_deref()?;
        let begin = interval.known(pos);
        // Only deeper than the folders that are being listed already.
        let folding = self.folders.active.iter();
        let behind = folding.filter_map(|folder| child_of(pos, folder).map(str::len));
        let from = begin.max(behind.max().unwrap_or_default());
        // After the letter at which the last page differs, all keys with one letter fit on a page.
        let deepest = common(&interval.from, pos);
        let mut checked = 0;
        for (at, here, position) in letters_of(pos) {
            if at < from {
                continue;
            }
            if at > deepest || checked > LEVELS {
                return None;
            }
            let head = pos.get(..at)?;
            let is_sure = self.letters.varies.contains(head);
            if !is_sure
                && (!self.letters.wide.contains(&position) || self.guesses.tried.contains(head))
            {
                continue;
            }
            checked += 1;
            let limit = interval.end.as_ref().filter(|_| at == begin);
            let limit = limit.map(|end| {
                let mut rest = end.get(at..).unwrap_or_default().chars();
                (rest.next(), rest.next().is_some())
            });
            let fits = |letter: &char| match limit {
                None => true,
                Some((Some(last), has_more)) => *letter < last || *letter == last && has_more,
                Some((None, _)) => false,
            };
            let above = (Bound::Excluded(here), Bound::Unbounded);
            let known = self.letters.at.get(&position);
            // Once: check whether there are keys after all known letters.
            if is_sure
                && (interval.end.is_none() || matches!(limit, Some((Some(LAST), _))))
                && let Some(last) = known.and_then(BTreeSet::last)
                && *last >= here
                && let Some(beyond) = beyond(head, here, *last)
                && interval.end.as_ref().is_none_or(|end| beyond < *end)
                && !self.guesses.tried.contains(&beyond)
            {
                return Some(Point {
                    tried: Some(beyond.clone()),
                    at: beyond,
                    guess: None,
                });
            }
            let known = known.into_iter().flat_map(|known| known.range(above));
            let letters: Vec<char> = known.copied().filter(fits).collect();
            if let Some(letter) = letters.get(letters.len() / 2) {
                return Some(Point {
                    at: format!("{head}{letter}"),
                    guess: None,
                    tried: Some(head.to_owned()).filter(|_| !is_sure),
                });
            }
            // If no letters are known here, use those of other positions. Few at once, until a guess is right.
            let max = if self.guesses.refuted.contains_key(&position) {
                1
            } else if self.guesses.trusted.contains(&position) {
                usize::MAX
            } else {
                GUESSES
            };
            if !is_sure
                || self
                    .guesses
                    .pending
                    .get(&position)
                    .is_some_and(|count| *count >= max)
            {
                continue;
            }
            let refuted = self.guesses.refuted.get(&position).copied().unwrap_or(LAST);
            let others = self.letters.all.range(above).copied();
            let of_kind = |letter: &char| {
                let known = self.letters.at.get(&position).into_iter().flatten();
                known
                    .chain([&here])
                    .any(|known| kind(*known) == kind(*letter))
            };
            let others: Vec<char> = others
                .filter(|letter| fits(letter) && *letter < refuted && of_kind(letter))
                .collect();
            if let Some(letter) = others.get(others.len() / 2) {
                let guess = Guess {
                    head: head.to_owned(),
                    letter: *letter,
                    position,
                };
                return Some(Point {
                    at: format!("{head}{letter}"),
                    guess: Some(guess),
                    tried: None,
                });
            }
        }
        None
    }

    /// Returns the shallowest folder in an interval that was not listed yet, and that the last page did not leave.
    fn fold(&self, interval: &Interval, begins_anywhere: bool) -> Option<String> {
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
                return Some(name).filter(|name| begins_anywhere || interval.is_within(name));
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
            let Some(interval) = self.intervals.get(&id) else {
                continue;
            };
            if ways.begins_anywhere
                && let Some(point) = self.probe(interval)
                && let Some(new) = self.cut(id, point)
            {
                return Some(Job::List(new));
            }
            let Some(interval) = self.intervals.get(&id) else {
                continue;
            };
            // If cuts by letters are possible, only the folders above the first page are listed.
            if (id == 0 || !ways.begins_anywhere)
                && let Some(folder) = self.fold(interval, ways.begins_anywhere)
            {
                self.folders.requested.insert(folder.clone());
                self.folders.active.insert(folder.clone());
                return Some(Job::Fold(id, folder));
            }
            if !ways.begins_anywhere {
                continue;
            }
            if let Some(point) = self.point(interval)
                && let Some(new) = self.cut(id, point.at)
            {
                self.guesses.tried.extend(point.tried);
                if let Some(guess) = &point.guess {
                    *self.guesses.pending.entry(guess.position).or_default() += 1;
                }
                if let Some(cut) = self.intervals.get_mut(&new) {
                    cut.guess = point.guess;
                }
                return Some(Job::List(new));
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
            origin: interval.pos.clone(),
            ..Interval::default()
        };
        interval.pages = 0;
        let new_id = self.next;
        self.next += 1;
        self.intervals.insert(new_id, new);
        Some(new_id)
    }

    /// Cuts an interval at some of its folders.
    pub(super) fn cut_at_folders(&mut self, id: u64, folders: &[String]) {
        for pair in folders.windows(2).take(LETTERS) {
            if let [a, b] = pair {
                self.differ(a, b);
            }
        }
        let Some(interval) = self.intervals.get(&id) else {
            return;
        };
        let pos = interval.pos.clone().unwrap_or_default();
        let end = interval.end.clone();
        // The number of folders per page: each part should be worth some pages.
        let passed = folders.iter().filter(|name| **name <= pos).count();
        let behind: Vec<_> = folders
            .iter()
            .filter(|name| **name > pos && end.as_ref().is_none_or(|end| *name < end))
            .collect();
        let every = behind.len().div_ceil(PARTS).max((passed + 1) * 2);
        // From the last to the first, so that the same interval is cut each time.
        for name in behind.into_iter().step_by(every).rev() {
            if let Some(new) = self.cut(id, name.clone()) {
                self.waiting.push(new);
            }
        }
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
