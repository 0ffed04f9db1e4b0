//! Writes options of the command line for hints, so that they can be copied.

use std::borrow::Cow;

use crate::name::escape;

/// Returns a text as one word of a command line, quoted if a shell requires it.
///
/// ```
/// use shardmill_core::shell_word;
///
/// assert_eq!(shell_word("s3://bucket/set"), "s3://bucket/set");
/// assert_eq!(shell_word("my set"), "'my set'");
/// assert_eq!(shell_word("it's"), r"'it'\''s'");
/// ```
#[must_use]
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Returns the options of `convert` that write one column in another way and keep all others. `form` is `:ENCODING`,
/// `=EXPR` or both.
///
/// ```
/// use shardmill_core::column_option;
///
/// assert_eq!(column_option("e", ":json"), "--column '*' --column e:json");
/// assert_eq!(column_option("a:b", "=a + 1"), r#"--column '*' --column '"a:b"=a + 1'"#);
/// ```
#[must_use]
pub fn column_option(name: &str, form: &str) -> String {
    format!("--column '*' --column {}", column_word(name, form))
}

/// Returns the value of `--column` for a column. `form` is empty, `:ENCODING`, `=EXPR` or both.
#[must_use]
pub fn column_word(name: &str, form: &str) -> String {
    let is_special = name == "*" || name.contains([':', '=']) || name.starts_with('"');
    let name = match is_special {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    };
    let column = escape(&name) + form;
    shell_word(&column).into_owned()
}

/// Returns the option of `convert` that omits a column and keeps all others.
#[must_use]
pub fn omit_option(name: &str) -> String {
    let list = escape(&format!("* EXCEPT ({})", sql_name(name))).into_owned();
    format!("--select {}", shell_word(&list))
}

/// Words that are no names in SQL.
const SQL_WORDS: &str = "all and as between by case cast distinct else end except false from group having in interval is \
    join like limit not null offset on or order select then true union values when where with";

/// Returns the name of a column as it is written in SQL: in double quotes if it is no plain word.
#[must_use]
pub fn sql_name(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_plain = name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit());
    match is_plain && !name.is_empty() && !SQL_WORDS.split(' ').any(|word| word == name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}
