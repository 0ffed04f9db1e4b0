//! The file of `convert --config`: options as TOML, under the names that they have on the command line.
//!
//! The file becomes words of the command line before the options are parsed. So values have one syntax, and an option
//! that is typed replaces that of the file.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use shardmill_convert::ColumnSpec;
use shardmill_core::{Error, escape};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The verb that has a file of options.
const VERB: &str = "convert";

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// The options that a file cannot set.
const NOT_IN_FILES: [&str; 4] = ["config", "print-config", "column", "help"];

/// Adds the options of the file that `--config` names to the words of a command line, of which the first is the name of
/// the program.
pub fn with_config(mut typed: Vec<OsString>, command: &Command) -> Result<Vec<OsString>, Error> {
    // The sources and the destination may be in the file, so they are not required here. Other mistakes are reported when
    // the words are parsed with those of the file.
    let lenient = command.clone().mut_subcommand(VERB, |verb| {
        verb.mut_arg("sources", |arg| arg.required(false))
            .mut_arg("dest", |arg| arg.required(false).last(true).num_args(0..))
            .ignore_errors(true)
    });
    let Ok(matches) = lenient.try_get_matches_from(&typed) else {
        return Ok(typed);
    };
    let Some((VERB, matches)) = matches.subcommand() else {
        return Ok(typed);
    };
    let Some(path) = matches.get_one::<std::path::PathBuf>("config") else {
        return Ok(typed);
    };
    let text = read(path)?;
    let file = File { path, text: &text };
    let words = file.words(matches, command)?;
    let end = typed.iter().position(|word| word == "--");
    let end = end.unwrap_or(typed.len());
    drop(typed.splice(end..end, words.options));
    if !words.locations.is_empty() {
        if end == typed.len() || !typed.iter().any(|word| word == "--") {
            typed.push("--".into());
        }
        typed.extend(words.locations);
    }
    Ok(typed)
}

fn read(path: &Path) -> Result<String, Error> {
    let error = |message: &str| {
        Error::usage("config-config", message)
            .about(path.display().to_string())
            .with_hint("--config names a TOML file with options")
    };
    let metadata =
        std::fs::metadata(path).map_err(|source| error(&format!("cannot read it: {source}")))?;
    if metadata.len() > MAX_BYTES {
        return Err(error(&format!(
            "it has {} bytes, and at most {MAX_BYTES} are read",
            metadata.len()
        )));
    }
    std::fs::read_to_string(path).map_err(|source| error(&format!("cannot read it: {source}")))
}

/// The key of a column that is called `*`.
const LITERAL_STAR: &str = "\"*\"";

