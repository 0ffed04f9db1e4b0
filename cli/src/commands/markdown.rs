//! Generates the reference page of the command line, from the definitions of `--help`.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

use crate::command::{self, is_shown};
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(out: &mut Output) -> Result<Exit, Stop> {
    let mut command = command::command();
    command.build();
    let mut page = String::from(
        "# Command line\n\n<!-- Made by `shardmill markdown-help`. Edit the definitions in cli/src/args. -->\n",
    );
    // Writing to a `String` cannot fail.
    let _ = section(&command, "shardmill", 2, &mut page);
    out.text(page)?;
    Ok(Exit::Done)
}

fn section(command: &Command, name: &str, level: usize, page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n{} {name}\n", "#".repeat(level))?;
    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        writeln!(page, "{}\n", about.to_string().trim())?;
    }
    let usage = command.clone().render_usage().to_string();
    writeln!(
        page,
        "```text\n{}\n```",
        usage.trim_start_matches("Usage:").trim()
    )?;

    let verbs: Vec<&Command> = command
        .get_subcommands()
        .filter(|verb| is_shown(verb))
        .collect();
    if !verbs.is_empty() {
        page.push('\n');
        for verb in &verbs {
            let about = verb
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let (name, about) = (format!("{name} {}", verb.get_name()), about.trim());
            writeln!(page, "- [`{name}`](#{}): {about}", name.replace(' ', "-"))?;
        }
    }

    // Global options are documented once, at the top.
    let top = level == 2;
    let shown: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && (top || !arg.is_global_set()))
        .filter(|arg| top || !is_on_every_page(arg))
        .collect();
    let mut headings: Vec<&str> = Vec::new();
    for arg in &shown {
        if !headings.contains(&heading(arg)) {
            headings.push(heading(arg));
        }
    }
    for title in headings {
        writeln!(page, "\n{title}:\n")?;
        for arg in shown.iter().filter(|arg| heading(arg) == title) {
            argument(arg, page)?;
        }
    }

    for (title, text) in headed(command) {
        writeln!(page, "\n{title}:\n\n```text\n{text}\n```")?;
    }
    for verb in verbs {
        let name = format!("{name} {}", verb.get_name());
        section(verb, &name, level + 1, page)?;
    }
    Ok(())
}

/// Returns whether every command has this option.
fn is_on_every_page(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

fn heading(arg: &Arg) -> &str {
    if arg.is_positional() {
        "Arguments"
    } else {
        arg.get_help_heading().unwrap_or("Options")
    }
}

fn argument(arg: &Arg, page: &mut String) -> std::fmt::Result {
    let mut spelled = String::new();
    if let Some(short) = arg.get_short() {
        write!(spelled, "-{short}, ")?;
    }
    if let Some(long) = arg.get_long() {
        write!(spelled, "--{long}")?;
    }
    if arg.get_action().takes_values() {
        let names: Vec<&str> = arg
            .get_value_names()
            .unwrap_or_default()
            .iter()
            .map(|name| name.as_str())
            .collect();
        let separator = if arg.is_positional() { "" } else { " " };
        write!(spelled, "{separator}<{}>", names.join("> <"))?;
    }
    let help = arg
        .get_long_help()
        .or_else(|| arg.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    // A list item has one paragraph.
    let paragraphs = help
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut text = paragraphs.collect::<Vec<_>>().join(". ");
    let values = arg.get_possible_values();
    let values: Vec<_> = values
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if arg.get_action().takes_values() && !values.is_empty() {
        write!(text, " (one of {})", values.join(", "))?;
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        write!(text, " (default `{}`)", defaults.join(" "))?;
    }
    if let Some(variable) = arg.get_env() {
        write!(text, " (variable `{}`)", variable.to_string_lossy())?;
    }
    writeln!(page, "- `{spelled}`: {text}")
}

/// Returns the sections of the text after the options, which begin with an upper-case title and a colon: title and dedented
/// text.
pub fn headed(command: &Command) -> Vec<(String, String)> {
    let after = command.get_after_long_help();
    let text = after.or_else(|| command.get_after_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.strip_suffix(':') {
            Some(title) if title.chars().all(|c| c.is_ascii_uppercase() || c == ' ') => {
                let (first, rest) = title.split_at_checked(1).unwrap_or_default();
                parts.push((
                    format!("{first}{}", rest.to_ascii_lowercase()),
                    String::new(),
                ));
            }
            _ => {
                if let Some((_, text)) = parts.last_mut() {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    parts
        .into_iter()
        .map(|(title, text)| (title, dedent(&text)))
        .collect()
}

/// Removes the common indentation of all lines.
fn dedent(text: &str) -> String {
    let text = text.trim_matches('\n');
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let margin = lines()
        .map(|line| line.len() - line.trim_start().len())
        .min()
        .unwrap_or(0);
    let dedented: Vec<&str> = text
        .lines()
        .map(|line| line.get(margin..).unwrap_or(""))
        .collect();
    dedented.join("\n")
}
