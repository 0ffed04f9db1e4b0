//! Samples that meet a condition, as `select --where` finds them.

use std::sync::{Arc, Mutex};

use shardmill_core::lock;
use shardmill_dataset::{DatasetError, LiveSamples, View, ViewTarget};

/// The selections that are kept.
const KEPT: usize = 8;

/// The samples that meet a condition.
#[derive(Debug)]
pub struct Selection {
    /// The command that writes the same view.
    pub command: String,
    /// The file of the view.
    pub file: Vec<u8>,
    /// The selected samples, and all samples.
    selected: LiveSamples,
    all: LiveSamples,
}

impl Selection {
    /// Makes a selection from the file of a view, and what it refers to. `location` is the dataset in messages.
    pub fn new(
        command: String,
        file: Vec<u8>,
        target: ViewTarget,
        location: &str,
    ) -> Result<Self, DatasetError> {
        let selected = View::parse(&file, location)?.live_of(&target, location)?;
        Ok(Self {
            command,
            file,
            selected,
            all: target.live,
        })
    }

    /// Returns the number of samples.
    pub fn len(&self) -> u64 {
        self.selected.len()
    }

    /// Returns the number of a sample in the dataset, given by its position in the selection.
    pub fn number(&self, at: u64) -> u64 {
        self.all.live_before(self.selected.stored_number(at))
    }
}

/// The last selections, by their conditions.
#[derive(Debug, Default)]
pub struct Selections {
    /// The latest at the end.
    kept: Mutex<Vec<(String, Arc<Selection>)>>,
}

impl Selections {
    /// Returns the selection of a condition, which `make` makes if it is not kept.
    pub fn get<E>(
        &self,
        condition: &str,
        make: impl FnOnce() -> Result<Selection, E>,
    ) -> Result<Arc<Selection>, E> {
        {
            let mut kept = lock(&self.kept);
            if let Some(found) = kept.iter().position(|(known, _)| known == condition) {
                let entry = kept.remove(found);
                let selection = Arc::clone(&entry.1);
                kept.push(entry);
                return Ok(selection);
            }
        }
        let made = Arc::new(make()?);
        let mut kept = lock(&self.kept);
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((condition.to_owned(), Arc::clone(&made)));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection() -> Selection {
        let target = ViewTarget {
            digest: [1; 32],
            live: LiveSamples::of_ranges(10, || vec![0..2, 4..10].into_iter()).unwrap(),
        };
        let file = View::new(&target, vec![1, 3, 5, 9]).to_bytes();
        Selection::new(String::new(), file, target, "d").unwrap()
    }

    #[test]
    fn sample_numbers_skip_deleted_samples() {
        let selection = selection();
        let numbers: Vec<u64> = (0..selection.len())
            .map(|at| selection.number(at))
            .collect();
        assert_eq!(numbers, [1, 3, 7]);
    }

    #[test]
    fn oldest_selections_are_evicted() {
        let selections = Selections::default();
        for condition in (0..2 * KEPT).map(|number| number.to_string()) {
            selections
                .get(&condition, || Ok::<_, ()>(selection()))
                .unwrap();
        }
        let last = (2 * KEPT - 1).to_string();
        assert!(selections.get(&last, || Err(())).is_ok());
        assert!(selections.get("0", || Err(())).is_err());
    }
}