/// The words of a file.
#[derive(Default)]
struct Words {
    options: Vec<OsString>,
    /// The sources and the destination.
    locations: Vec<OsString>,
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    /// Returns the words for the options that were not typed.
    fn words(&self, typed: &ArgMatches, command: &Command) -> Result<Words, Error> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, format!("it is not TOML: {}", error.message()), None)
        })?;
        let known = options(command);
        let mut words = Words::default();
        let (mut sources, mut dest) = (Vec::new(), Vec::new());
        for (key, value) in in_order(table.get_ref()) {
            let (name, at) = (&**key.get_ref(), key.span().start);
            match name {
                "sources" => sources = self.texts(name, value)?,
                "dest" => dest = vec![self.text(name, value)?],
                "columns" => {
                    let columns = self.columns(value)?;
                    if !is_typed(typed, "columns") {
                        words
                            .options
                            .extend(columns.into_iter().map(|column| option("column", &column)));
                    }
                }
                _ => {
                    let Some(arg) = known.iter().find(|arg| arg.get_long() == Some(name)) else {
                        return Err(self.unknown(name, at, &known));
                    };
                    let own = self.option(name, arg, value)?;
                    if !is_typed(typed, arg.get_id().as_str()) {
                        words.options.extend(own);
                    }
                }
            }
        }
        // Typed locations replace all of those in the file.
        if typed.get_raw("sources").is_none() && typed.get_raw("dest").is_none() {
            words.locations = sources
                .into_iter()
                .chain(dest)
                .map(OsString::from)
                .collect();
        }
        Ok(words)
    }

    fn option(
        &self,
        name: &str,
        arg: &Arg,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<OsString>, Error> {
        if !arg.get_action().takes_values() {
            return match value.get_ref() {
                DeValue::Boolean(true) => Ok(vec![format!("--{name}").into()]),
                DeValue::Boolean(false) => Ok(Vec::new()),
                _ => Err(self.wrong(name, value, "true or false")),
            };
        }
        let values = match arg.get_action() {
            ArgAction::Append => self.texts(name, value)?,
            _ => vec![self.text(name, value)?],
        };
        Ok(values.iter().map(|value| option(name, value)).collect())
    }

    /// Returns a list of texts; a single text is a list of one.
    fn texts(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Error> {
        match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| self.text(name, item)).collect(),
            _ => Ok(vec![self.text(name, value)?]),
        }
    }

    fn text(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<String, Error> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.clone().into_owned()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
            DeValue::Float(number) => Ok(number.as_str().to_owned()),
            _ => Err(self.wrong(name, value, "a text or a number")),
        }
    }

    /// Returns the columns in the form of `--column`, in the order of the file.
    fn columns(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Error> {
        const FORM: &str = "a table of names and encodings, such as image = \"jpeg\"";
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.wrong("columns", value, FORM));
        };
        let mut columns = Vec::new();
        for (name, value) in in_order(table) {
            let (mut encoding, mut expr) = (None, None);
            match value.get_ref() {
                DeValue::String(text) => encoding = Some(text.clone().into_owned()),
                DeValue::Table(parts) => {
                    for (key, value) in in_order(parts) {
                        let part = match &**key.get_ref() {
                            "encoding" => &mut encoding,
                            "expr" => &mut expr,
                            other => {
                                let message = format!("a column has no `{}`", escape(other));
                                let hint = "its keys are `encoding` and `expr`".to_owned();
                                return Err(self.error(key.span().start, message, Some(hint)));
                            }
                        };
                        *part = Some(self.text("columns", value)?);
                    }
                }
                _ => return Err(self.wrong("columns", value, FORM)),
            }
            // The names are those of `--column`: `*` is all other columns, and in double quotes a column of that name.
            let mut column = match &**name.get_ref() {
                name @ ("*" | LITERAL_STAR) => name.to_owned(),
                name => format!("\"{}\"", name.replace('"', "\"\"")),
            };
            // An empty encoding is the default of the type.
            if let Some(encoding) = encoding.filter(|encoding| !encoding.is_empty()) {
                let _ = write!(column, ":{encoding}");
            }
            if let Some(expr) = expr {
                let _ = write!(column, "={expr}");
            }
            columns.push(column);
        }
        Ok(columns)
    }

    fn unknown(&self, name: &str, at: usize, known: &[&Arg]) -> Error {
        let names = known.iter().filter_map(|arg| arg.get_long());
        let names = names.chain(["sources", "dest", "columns"]);
        let nearest = names.min_by_key(|known| strsim::levenshtein(known, name));
        let hint = nearest.map(|nearest| format!("did you mean `{nearest}`?"));
        self.error(
            at,
            format!("convert has no option `{}`", escape(name)),
            hint,
        )
    }

    fn wrong(&self, name: &str, value: &Spanned<DeValue<'_>>, expected: &str) -> Error {
        let found = value.get_ref().type_str();
        let message = format!("`{}` is of type {found}", escape(name));
        self.error(
            value.span().start,
            message,
            Some(format!("write {expected}")),
        )
    }

    fn error(&self, at: usize, message: String, hint: Option<String>) -> Error {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let error = Error::usage("config-config", message);
        let error = error.about(format!("{}:{line}", self.path.display()));
        error.with_any_hint(hint)
    }
}

