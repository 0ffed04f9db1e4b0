//! Converts the errors of clap to the form of all other errors: one line, with an id.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind as Clap};

use shardmill_core::Error;

use super::renamed;

/// Converts an error of clap for the command line `typed`. A value that its parser rejected keeps the parser's message.
pub fn usage_error(error: &clap::Error, typed: &[OsString]) -> Error {
    let get = |kind| error.get(kind).map(text).filter(|text| !text.is_empty());
    let argument = get(ContextKind::InvalidArg);
    // `--nulls <HOW>` means the option `--nulls`.
    let option = argument
        .as_deref()
        .and_then(|argument| argument.split([' ', '=']).next())
        .map(str::to_owned);
    let own = std::error::Error::source(error).and_then(|own| own.downcast_ref::<Error>().cloned());
    match (own, &option) {
        (Some(own), Some(option)) if own.id().is_empty() => {
            return own
                .with_id(config_id(option))
                .about(given_as(option, typed));
        }
        (Some(own), _) => return own,
        (None, _) => {}
    }
    let value = get(ContextKind::InvalidValue);
    let help = || Some("see `shardmill --help`".to_owned());
    let did_you_mean =
        |suggestion: Option<String>| suggestion.map(|name| format!("did you mean `{name}`?"));

    let (id, object, message, hint) = match error.kind() {
        Clap::InvalidValue | Clap::ValueValidation | Clap::InvalidUtf8 if option.is_some() => {
            let option = option.unwrap_or_default();
            let message = match &value {
                Some(value) => format!("`{value}` is not one of its values"),
                None => "it needs a value".to_owned(),
            };
            let values =
                get(ContextKind::ValidValue).map(|values| format!("its values are {values}"));
            (
                config_id(&option),
                Some(given_as(&option, typed)),
                message,
                values.or_else(help),
            )
        }
        Clap::UnknownArgument => {
            let new_name = option
                .as_deref()
                .and_then(|option| renamed::new_name(typed, option));
            let (message, hint) = match new_name {
                Some(name) => ("the option has another name", Some(format!("write {name}"))),
                None => (
                    "there is no such option or argument",
                    did_you_mean(get(ContextKind::SuggestedArg)).or_else(help),
                ),
            };
            ("usage-unknown-option", option, message.to_owned(), hint)
        }
        Clap::InvalidSubcommand => {
            let verb = get(ContextKind::InvalidSubcommand);
            let message = "there is no such verb".to_owned();
            let hint = did_you_mean(get(ContextKind::SuggestedSubcommand)).or_else(help);
            ("usage-unknown-verb", verb, message, hint)
        }
        Clap::MissingRequiredArgument => {
            let missing = argument.map(|missing| format!("missing: {missing}"));
            let message = missing.unwrap_or_else(|| "an argument is missing".to_owned());
            ("usage-missing-argument", None, message, help())
        }
        Clap::ArgumentConflict => {
            let other = get(ContextKind::PriorArg);
            let message = match other {
                Some(other) if Some(&other) != argument.as_ref() => {
                    format!("it cannot be used with {other}")
                }
                _ => "it is given more than once".to_owned(),
            };
            ("usage-conflict", option, message, help())
        }
        Clap::TooManyValues | Clap::TooFewValues | Clap::WrongNumberOfValues | Clap::NoEquals => (
            "usage-value",
            option,
            "it has the wrong number of values".to_owned(),
            help(),
        ),
        _ => {
            let rendered = error.to_string();
            let first = rendered.lines().next().unwrap_or_default();
            let message = first.strip_prefix("error: ").unwrap_or(first).to_owned();
            ("usage", None, message, help())
        }
    };
    let mut shown = Error::usage(id, message);
    if let Some(object) = object {
        shown = shown.about(object);
    }
    shown.with_any_hint(hint)
}

/// Returns the name of the environment variable that sets an option, if the option is not in the command line.
/// Otherwise returns the option.
fn given_as(option: &str, typed: &[OsString]) -> String {
    let name = option.trim_start_matches('-');
    let variable = format!("SHARDMILL_{}", name.replace('-', "_").to_ascii_uppercase());
    let is_typed = typed.iter().any(|word| {
        let word = word.to_string_lossy();
        word.starts_with(option) || name == "jobs" && word.starts_with("-j")
    });
    match !is_typed && std::env::var_os(&variable).is_some() {
        true => variable,
        false => option.to_owned(),
    }
}

/// Returns the id of the error in an option's value: `config-nulls` for `--nulls`. It lives as long as the program,
/// which ends with the error.
fn config_id(option: &str) -> &'static str {
    let name = option
        .trim_start_matches('-')
        .trim_matches(['<', '>', '[', ']', '.']);
    match name {
        // The errors of conversions have this id too.
        "key-column" => "config-key",
        _ => format!("config-{}", name.to_ascii_lowercase()).leak(),
    }
}

fn text(value: &ContextValue) -> String {
    match value {
        ContextValue::String(text) => text.clone(),
        ContextValue::Strings(texts) => texts.join(", "),
        ContextValue::StyledStr(text) => text.to_string(),
        ContextValue::Bool(value) => value.to_string(),
        ContextValue::Number(value) => value.to_string(),
        _ => String::new(),
    }
}
