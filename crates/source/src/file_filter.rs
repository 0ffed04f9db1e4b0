//! Which files of a directory are read, by patterns of their relative paths.

use glob::Pattern;
use shardmill_core::{Error, escape};

use crate::file_names::PATTERN_RULES;
use crate::{FileOptions, SourceProblem};

/// The compiled patterns of [`FileOptions`].
#[derive(Debug)]
pub(crate) struct FileFilter {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

impl FileFilter {
    /// Compiles the patterns.
    pub(crate) fn new(options: &FileOptions) -> Result<Self, Error> {
        let compile = |option: &str, texts: &[String]| {
            let one = |text: &String| {
                Pattern::new(text).map_err(|error| {
                    let reason = format!("`{}` is not a pattern: {}", escape(text), error.msg);
                    SourceProblem::Option.at(option, reason)
                })
            };
            texts.iter().map(one).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            include: compile("--include", &options.include)?,
            exclude: compile("--exclude", &options.exclude)?,
        })
    }

    /// Returns whether all files are read.
    pub(crate) const fn takes_all(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Returns whether a file is read. A pattern without `/` is compared with the file's name.
    pub(crate) fn takes(&self, path: &str) -> bool {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let fits = |pattern: &Pattern| {
            let is_path = pattern.as_str().contains('/');
            pattern.matches_with(if is_path { path } else { name }, PATTERN_RULES)
        };
        (self.include.is_empty() || self.include.iter().any(fits)) && !self.exclude.iter().any(fits)
    }

    /// Returns what an error says about files that are missing because of the patterns.
    pub(crate) const fn reason(&self) -> &'static str {
        match self.takes_all() {
            true => "",
            false => " that --include and --exclude select",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(include: &[&str], exclude: &[&str]) -> Vec<&'static str> {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let options = FileOptions {
            include: own(include),
            exclude: own(exclude),
            ..FileOptions::default()
        };
        let filter = FileFilter::new(&options).unwrap();
        assert_eq!(filter.takes_all(), include.is_empty() && exclude.is_empty());
        ["a.jpg", "a.txt", "b/a.jpg", "b/c/a.jpg", "b/.hidden.jpg"]
            .into_iter()
            .filter(|path| filter.takes(path))
            .collect()
    }

    #[test]
    fn patterns_match_names_or_whole_paths() {
        for (include, exclude, expected) in [
            (
                &[][..],
                &[][..],
                &["a.jpg", "a.txt", "b/a.jpg", "b/c/a.jpg", "b/.hidden.jpg"][..],
            ),
            (&["*.jpg"], &[], &["a.jpg", "b/a.jpg", "b/c/a.jpg"]),
            (&["b/*.jpg"], &[], &["b/a.jpg"]),
            (&["b/**/*.jpg"], &[], &["b/a.jpg", "b/c/a.jpg"]),
            (&["*.jpg", "*.txt"], &["b/**"], &["a.jpg", "a.txt"]),
            (&[], &["a.*"], &["b/.hidden.jpg"]),
            (&[".*"], &[], &["b/.hidden.jpg"]),
            (&["*.png"], &[], &[]),
        ] {
            assert_eq!(taken(include, exclude), expected, "{include:?} {exclude:?}");
        }
    }

    #[test]
    fn invalid_pattern_is_an_error_naming_the_pattern() {
        let options = FileOptions {
            exclude: vec!["a[".to_owned()],
            ..FileOptions::default()
        };
        let error = FileFilter::new(&options).unwrap_err().to_string();
        assert!(error.contains("`a[` is not a pattern"), "{error}");
    }
}