/// Returns the entries of a table in the order of the file.
fn in_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(
    &'a Spanned<std::borrow::Cow<'i, str>>,
    &'a Spanned<DeValue<'i>>,
)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn option(name: &str, value: &str) -> OsString {
    format!("--{name}={value}").into()
}

fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Returns the options that a file can set.
fn options(command: &Command) -> Vec<&Arg> {
    let verb = command.find_subcommand(VERB);
    let args = verb.into_iter().flat_map(Command::get_arguments);
    args.filter(|arg| !arg.is_global_set())
        .filter(|arg| {
            arg.get_long()
                .is_some_and(|name| !NOT_IN_FILES.contains(&name))
        })
        .collect()
}

/// Returns the options of a command line of `convert` as the text of a file.
pub fn effective_config(words: &[OsString], command: &Command) -> Result<String, clap::Error> {
    let matches = command.clone().try_get_matches_from(words)?;
    let Some((VERB, matches)) = matches.subcommand() else {
        return Ok(String::new());
    };
    let mut text = String::new();
    let raw = |id: &str| -> Vec<String> {
        let values = matches.get_raw(id).into_iter().flatten();
        values
            .map(|value| value.to_string_lossy().into_owned())
            .collect()
    };
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "sources = {}", list(&raw("sources")));
    for dest in raw("dest") {
        let _ = writeln!(text, "dest = {}", quoted(&dest));
    }
    for arg in options(command) {
        let (id, name) = (arg.get_id().as_str(), arg.get_long().unwrap_or_default());
        // Settings of stores may be secrets.
        if name == "storage-option" {
            if !raw(id).is_empty() {
                text.push_str("# storage-option is omitted, because it may hold secrets\n");
            }
            continue;
        }
        if !arg.get_action().takes_values() {
            if matches.get_flag(id) {
                let _ = writeln!(text, "{name} = true");
            }
            continue;
        }
        let values = raw(id);
        match (arg.get_action(), &values[..]) {
            (_, []) => {}
            (ArgAction::Append, values) => {
                let _ = writeln!(text, "{name} = {}", list(values));
            }
            (_, [value, ..]) => {
                let _ = writeln!(text, "{name} = {}", scalar(value));
            }
        }
    }
    let columns: Vec<&ColumnSpec> = matches.get_many("columns").into_iter().flatten().collect();
    if !columns.is_empty() {
        text.push_str("\n[columns]\n");
    }
    for column in columns {
        let name = match &*column.name {
            "*" if !column.is_rest => quoted(LITERAL_STAR),
            name => quoted(name),
        };
        let encoding = column.encoding.as_deref().unwrap_or_default();
        let _ = match &column.expr {
            None => writeln!(text, "{name} = {}", quoted(encoding)),
            Some(expr) if encoding.is_empty() => {
                writeln!(text, "{name} = {{ expr = {} }}", quoted(expr))
            }
            Some(expr) => writeln!(
                text,
                "{name} = {{ encoding = {}, expr = {} }}",
                quoted(encoding),
                quoted(expr)
            ),
        };
    }
    Ok(text)
}

fn list(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", values.join(", "))
}

/// Returns a value as a number if it is one, otherwise as text.
fn scalar(value: &str) -> String {
    match value.parse::<i64>() {
        Ok(number) if number.to_string() == value => value.to_owned(),
        _ => quoted(value),
    }
}

/// Returns a text as a TOML string. The escapes of JSON are among those of TOML, which also escapes DEL.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_and_escaped() {
        assert_eq!(quoted("a\"\\\n\u{7f}é"), r#""a\"\\\n\u007fé""#);
        assert_eq!(
            (scalar("12"), scalar("012")),
            ("12".into(), "\"012\"".into())
        );
    }
}
