//! Decides which requests are answered.

use std::fmt::Write as _;

use shardmill_core::{Error, is_equal_token, is_token};

use crate::message::{Request, Response};

/// The bytes of a random token.
const TOKEN_BYTES: usize = 16;

/// The secret that every request must carry.
#[derive(Debug)]
pub struct Token {
    text: String,
    /// The name of its cookie. Cookies of all ports of a host share one space of names.
    cookie: String,
}

impl Token {
    /// Makes the token of a server. Without `chosen`, it is random.
    pub fn new(chosen: Option<&str>, port: u16) -> Result<Self, Error> {
        let text = match chosen {
            Some(chosen) => {
                if !is_token(chosen) {
                    let reason = "a token has at least 16 letters, digits, `-` or `_`";
                    return Err(Error::usage("usage-value", reason)
                        .about("--read-only-token")
                        .with_hint("omit it for a random one"));
                }
                chosen.to_owned()
            }
            None => {
                let mut bytes = [0_u8; TOKEN_BYTES];
                getrandom::fill(&mut bytes).map_err(|error| {
                    Error::io("not available", error.into()).about("random numbers")
                })?;
                bytes.iter().fold(String::new(), |mut text, byte| {
                    // Writing to a `String` cannot fail.
                    let _ = write!(text, "{byte:02x}");
                    text
                })
            }
        };
        Ok(Self {
            text,
            cookie: format!("shardmill-view-{port}"),
        })
    }

    /// Returns the token.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the value of the header that stores the token in the browser until it is closed.
    pub fn set_cookie(&self) -> String {
        format!(
            "{}={}; Path=/; HttpOnly; SameSite=Strict",
            self.cookie, self.text
        )
    }

    /// Checks that a request comes from this machine's page: its host, its origin and its token.
    pub fn check(&self, request: &Request) -> Result<(), Response> {
        // A foreign page can resolve its own name to this machine (DNS rebinding), but it cannot send another name.
        let host = request.header("host").map(host_name);
        if !host.is_some_and(|host| ["127.0.0.1", "localhost", "[::1]"].contains(&host)) {
            return Err(Response::refusal(
                421,
                "this server answers only to the names of this machine",
            ));
        }
        let token = request
            .value("token")
            .or_else(|| self.header_token(request));
        if !token.is_some_and(|token| is_equal_token(token, &self.text)) {
            let message =
                "the token is missing or wrong; open the address that `shardmill view` printed";
            return Err(Response::refusal(401, message));
        }
        // The cookie alone does not let other sites load samples, even in browsers that ignore SameSite.
        let is_foreign = request.header("sec-fetch-site") == Some("cross-site");
        if is_foreign && request.path != "/" {
            return Err(Response::refusal(403, "another site made this request"));
        }
        Ok(())
    }

    fn header_token<'a>(&self, request: &'a Request) -> Option<&'a str> {
        if request.header("authorization").is_some() {
            return request.bearer();
        }
        let pairs = request.header("cookie")?.split(';');
        let mut pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(name, value)| (name == self.cookie).then_some(value))
    }
}

/// Returns the name in a `Host` header, without the port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_or_non_alphanumeric_tokens_are_rejected() {
        assert!(Token::new(Some("short"), 1).is_err());
        assert!(Token::new(Some("0123456789abcde;"), 1).is_err());
        assert_eq!(
            Token::new(Some("0123456789abcdef"), 1).unwrap().text(),
            "0123456789abcdef"
        );
        let one = Token::new(None, 1).unwrap();
        assert_eq!(one.text().len(), 2 * TOKEN_BYTES);
        assert_ne!(one.text(), Token::new(None, 1).unwrap().text());
    }

    #[test]
    fn host_name_excludes_the_port() {
        for (host, name) in [
            ("localhost:80", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("localhost:80.evil.example", "localhost:80.evil.example"),
            ("127.0.0.1.evil.example", "127.0.0.1.evil.example"),
        ] {
            assert_eq!(host_name(host), name);
        }
    }
}
