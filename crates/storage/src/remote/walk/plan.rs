//! Where a listing is cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::Ways;
use crate::fault::RemoteFault;
use crate::remote::store_provider::{Listed, Page};

/// Behind every key that begins with what is in front of it.
pub(super) const LAST: char = '\u{10ffff}';

/// Requests that may find little: so many, and this share of the full pages. In all there are at most 1.45 times as many
/// as pages, and these.
const WASTE: f64 = 20.0;
const WASTE_SHARE: f64 = 0.45;

/// Pages that an interval has to have left to be cut.
const WORTH: f64 = 2.0;

/// With so many requests under way, only intervals are cut that have shown that they are long: as many as there are usually.
const ENOUGH: u64 = 32;

/// Letters that are looked at for a cut, from the first that may differ.
const LEVELS: usize = 24;

/// Guesses at a place under way, where none was right or wrong yet.
const GUESSES: usize = 3;

/// Letters that are remembered.
const LETTERS: usize = 256;

/// Parts that an interval is cut into by the folders in it.
const PARTS: usize = 16;

/// A part of the key space: keys with the prefix, behind `after`, up to `end`.
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
    /// The key that had been reached where it was cut off.
    pub(super) origin: Option<String>,
    /// What was not known where it was cut off.
    pub(super) guess: Option<Guess>,
    /// Pages since it was cut.
    pub(super) pages: u32,
}

impl Interval {
    /// How many bytes at the beginning of a key in it all that is left of it has.
    fn known(&self, key: &str) -> usize {
        let end = self.end.as_ref();
        end.map_or(self.prefix.len(), |end| common(key, end))
    }

    /// Whether all that is left of it begins with a folder.
    fn is_within(&self, folder: &str) -> bool {
        self.prefix.starts_with(folder)
            || self.end.as_ref().is_some_and(|end| end.starts_with(folder))
                && self.pos.as_ref().is_some_and(|pos| pos.starts_with(folder))
    }
}

/// The folder right beneath another one that a key is in.
pub(super) fn child_of<'a>(key: &'a str, folder: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(folder)?;
    let end = folder.len() + rest.find('/')?;
    key.get(..=end)
}

/// A cut at a letter that was seen elsewhere only.
#[derive(Clone, Debug)]
pub(super) struct Guess {
    /// What is in front of the letter.
    head: String,
    letter: char,
    place: Place,
}

/// Where to cut.
struct Point {
    at: String,
    guess: Option<Guess>,
    /// The beginning that it lies behind, if nothing was seen to differ there.
    tried: Option<String>,
}

/// What a task does next.
pub(super) enum Job {
    List(u64),
    /// Lists the folders right beneath a prefix, to cut the interval by them.
    Fold(u64, String),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) intervals: BTreeMap<u64, Interval>,
    /// Those that nobody has begun.
    pub(super) waiting: Vec<u64>,
    pub(super) next: u64,
    /// Requests that were answered, and those under way.
    pub(super) calls: u64,
    pub(super) active: u64,
    pub(super) keys: u64,
    pub(super) letters: BTreeSet<char>,
    /// The letters that were seen to differ at a place.
    pub(super) places: BTreeMap<Place, BTreeSet<char>>,
    /// Places at which keys differ that are a page apart, or more.
    pub(super) wide: BTreeSet<Place>,
    /// Beginnings of keys behind which different letters were seen.
    pub(super) varies: BTreeSet<String>,
    /// Beginnings behind which a cut was made only because keys differ at such a place elsewhere.
    pub(super) tried: BTreeSet<String>,
    /// Places where a guess was made that nobody has answered yet.
    pub(super) guessing: BTreeMap<Place, usize>,
    /// Places where a guess was right.
    pub(super) trusted: BTreeSet<Place>,
    /// The first letters at a place behind which there was nothing when it was guessed.
    pub(super) refuted: BTreeMap<Place, char>,
    /// Prefixes whose folders were asked for, and those of them under way.
    pub(super) folded: BTreeSet<String>,
    pub(super) folding: BTreeSet<String>,
    pub(super) failed: Option<RemoteFault>,
}

