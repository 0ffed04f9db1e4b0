//! Checks JSON in values.

use std::collections::BTreeSet;

use shardmill_core::{Limits, plain_run};

use crate::encoding::Encoding;
use crate::error::{MdsError, MdsProblem};
use crate::text::{check_digits, text};

/// Checks that a text is JSON as CPython's `json.loads` reads it: UTF-8 without a byte order mark. In addition to
/// standard JSON, it accepts `NaN`, `Infinity`, `-Infinity` and escaped lone surrogates. Keys may repeat; the last
/// value counts.
///
/// It makes one pass over the text without recursion, and uses one byte of memory for each level of nesting.
///
/// # Errors
///
/// [`MdsError`]: not UTF-8, not JSON (with the offset), or nested deeper than `limits.json_depth`.
pub fn check_json(json: &[u8], limits: &Limits) -> Result<(), MdsError> {
    text(&Encoding::Json, json)?;
    scan(json, limits).map(drop)
}

/// Checks a text that is about to be written, as [`check_json`] does, but refuses repeated keys, of which readers keep
/// only one value. Keys are compared after their escapes are decoded.
///
/// It keeps the keys of all open objects in memory.
///
/// # Errors
///
/// [`MdsError`]: those of [`check_json`], an integer with too many digits for Python, and
/// [`JsonKeyTwice`](MdsProblem::JsonKeyTwice).
pub fn check_new_json(json: &[u8], limits: &Limits) -> Result<(), MdsError> {
    Limits::check("sample-bytes", json.len() as u64, limits.sample_bytes)
        .map_err(MdsError::ValueLimit)?;
    text(&Encoding::Json, json)?;
    let longest = scanned(json, limits, Some(Vec::new()))?;
    check_digits(&Encoding::Json, longest)
}

/// Scans bytes that are known to be UTF-8, as [`check_json`] does. Returns the digits of the longest number without
/// fraction or exponent.
pub(crate) fn scan(json: &[u8], limits: &Limits) -> Result<u64, MdsError> {
    scanned(json, limits, None)
}

fn scanned(json: &[u8], limits: &Limits, keys: Option<Vec<Keys>>) -> Result<u64, MdsError> {
    let mut scanner = Scanner {
        json,
        at: 0,
        open: Vec::new(),
        keys,
        limits,
        longest_integer_digits: 0,
    };
    scanner.document()?;
    Ok(scanner.longest_integer_digits)
}

/// What may follow.
#[derive(Clone, Copy)]
enum Next {
    Value,
    ValueOrClose,
    Key,
    KeyOrClose,
    AfterValue,
}

/// The keys of an object so far.
type Keys = BTreeSet<Vec<u8>>;

struct Scanner<'a> {
    json: &'a [u8],
    at: usize,
    /// The open brackets; true for that of an object.
    open: Vec<bool>,
    /// The keys of the open objects, if they have to be checked.
    keys: Option<Vec<Keys>>,
    limits: &'a Limits,
    longest_integer_digits: u64,
}

