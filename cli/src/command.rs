//! Builds the command line from the definitions of the verbs, and parses it.

use std::env;
use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _, ValueEnum as _};

use crate::args::{Cli, ColorName};

/// The options and arguments that `-h` shows, for verbs with many. `--help` shows all of them.
const SHORT_HELP: [(&str, &str); 5] = [
    (
        "convert",
        "sources dest from to columns filter split compression size_limit jobs dry_run \
         overwrite incremental config",
    ),
    (
        "cat",
        "dataset range limit key columns raw extract max_bytes",
    ),
    (
        "order",
        "datasets streams nodes ranks_per_node batch_size shuffle shards epoch rank batches",
    ),
    (
        "plan",
        "datasets streams nodes ranks_per_node batch_size shuffle epochs cache_limit \
         bandwidth step_time",
    ),
    (
        "bench",
        "datasets streams subset local cache_limit nodes ranks_per_node rank batch_size \
         shuffle epochs max_batches jobs step_time",
    ),
];

/// The names of values that may begin with a hyphen, as in `-1`. They reach their parsers, which name what they accept;
/// otherwise clap would take them for options.
const MAY_BEGIN_WITH_HYPHEN: &[&str] = &[
    "N",
    "N,...",
    "K",
    "R",
    "I/N",
    "A..B",
    "INDEX|A..B",
    "SIZE",
    "SIZE/s",
    "TIME",
    "CHAR",
    "TEXT",
    "EXPR",
    "EXPRS",
    "QUERY",
    "KEY",
];

/// Returns the definition of the whole command line.
pub fn command() -> Command {
    let mut command = with_hyphens(Cli::command());
    for (verb, shown) in SHORT_HELP {
        let shown: Vec<&str> = shown.split(' ').collect();
        command = command.mut_subcommand(verb, |verb| {
            verb.mut_args(|arg| {
                let is_hidden = !shown.contains(&arg.get_id().as_str());
                arg.hide_short_help(is_hidden)
            })
        });
    }
    command
}

fn with_hyphens(command: Command) -> Command {
    let allow = |arg: Arg| {
        let mut names = arg.get_value_names().unwrap_or_default().iter();
        match names.any(|name| MAY_BEGIN_WITH_HYPHEN.contains(&name.as_str())) {
            true => arg.allow_hyphen_values(true),
            false => arg,
        }
    };
    command.mut_args(allow).mut_subcommands(with_hyphens)
}

/// Returns whether the reference and the completions have a verb. They leave out the `help` of clap.
pub fn is_shown(verb: &Command) -> bool {
    verb.get_name() != "help"
}

/// Parses the words of a command line, of which the first is the name of the program.
pub fn parse(typed: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = definition();
    let mut matches = command.try_get_matches_from_mut(typed)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Returns the definition with which command lines are parsed: variables that are set to an empty text count as unset.
pub fn definition() -> Command {
    without_empty_variables(command())
}

/// Removes environment variables that are set to an empty text from the definitions.
fn without_empty_variables(command: Command) -> Command {
    let unless_empty = |arg: Arg| {
        let value = arg.get_env().and_then(env::var_os);
        match value.is_some_and(|value| value.is_empty()) {
            true => arg.env(Resettable::Reset),
            false => arg,
        }
    };
    command
        .mut_args(unless_empty)
        .mut_subcommands(without_empty_variables)
}

/// Returns the value of `--color` or its variable before the command line is parsed, because the errors of parsing have
/// colors too. The parser rejects other values.
pub fn color(typed: &[OsString]) -> ColorName {
    let words: Vec<&str> = typed.iter().filter_map(|word| word.to_str()).collect();
    let options = words.iter().position(|word| *word == "--");
    let words = words.get(..options.unwrap_or(words.len())).unwrap_or(&[]);
    let separate = words.windows(2).filter_map(|pair| match pair {
        ["--color", value] => Some(*value),
        _ => None,
    });
    let joined = words
        .iter()
        .filter_map(|word| word.strip_prefix("--color="));
    let variable = env::var("SHARDMILL_COLOR").ok();
    let value = separate.chain(joined).last().or(variable.as_deref());
    value
        .and_then(|value| ColorName::from_str(value, false).ok())
        .unwrap_or(ColorName::Auto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_definitions_are_valid() {
        command().debug_assert();
    }

    #[test]
    fn short_help_lists_only_existing_options() {
        let command = command();
        for (verb, shown) in SHORT_HELP {
            let verb = command.find_subcommand(verb).expect("a verb");
            for id in shown.split(' ') {
                let is_known = verb.get_arguments().any(|arg| arg.get_id() == id);
                assert!(is_known, "{}: {id}", verb.get_name());
            }
        }
    }

    #[test]
    fn color_option_is_read_before_full_parsing() {
        for (line, expected) in [
            ("shardmill convert a b --color never", ColorName::Never),
            ("shardmill --color=always convert a b", ColorName::Always),
            ("shardmill --color", ColorName::Auto),
            ("shardmill --color=blue", ColorName::Auto),
            ("shardmill convert -- --color=always b", ColorName::Auto),
        ] {
            let typed: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(color(&typed), expected, "{line}");
        }
    }
}