/// Where in a key a letter is: behind so many signs that are no letters or digits, and so many letters behind the last of
/// them. Names of other lengths in front of it do not matter then.
pub(super) type Place = (usize, usize);

/// The letters of a text: where each begins, and its place.
fn letters_of(text: &str) -> impl Iterator<Item = (usize, char, Place)> {
    let mut next = (0, 0);
    text.char_indices().map(move |(at, letter)| {
        let place = next;
        next = if letter.is_alphanumeric() {
            (place.0, place.1 + 1)
        } else {
            (place.0 + 1, 0)
        };
        (at, letter, place)
    })
}

/// Digits are seldom among letters, small letters among capital ones, ...
fn kind(letter: char) -> (bool, bool, bool) {
    (
        letter.is_ascii_digit(),
        letter.is_lowercase(),
        letter.is_alphanumeric(),
    )
}

/// Where there may be something behind all letters that are known: behind the digits, behind the capital letters, in the
/// middle of the small ones that are left; else behind all that begins with the last one.
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

/// Bytes that two texts have in common from their beginning, up to a letter.
fn common(a: &str, b: &str) -> usize {
    let mut pairs = a.char_indices().zip(b.chars());
    let differs = pairs.find(|((_, a), b)| a != b);
    differs.map_or_else(|| a.len().min(b.len()), |((at, _), _)| at)
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl State {
    pub(super) fn add(&mut self, interval: Interval) {
        let id = self.next;
        self.next += 1;
        self.intervals.insert(id, interval);
        self.waiting.push(id);
    }

    /// Learns where keys differ.
    pub(super) fn learn(&mut self, objects: &[Listed]) {
        // PERF: some of them tell as much as all.
        for pair in objects.windows(2).step_by(7) {
            let [a, b] = pair else { continue };
            self.note(&a.key, &b.key);
        }
        if let (Some(a), Some(b)) = (objects.first(), objects.last()) {
            self.differ(&a.key, &b.key);
        }
    }

    /// Remembers the letters at which two keys differ; what is in front of them, and their place.
    fn note<'a>(&mut self, a: &'a str, b: &str) -> Option<(&'a str, Place)> {
        let mut pairs = letters_of(a).zip(b.chars());
        let ((at, a_letter, place), b_letter) = pairs.find(|((_, a, _), b)| a != b)?;
        if self.letters.len() < LETTERS {
            self.letters.extend([a_letter, b_letter]);
        }
        let here = self.places.entry(place).or_default();
        if here.len() < LETTERS {
            here.extend([a_letter, b_letter]);
        }
        Some((a.get(..at)?, place))
    }

    /// Learns from two keys that are far from each other.
    pub(super) fn differ(&mut self, a: &str, b: &str) {
        if let Some((head, place)) = self.note(a, b) {
            self.varies.insert(head.to_owned());
            self.wide.insert(place);
        }
    }

    /// Learns from the first key behind a cut, if there is one.
    pub(super) fn found(&mut self, cut: &Interval, key: Option<&str>) {
        if let Some(guess) = &cut.guess {
            if let Some(count) = self.guessing.get_mut(&guess.place) {
                *count = count.saturating_sub(1);
            }
            if key.is_some_and(|key| key.starts_with(&guess.head)) {
                self.trusted.insert(guess.place);
            } else {
                let known = self.refuted.entry(guess.place).or_insert(guess.letter);
                *known = guess.letter.min(*known);
            }
        }
        if let (Some(origin), Some(key)) = (&cut.origin, key) {
            self.differ(origin, key);
        }
    }

    /// The text from a letter on as a number below 1, in the letters that were seen.
    fn value(&self, text: &str, at: usize) -> f64 {
        let base = number(self.letters.len().max(2));
        let mut digit = 1.0 / base;
        let mut value = 0.0;
        for letter in text.get(at..).unwrap_or_default().chars().take(4) {
            value += number(self.letters.range(..letter).count()) * digit;
            digit /= base;
        }
        value
    }

    /// How many pages an interval may have left, if keys go on as they were on its last page.
    fn left(&self, interval: &Interval) -> f64 {
        const MANY: f64 = 1e9;

        let Some(pos) = &interval.pos else {
            return 0.0;
        };
        let level = common(&interval.from, pos);
        let width = self.value(pos, level) - self.value(&interval.from, level);
        let base = number(self.letters.len().max(2));
        let end_level = interval.known(pos);
        let guess = if width <= 0.0 {
            MANY
        } else if end_level >= level {
            let end = interval.end.as_deref().unwrap_or_default();
            (self.value(end, level) - self.value(pos, level)) / width
        } else {
            let may_differ = |(at, _, place): &(usize, char, Place)| {
                self.wide.contains(place)
                    || pos
                        .get(..*at)
                        .is_some_and(|head| self.varies.contains(head))
            };
            let between = letters_of(pos)
                .skip_while(|(at, ..)| *at < end_level)
                .take_while(|(at, ..)| *at < level);
            let more = between.filter(may_differ).count();
            let more = i32::try_from(more).unwrap_or(i32::MAX);
            base.powi(more.min(30)) / width
        };
        // Where it went on for long, it may go on as long again.
        guess.max(f64::from(interval.pages) / 2.0).min(MANY)
    }

    /// Behind all keys that begin as those do among which differences were seen. Whether there is anything behind them says
    /// whether keys differ nearer to their beginnings as well; where there is nothing, that is never looked at again.
    fn probe(&self, interval: &Interval) -> Option<String> {
        let pos = interval.pos.as_deref()?;
        let known = interval.known(pos);
        let deepest = common(&interval.from, pos);
        let (at, ..) =
            letters_of(pos)
                .skip_while(|(at, ..)| *at < known)
                .find(|(at, _, place)| {
                    *at >= deepest
                        || self.wide.contains(place)
                        || pos
                            .get(..*at)
                            .is_some_and(|head| self.varies.contains(head))
                })?;
        (at > known).then(|| format!("{}{LAST}", pos.get(..at).unwrap_or_default()))
    }

    /// Where to cut an interval; `None` where nothing tells.
    fn point(&self, interval: &Interval) -> Option<Point> {
        let pos = interval.pos.as_deref()?;
        let begin = interval.known(pos);
        // The folders of what is in front of it are on their way: deeper ones only.
        let folding = self.folding.iter();
        let behind = folding.filter_map(|folder| child_of(pos, folder).map(str::len));
        let from = begin.max(behind.max().unwrap_or_default());
        // Behind the letter at which the last page differs, all of a kind fit on a page.
        let deepest = common(&interval.from, pos);
        let mut looked = 0;
        for (at, here, place) in letters_of(pos) {
            if at < from {
                continue;
            }
            if at > deepest || looked > LEVELS {
                return None;
            }
            let head = pos.get(..at)?;
            let is_sure = self.varies.contains(head);
            if !is_sure && (!self.wide.contains(&place) || self.tried.contains(head)) {
                continue;
            }
            looked += 1;
            let limit = interval.end.as_ref().filter(|_| at == begin);
            let limit = limit.map(|end| {
                let mut rest = end.get(at..).unwrap_or_default().chars();
                (rest.next(), rest.next().is_some())
            });
            let fits = |letter: &char| match limit {
                None => true,
                Some((Some(last), goes_on)) => *letter < last || *letter == last && goes_on,
                Some((None, _)) => false,
            };
            let above = (Bound::Excluded(here), Bound::Unbounded);
            let known = self.places.get(&place);
            // Once: is there anything behind all that is known?
            if is_sure
                && (interval.end.is_none() || matches!(limit, Some((Some(LAST), _))))
                && let Some(last) = known.and_then(BTreeSet::last)
                && *last >= here
                && let Some(beyond) = beyond(head, here, *last)
                && interval.end.as_ref().is_none_or(|end| beyond < *end)
                && !self.tried.contains(&beyond)
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
            // Where there are none, those of any other place: few at once, until one is right.
            let most = if self.refuted.contains_key(&place) {
                1
            } else if self.trusted.contains(&place) {
                usize::MAX
            } else {
                GUESSES
            };
            if !is_sure
                || self
                    .guessing
                    .get(&place)
                    .is_some_and(|count| *count >= most)
            {
                continue;
            }
            let refuted = self.refuted.get(&place).copied().unwrap_or(LAST);
            let others = self.letters.range(above).copied();
            let of_kind = |letter: &char| {
                let known = self.places.get(&place).into_iter().flatten();
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
                    place,
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

    /// The shallowest folder in an interval whose folders nobody has asked for, of those that the last page did not leave.
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
            if !self.folded.contains(name) {
                let name = name.to_owned();
                return Some(name).filter(|name| begins_anywhere || interval.is_within(name));
            }
            folder += child + 1;
        }
    }

    fn may_waste(&self, size: u32) -> bool {
        let full =
            number(usize::try_from(self.keys).unwrap_or(usize::MAX)) / f64::from(size.max(1));
        let calls = number(usize::try_from(self.calls + self.active).unwrap_or(usize::MAX));
        calls - full <= WASTE + WASTE_SHARE * full
    }

    /// What a task without an interval can do.
    pub(super) fn steal(&mut self, ways: Ways) -> Option<Job> {
        if ways.has_folders || !self.may_waste(ways.size) {
            return None;
        }
        let mut order: Vec<(u64, f64)> = self
            .intervals
            .iter()
            .filter(|(id, interval)| interval.pos.is_some() && !self.waiting.contains(id))
            .filter(|(_, interval)| self.active < ENOUGH || interval.pages >= 2)
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
            // Where letters serve as well, the folders on the way to the first page are enough.
            if (id == 0 || !ways.begins_anywhere)
                && let Some(folder) = self.fold(interval, ways.begins_anywhere)
            {
                self.folded.insert(folder.clone());
                self.folding.insert(folder.clone());
                return Some(Job::Fold(id, folder));
            }
            if !ways.begins_anywhere {
                continue;
            }
            if let Some(point) = self.point(interval)
                && let Some(new) = self.cut(id, point.at)
            {
                self.tried.extend(point.tried);
                if let Some(guess) = &point.guess {
                    *self.guessing.entry(guess.place).or_default() += 1;
                }
                if let Some(cut) = self.intervals.get_mut(&new) {
                    cut.guess = point.guess;
                }
                return Some(Job::List(new));
            }
        }
        None
    }

    /// Cuts an interval in two; the id of the part behind the point.
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

    /// Cuts an interval at some of the folders that were found in it.
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
        // How many a page holds: a cut is worth some pages.
        let passed = folders.iter().filter(|name| **name <= pos).count();
        let behind: Vec<_> = folders
            .iter()
            .filter(|name| **name > pos && end.as_ref().is_none_or(|end| *name < end))
            .collect();
        let every = behind.len().div_ceil(PARTS).max((passed + 1) * 2);
        // From the last to the first, so that it is always the same interval that is cut.
        for name in behind.into_iter().step_by(every).rev() {
            if let Some(new) = self.cut(id, name.clone()) {
                self.waiting.push(new);
            }
        }
    }

    /// Makes listings of their own of folders, where a listing cannot begin anywhere, and ends the interval behind the one
    /// that it is in. What lies beside the folders is the answer.
    pub(super) fn part_by_folders(&mut self, id: u64, folder: &str, found: Page) -> Vec<Listed> {
        let Some(interval) = self.intervals.get_mut(&id) else {
            return Vec::new();
        };
        // It may have left the folder meanwhile, or go on behind it.
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
            // The end may lie within a folder.
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
