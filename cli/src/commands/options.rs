//! Values of options that several commands share, and what they need from the environment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use shardmill_core::{Error, ErrorKind, Limits, escape};
use shardmill_source::{SchemaRule, SourceOptions};
use shardmill_storage::{Dir, LeaseWait, RemoteOptions, settings_of};

use crate::args::StorageArgs;
use crate::output::{Output, seconds};

/// Returns the limits with the values of `--safety-limit`.
pub fn limits(typed: &[(String, u64)]) -> Limits {
    let mut limits = Limits::default();
    for (name, value) in typed {
        // The parser of the option has checked the name.
        let _ = limits.set(name, *value);
    }
    limits
}

/// The environment variable with storage options as a JSON object of texts, for programs that run this one. They are not
/// arguments, because other users can read those.
const SETTINGS_VARIABLE: &str = "SHARDMILL_STORAGE_OPTIONS";

/// Returns the storage options from the environment and the command line.
pub fn remote(args: &StorageArgs) -> Result<RemoteOptions, Error> {
    let options = RemoteOptions {
        settings: settings_of(std::env::vars()),
        ..RemoteOptions::default()
    };
    let given = settings_of_variable(std::env::var(SETTINGS_VARIABLE).ok().as_deref())?;
    let mut options = options
        .with_options(&given)?
        .with_options(&args.storage_options)?;
    for (option, setting, value) in args.settings() {
        if value.trim().is_empty() {
            return Err(Error::usage("usage-value", "the value is empty").about(option));
        }
        let setting = BTreeMap::from([(setting.to_owned(), value.to_owned())]);
        options = options.with_checked(setting, option)?;
    }
    Ok(options)
}

/// Returns the value of the variable as `NAME=VALUE` texts. The error does not contain the value.
fn settings_of_variable(value: Option<&str>) -> Result<Vec<String>, Error> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(Vec::new());
    };
    let settings: BTreeMap<String, String> = serde_json::from_str(value).map_err(|_| {
        Error::usage("usage-value", "the value is not a JSON object of texts")
            .about(SETTINGS_VARIABLE)
            .with_hint(r#"write e.g. {"AWS_REGION": "eu-west-1"}"#)
    })?;
    let texts = settings.into_iter();
    Ok(texts
        .map(|(name, value)| format!("{name}={value}"))
        .collect())
}

/// Opens the folder of the file that an option names. Returns it with the name of the file in it.
pub fn folder_of<'a>(
    option: &'static str,
    path: &'a Path,
    hint: &str,
) -> Result<(Dir, &'a str), Error> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        let fact = format!("`{}` names no file", escape(&path.display().to_string()));
        return Err(Error::option_hint(option, fact, hint));
    };
    Ok((Dir::open(parent_of(path))?, name))
}

/// Returns the folder of a file.
pub fn parent_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Formats the time of day, as in `12:30:59 UTC`.
fn time_of_day(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs()) % 86_400;
    let (minutes, hours) = (seconds / 60 % 60, seconds / 3600);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

/// Prints a message to standard error while a writer waits for the lease of another one.
pub fn announce_waits(remote: &mut RemoteOptions, out: &Output) {
    if out.is_quiet() {
        return;
    }
    let console = Arc::clone(out.console());
    remote.on_lease_wait = Some(Arc::new(move |wait: &LeaseWait| {
        let owner = wait.owner.as_deref().unwrap_or("unknown");
        let patience = seconds(wait.patience.as_secs_f64());
        let until = time_of_day(SystemTime::now() + wait.patience);
        let message = format!(
            "writer {owner} has this lease; waiting until {until} for its heartbeat; without one, this run takes the lease over"
        );
        let hint = format!("--takeover-after TIME changes the waiting time of {patience}");
        let warning = Error::new(ErrorKind::Conflict, "lease-wait", message);
        console.warning(&warning.about(&wait.url).with_hint(hint));
    }));
}

/// Returns the options for reading a source as it is.
pub fn source(storage: &StorageArgs, limits: Limits) -> Result<SourceOptions, Error> {
    let mut source = SourceOptions {
        remote: remote(storage)?,
        limits,
        ..SourceOptions::default()
    };
    // Objects are read as in a conversion.
    source.text.raw_objects = true;
    // Shows the union of all columns. `convert` decides whether nulls may replace missing columns.
    source.schema.rule = SchemaRule::Union;
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_settings_variable_must_be_a_json_object() {
        let found = settings_of_variable(Some(r#"{"AWS_REGION": "a=b", "GCS_KEY": "c\nd"}"#));
        assert_eq!(found.unwrap(), ["AWS_REGION=a=b", "GCS_KEY=c\nd"]);
        assert!(settings_of_variable(None).unwrap().is_empty());
        for wrong in ["AWS_REGION=secret", "[\"secret\"]", "{\"AWS_REGION\": 1}"] {
            let error = settings_of_variable(Some(wrong)).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