impl Scanner<'_> {
    fn rest(&self) -> &[u8] {
        self.json.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn consume(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn error<T>(&self, expected: &'static str) -> Result<T, MdsError> {
        let (offset, found) = (self.at, self.peek());
        let found = match found {
            Some(byte) if byte.is_ascii_graphic() => format!("`{}`", char::from(byte)),
            Some(byte) => format!("byte 0x{byte:02x}"),
            None => "its end".to_owned(),
        };
        Err(MdsProblem::JsonSyntax.because(format!(
            "a JSON text has {found} at byte {offset} where {expected} should be"
        )))
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn document(&mut self) -> Result<(), MdsError> {
        let mut next = Next::Value;
        loop {
            self.skip_blanks();
            next = match next {
                Next::AfterValue => match self.open.last().copied() {
                    None if self.at == self.json.len() => return Ok(()),
                    None => return self.error("the end of the text"),
                    Some(object) => self.after_item(object)?,
                },
                Next::Key => self.key("a key in quotes")?,
                Next::KeyOrClose => match self.peek() {
                    Some(b'}') => self.close(),
                    _ => self.key("a key in quotes or `}`")?,
                },
                Next::ValueOrClose => match self.peek() {
                    Some(b']') => self.close(),
                    _ => self.value("a value or `]`")?,
                },
                Next::Value => self.value("a value")?,
            };
        }
    }

    fn close(&mut self) -> Next {
        self.at += 1;
        if self.open.pop() == Some(true)
            && let Some(keys) = &mut self.keys
        {
            keys.pop();
        }
        Next::AfterValue
    }

    fn after_item(&mut self, object: bool) -> Result<Next, MdsError> {
        match (object, self.peek()) {
            (true, Some(b',')) => {
                self.at += 1;
                Ok(Next::Key)
            }
            (false, Some(b',')) => {
                self.at += 1;
                Ok(Next::Value)
            }
            (true, Some(b'}')) | (false, Some(b']')) => Ok(self.close()),
            (true, _) => self.error("`,` or `}`"),
            (false, _) => self.error("`,` or `]`"),
        }
    }

    fn key(&mut self, expected: &'static str) -> Result<Next, MdsError> {
        if !self.consume(b'"') {
            return self.error(expected);
        }
        let start = self.at - 1;
        self.string()?;
        self.note(start)?;
        self.skip_blanks();
        if !self.consume(b':') {
            return self.error("`:`");
        }
        Ok(Next::Value)
    }

    /// Records the key that began at `start` and was just read.
    fn note(&mut self, start: usize) -> Result<(), MdsError> {
        let Some(keys) = self.keys.as_mut().and_then(|keys| keys.last_mut()) else {
            return Ok(());
        };
        let quoted = self.json.get(start..self.at).unwrap_or_default();
        // A lone surrogate is not text; such a key is compared in its escaped form.
        let key = match serde_json::from_slice::<String>(quoted) {
            Ok(key) => key.into_bytes(),
            Err(_) => quoted.to_vec(),
        };
        match keys.replace(key) {
            None => Ok(()),
            Some(twice) => Err(MdsError::json_key_twice(&String::from_utf8_lossy(&twice))),
        }
    }

    fn value(&mut self, expected: &'static str) -> Result<Next, MdsError> {
        const WORDS: [&[u8]; 5] = [b"null", b"true", b"false", b"NaN", b"Infinity"];
        match self.peek() {
            Some(bracket @ (b'{' | b'[')) => {
                let depth = self.open.len() as u64 + 1;
                Limits::check("json-depth", depth, self.limits.json_depth)
                    .map_err(MdsError::ValueLimit)?;
                let object = bracket == b'{';
                self.at += 1;
                self.open.push(object);
                if let Some(keys) = &mut self.keys
                    && object
                {
                    keys.push(Keys::new());
                }
                return Ok(if object {
                    Next::KeyOrClose
                } else {
                    Next::ValueOrClose
                });
            }
            Some(b'"') => {
                self.at += 1;
                self.string()?;
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => match WORDS.into_iter().find(|word| self.rest().starts_with(word)) {
                Some(word) => self.at += word.len(),
                None => return self.error(expected),
            },
        }
        Ok(Next::AfterValue)
    }

    fn digits(&mut self) -> Result<usize, MdsError> {
        let digits = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits == 0 {
            return self.error("a digit");
        }
        self.at += digits;
        Ok(digits)
    }

    fn number(&mut self) -> Result<(), MdsError> {
        const INFINITY: &[u8] = b"Infinity";
        if self.consume(b'-') && self.rest().starts_with(INFINITY) {
            self.at += INFINITY.len();
            return Ok(());
        }
        // After a leading zero, a digit is an error: `,` or the end is expected.
        let digits = if self.consume(b'0') {
            1
        } else {
            self.digits()?
        };
        let mut integer = true;
        if self.consume(b'.') {
            integer = false;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            integer = false;
            self.at += 1;
            let _sign = self.consume(b'+') || self.consume(b'-');
            self.digits()?;
        }
        if integer {
            self.longest_integer_digits = self.longest_integer_digits.max(digits as u64);
        }
        Ok(())
    }

    /// Scans the rest of a string, after its opening quote.
    fn string(&mut self) -> Result<(), MdsError> {
        loop {
            self.at += plain_run(self.rest(), false);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                _ => return self.error("a character of a string or its closing quote"),
            }
        }
    }

    /// Scans the rest of an escape, after its backslash.
    fn escape(&mut self) -> Result<(), MdsError> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                // COMPAT: CPython accepts a lone surrogate, so surrogates are not checked.
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return self.error("a hexadecimal digit");
                    }
                    self.at += 1;
                }
            }
            _ => return self.error("one of \"\\/bfnrtu"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::Diagnostic as _;

    use super::*;
    use crate::testdata::{lines, unhex};

    fn check(json: impl AsRef<[u8]>) -> Result<(), MdsError> {
        check_json(json.as_ref(), &Limits::default())
    }

    #[test]
    fn json_validity_agrees_with_python() {
        let (mut good, mut bad) = (0, 0);
        for line in lines(include_str!("testdata/json.txt")) {
            let json = unhex(line[0]);
            let expected = line[1] == "1";
            assert_eq!(
                check(&json).is_ok(),
                expected,
                "{}",
                String::from_utf8_lossy(&json)
            );
            if expected { good += 1 } else { bad += 1 }
        }
        assert_eq!(good + bad, 600);
        assert!(good > 100 && bad > 100, "{good} {bad}");
    }

    #[test]
    fn json_errors_have_position_and_expectation() {
        for (json, message) in [
            (
                "",
                "a JSON text has its end at byte 0 where a value should be",
            ),
            (
                "[1 2]",
                "a JSON text has `2` at byte 3 where `,` or `]` should be",
            ),
            (
                "{\"a\":1,}",
                "a JSON text has `}` at byte 7 where a key in quotes should be",
            ),
            (
                "{\"a\" 1}",
                "a JSON text has `1` at byte 5 where `:` should be",
            ),
            (
                "\"a\nb\"",
                "a JSON text has byte 0x0a at byte 2 where a character of a string or its closing quote should be",
            ),
            (
                "1.",
                "a JSON text has its end at byte 2 where a digit should be",
            ),
            (
                "01",
                "a JSON text has `1` at byte 1 where the end of the text should be",
            ),
            (
                "\"\\u00g0\"",
                "a JSON text has `g` at byte 5 where a hexadecimal digit should be",
            ),
        ] {
            let error = check(json).unwrap_err();
            assert_eq!(
                (error.to_string().as_str(), error.id()),
                (message, "json-syntax")
            );
        }
        let error = check(b"\"ab\xff\"").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a datum of encoding `json` is not UTF-8 from byte 3 of 5"
        );
        assert_eq!(error.id(), "sample-utf8");
    }

    #[test]
    fn check_new_json_rejects_duplicate_keys() {
        let check = |json: &str| check_new_json(json.as_bytes(), &Limits::default());
        for json in [
            "{}",
            r#"{"a": 1, "b": {"a": 1, "b": [{"a": 1}, {"a": 2}]}, "A": NaN}"#,
            r#"[{"a": 1}, {"a": 1}]"#,
            r#"{"a": "a", "": "a"}"#,
            r#"{"\ud800": 1, "\ud801": 2}"#,
        ] {
            assert_eq!(check(json), Ok(()), "{json}");
        }
        for (json, key) in [
            (r#"{"a": 1, "a": 1}"#, "a"),
            (r#"{"b": [], "a": {"c": {}}, "b": 2}"#, "b"),
            (r#"[{}, {"x": {"y": 1, "z": 2, "y": 3}}]"#, "y"),
            (r#"{"\u00e9": 1, "é": 2}"#, "é"),
            (r#"{"\ud800": 1, "\ud800": 2}"#, r#""\ud800""#),
        ] {
            let error = check(json).unwrap_err();
            assert_eq!(error, MdsError::json_key_twice(key), "{json}");
            assert_eq!(error.id(), "json-syntax");
            assert_eq!(
                super::check_json(json.as_bytes(), &Limits::default()),
                Ok(())
            );
        }
        assert_eq!(check("{").unwrap_err().id(), "json-syntax");
        assert_eq!(check(&"1".repeat(5000)).unwrap_err().id(), "number-digits");
    }

    #[test]
    fn json_depth_is_limited_without_recursion() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check(nested(32)), Ok(()));
        let error = check(nested(33)).unwrap_err();
        assert_eq!(error.id(), "limit-json-depth");
        assert_eq!(error.to_string(), "json-depth is 33, above the limit of 32");

        let mut limits = Limits::default();
        limits.json_depth = u64::MAX;
        let deep = 1_000_000;
        assert_eq!(check_json(nested(deep).as_bytes(), &limits), Ok(()));
        let open = "{\"a\":[".repeat(deep);
        assert!(check_json(open.as_bytes(), &limits).is_err());
    }

    #[test]
    fn brackets_are_matched_at_every_depth() {
        let mut limits = Limits::default();
        limits.json_depth = 1000;
        let mut seed = 7_u64;
        for depth in [1, 63, 64, 65, 127, 128, 129, 300] {
            let mut opening = String::new();
            let mut closing = Vec::new();
            for _ in 0..depth {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let object = seed >> 63 == 1;
                opening.push_str(if object { "{\"a\":" } else { "[" });
                closing.push(if object { '}' } else { ']' });
            }
            let right: String = closing.iter().rev().collect();
            assert_eq!(
                check_json(format!("{opening}1{right}").as_bytes(), &limits),
                Ok(()),
                "{depth}"
            );
            for level in 0..depth {
                let mut wrong = closing.clone();
                wrong[level] = if wrong[level] == '}' { ']' } else { '}' };
                let wrong: String = wrong.iter().rev().collect();
                let result = check_json(format!("{opening}1{wrong}").as_bytes(), &limits);
                assert!(result.is_err(), "{depth} {level}");
            }
        }
    }

    #[test]
    fn scan_returns_the_longest_integer_length() {
        for (json, digits) in [
            ("1", 1),
            ("-12", 2),
            ("[1, 234, 5.6789, 12345e1]", 3),
            ("\"123\"", 0),
            ("0", 1),
        ] {
            assert_eq!(
                scan(json.as_bytes(), &Limits::default()),
                Ok(digits),
                "{json}"
            );
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic_the_checker(json: Vec<u8>) {
            let _ = check(&json);
            let _ = scan(&json, &Limits::default());
        }

        #[test]
        fn text_accepted_by_serde_json_is_accepted(json in "[\\[\\]{}:, \"\\\\a0-3.eE+-]{0,14}") {
            // serde_json refuses what Python accepts in three cases, none of which occurs here: NaN, Infinity, lone
            // surrogates. It also refuses numbers beyond f64.
            if serde_json::from_str::<serde_json::Value>(&json).is_ok() {
                prop_assert_eq!(check(&json), Ok(()));
            } else if check(&json).is_ok() {
                prop_assert!(json.contains(['e', 'E']), "{}", json);
            }
        }
    }
}
