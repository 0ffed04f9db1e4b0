//! Remembers the tokens of words, because a text repeats most of its words.

use std::collections::HashMap;

/// The longest word that is remembered, in bytes. Longer ones hardly repeat.
const LONGEST_WORD: usize = 64;

/// The most words that are remembered. A full cache is emptied, so that it follows a change of the language.
const MAX_WORDS: usize = 1 << 16;

/// The tokens of words that a thread has met.
///
/// PERF: the model of a tokenizer returns the text of every token. Reading ids from here saves these allocations
/// (`benches/tokens.py`).
#[derive(Default)]
pub(crate) struct WordCache {
    ranges: HashMap<Box<str>, (u32, u32)>,
    ids: Vec<u32>,
}

impl WordCache {
    /// Returns the tokens of a word, if it is remembered.
    pub(crate) fn get(&self, word: &str) -> Option<&[u32]> {
        let (start, end) = *self.ranges.get(word)?;
        self.ids.get(start as usize..end as usize)
    }

    /// Remembers the tokens of a word.
    pub(crate) fn insert(&mut self, word: &str, ids: &[u32]) {
        if word.len() > LONGEST_WORD {
            return;
        }
        if self.ranges.len() >= MAX_WORDS {
            self.ranges.clear();
            self.ids.clear();
        }
        // At most 65,536 words of a few tokens: the positions fit 32 bits.
        let position = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let start = position(self.ids.len());
        self.ids.extend_from_slice(ids);
        let range = (start, position(self.ids.len()));
        self.ranges.insert(word.into(), range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_keeps_short_words_and_is_cleared_when_full() {
        let mut cache = WordCache::default();
        cache.insert("a", &[1, 2]);
        cache.insert("nothing", &[]);
        cache.insert(&"x".repeat(LONGEST_WORD + 1), &[3]);
        assert_eq!(cache.get("a"), Some([1, 2].as_slice()));
        assert_eq!(cache.get("nothing"), Some([].as_slice()));
        assert_eq!(cache.get(&"x".repeat(LONGEST_WORD + 1)), None);
        for number in 0..MAX_WORDS {
            cache.insert(&number.to_string(), &[7]);
        }
        assert_eq!(cache.get("a"), None);
        let last = (MAX_WORDS - 1).to_string();
        assert_eq!(cache.get(&last), Some([7].as_slice()));
        assert!(cache.ranges.len() <= MAX_WORDS && cache.ids.len() <= MAX_WORDS);
    }
}
