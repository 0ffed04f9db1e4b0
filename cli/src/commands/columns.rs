//! Parses `--column NAME[:ENCODING][=EXPR]`, `--null-as NAME=VALUE` and `--split NAME=SHARE,...`.

use std::collections::BTreeSet;

use shardmill_core::{check_relative_path, escape};

use crate::error::CliError;

/// A column as the user typed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedColumn {
    pub name: String,
    pub encoding: Option<String>,
    pub expr: Option<String>,
}

const COLUMN_FORM: &str =
    "write NAME[:ENCODING][=EXPR], e.g. image:jpeg or 'label:int32=CAST(class AS INT)'";

/// Parses columns, in the given order. The name ends at the first `:` or `=` outside double quotes, the encoding at the
/// first `=`. The rest is the expression, which may contain any character.
pub fn columns(typed: &[String]) -> Result<Vec<TypedColumn>, CliError> {
    let mut names = BTreeSet::new();
    let mut columns = Vec::with_capacity(typed.len());
    for text in typed {
        let column = column(text)?;
        if !names.insert(column.name.clone()) {
            return Err(CliError::option(
                "column",
                format!("`{}` is given twice", escape(&column.name)),
                "give each column once",
            ));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn column(text: &str) -> Result<TypedColumn, CliError> {
    let error = |fact: &str| {
        CliError::option(
            "column",
            format!("`{}` has {fact}", escape(text)),
            COLUMN_FORM,
        )
    };
    let (name, rest) =
        name(text, &[':', '=']).ok_or_else(|| error("no closing quote after its name"))?;
    if name.is_empty() {
        return Err(error("no name"));
    }
    let (encoding, expr) = match rest.strip_prefix(':') {
        Some(rest) => match rest.split_once('=') {
            Some((encoding, expr)) => (Some(encoding), Some(expr)),
            None => (Some(rest), None),
        },
        None => (None, rest.strip_prefix('=')),
    };
    if encoding.is_some_and(str::is_empty) {
        return Err(error("no encoding after the `:`"));
    }
    if expr.is_some_and(|expr| expr.trim().is_empty()) {
        return Err(error("no expression after the `=`"));
    }
    Ok(TypedColumn {
        name,
        encoding: encoding.map(str::to_owned),
        expr: expr.map(str::to_owned),
    })
}

/// Splits `text` into the name and the rest. The rest is empty or begins with one of `stops`. In a name in double
/// quotes, `""` means one double quote.
fn name<'a>(text: &'a str, stops: &[char]) -> Option<(String, &'a str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (name, rest) = text.split_at_checked(text.find(stops).unwrap_or(text.len()))?;
        return Some((name.to_owned(), rest));
    };
    let mut name = String::new();
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None if after.is_empty() || after.starts_with(stops) => return Some((name, after)),
            None => return None,
        }
    }
}

/// Parses the values that replace nulls, by column.
pub fn null_as(typed: &[String]) -> Result<Vec<(String, String)>, CliError> {
    let mut names = BTreeSet::new();
    let mut values = Vec::with_capacity(typed.len());
    for text in typed {
        let error = |fact: &str| {
            CliError::option(
                "null-as",
                format!("`{}` {fact}", escape(text)),
                "write NAME=VALUE, e.g. label=-1",
            )
        };
        let parts =
            name(text, &['=']).and_then(|(name, rest)| Some((name, rest.strip_prefix('=')?)));
        let (name, value) = parts
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| error("is not NAME=VALUE"))?;
        if !names.insert(name.clone()) {
            return Err(error("names a column for the second time"));
        }
        values.push((name, value.to_owned()));
    }
    Ok(values)
}

