//! Converts the errors of clap to the form of all other errors: one line, with an id.

use std::borrow::Cow;

use clap::error::{ContextKind, ContextValue, ErrorKind as Clap};

use super::values::ValueError;
use crate::error::{CliError, Fault};

/// Converts an error of clap. A value that its parser rejected keeps the parser's message.
pub fn usage_error(error: &clap::Error) -> Fault {
    let get = |kind| error.get(kind).map(text).filter(|text| !text.is_empty());
    let argument = get(ContextKind::InvalidArg);
    // `--nulls <HOW>` means the option `--nulls`.
    let option = argument
        .as_deref()
        .and_then(|argument| argument.split([' ', '=']).next())
        .map(str::to_owned);
    let own = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    match (own, &option) {
        (Some(ValueError::Other(fault)), _) => return fault.clone(),
        (Some(ValueError::Refused { message, hint }), Some(option)) => {
            return CliError::Usage {
                id: config_id(option),
                object: Some(option.clone()),
                message: message.clone(),
                hint: Some(hint.clone()),
            }
            .into();
        }
        _ => {}
    }
    let value = get(ContextKind::InvalidValue);
    let help = || Some("see `shardmill --help`".to_owned());
    let did_you_mean =
        |suggestion: Option<String>| suggestion.map(|name| format!("did you mean `{name}`?"));

    let (id, object, message, hint): (Cow<'static, str>, _, _, _) = match error.kind() {
        Clap::InvalidValue | Clap::ValueValidation | Clap::InvalidUtf8 if option.is_some() => {
            let object = option.unwrap_or_default();
            let message = match &value {
                Some(value) => format!("`{value}` is not one of its values"),
                None => "it needs a value".to_owned(),
            };
            let values =
                get(ContextKind::ValidValue).map(|values| format!("its values are {values}"));
            (
                config_id(&object),
                Some(object),
                message,
                values.or_else(help),
            )
        }
        Clap::UnknownArgument => {
            let suggestion = did_you_mean(get(ContextKind::SuggestedArg)).or_else(help);
            (
                "usage-unknown-option".into(),
                option,
                "there is no such option or argument".to_owned(),
                suggestion,
            )
        }
        Clap::InvalidSubcommand => {
            let verb = get(ContextKind::InvalidSubcommand);
            let suggestion = did_you_mean(get(ContextKind::SuggestedSubcommand)).or_else(help);
            (
                "usage-unknown-verb".into(),
                verb,
                "there is no such verb".to_owned(),
                suggestion,
            )
        }
        Clap::MissingRequiredArgument => {
            let missing = argument.map(|missing| format!("missing: {missing}"));
            let message = missing.unwrap_or_else(|| "an argument is missing".to_owned());
            ("usage-missing-argument".into(), None, message, help())
        }
        Clap::ArgumentConflict => {
            let other = get(ContextKind::PriorArg);
            let message = match other {
                Some(other) if Some(&other) != argument.as_ref() => {
                    format!("it cannot be used with {other}")
                }
                _ => "it is given more than once".to_owned(),
            };
            ("usage-conflict".into(), option, message, help())
        }
        Clap::TooManyValues | Clap::TooFewValues | Clap::WrongNumberOfValues | Clap::NoEquals => (
            "usage-value".into(),
            option,
            "it has the wrong number of values".to_owned(),
            help(),
        ),
        _ => {
            let rendered = error.to_string();
            let first = rendered.lines().next().unwrap_or_default();
            let message = first.strip_prefix("error: ").unwrap_or(first).to_owned();
            ("usage".into(), None, message, help())
        }
    };
    CliError::Usage {
        id,
        object,
        message,
        hint,
    }
    .into()
}

/// Returns the id of the error in an option's value: `config-nulls` for `--nulls`.
fn config_id(option: &str) -> Cow<'static, str> {
    let name = option
        .trim_start_matches('-')
        .trim_matches(['<', '>', '[', ']', '.']);
    Cow::Owned(format!("config-{}", name.to_ascii_lowercase()))
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