/// Parses the splits and their shares, which must add up to 1.
pub fn split(typed: &str) -> Result<Vec<(String, f64)>, CliError> {
    const FORM: &str = "write NAME=SHARE,... with shares that add up to 1, e.g. train=0.9,val=0.1";
    let error = |fact: String| CliError::option("split", fact, FORM);
    let mut names = BTreeSet::new();
    let mut splits = Vec::new();
    for part in typed.split(',') {
        let part = part.trim();
        let (name, share) = part
            .split_once('=')
            .ok_or_else(|| error(format!("`{}` is not NAME=SHARE", escape(part))))?;
        if let Err(fact) = check_relative_path(name) {
            return Err(error(format!(
                "`{}` cannot be a directory: {fact}",
                escape(name)
            )));
        }
        if name.contains('/') || name.starts_with('.') {
            return Err(error(format!(
                "`{}` cannot be a directory of its own beside the others",
                escape(name)
            )));
        }
        if !names.insert(name) {
            return Err(error(format!("`{}` is given twice", escape(name))));
        }
        let value = share
            .parse::<f64>()
            .ok()
            .filter(|share| share.is_finite() && *share > 0.0);
        let value =
            value.ok_or_else(|| error(format!("`{}` is not a share above 0", escape(share))))?;
        splits.push((name.to_owned(), value));
    }
    let sum: f64 = splits.iter().map(|(_, share)| share).sum();
    if (sum - 1.0).abs() > 1e-9 {
        return Err(error(format!("the shares add up to {sum}, not 1")));
    }
    Ok(splits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(name: &str, encoding: Option<&str>, expr: Option<&str>) -> TypedColumn {
        TypedColumn {
            name: name.to_owned(),
            encoding: encoding.map(str::to_owned),
            expr: expr.map(str::to_owned),
        }
    }

    #[test]
    fn a_column_has_up_to_three_parts() {
        for (text, expected) in [
            ("a", typed("a", None, None)),
            ("a:str", typed("a", Some("str"), None)),
            (
                "a:ndarray:float32:2,3",
                typed("a", Some("ndarray:float32:2,3"), None),
            ),
            ("a=b", typed("a", None, Some("b"))),
            ("a=b::text", typed("a", None, Some("b::text"))),
            ("a=b:c=d", typed("a", None, Some("b:c=d"))),
            ("a:int=b=c", typed("a", Some("int"), Some("b=c"))),
            (
                "a:ndarray:int8:2=x = ':'",
                typed("a", Some("ndarray:int8:2"), Some("x = ':'")),
            ),
            ("\"a:b=c\":str=d", typed("a:b=c", Some("str"), Some("d"))),
            ("\"say \"\"hi\"\"\"", typed("say \"hi\"", None, None)),
            ("a\"b", typed("a\"b", None, None)),
            ("a b", typed("a b", None, None)),
        ] {
            assert_eq!(column(text).unwrap(), expected, "{text}");
        }
        for text in [
            "", ":str", "=x", "a:", "a:=x", "a=", "a:str= ", "\"a", "\"a\"b", "\"\"",
        ] {
            assert!(column(text).is_err(), "{text}");
        }
        assert!(columns(&["a".to_owned(), "a:str".to_owned()]).is_err());
    }

    #[test]
    fn a_null_may_become_nothing_at_all() {
        let values =
            null_as(&["a=".to_owned(), "b=x=y".to_owned(), "\"c=d\"=1".to_owned()]).unwrap();
        let expected = [("a", ""), ("b", "x=y"), ("c=d", "1")];
        assert_eq!(
            values,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        for text in ["a", "=1", "\"a\"", ""] {
            assert!(null_as(&[text.to_owned()]).is_err(), "{text}");
        }
        assert!(null_as(&["a=1".to_owned(), "a=2".to_owned()]).is_err());
    }

    #[test]
    fn shares_add_up_to_one() {
        assert_eq!(
            split("train=0.9, val=0.1").unwrap(),
            [("train".to_owned(), 0.9), ("val".to_owned(), 0.1)]
        );
        assert!(split("a=0.3333333333,b=0.3333333333,c=0.3333333334").is_ok());
        for text in [
            "",
            "train",
            "train=",
            "train=x",
            "train=0,val=1",
            "train=-1,val=2",
            "train=nan",
            "train=0.5",
            "a=0.5,a=0.5",
            "../a=1",
            "a/b=1",
            ".shardmill=1",
            "=1",
            "a=inf",
        ] {
            assert!(split(text).is_err(), "{text}");
        }
    }
}
