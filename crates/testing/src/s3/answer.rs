//! An answer and what happens to its connection.

use std::time::Duration;

/// An answer that is ready to be sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    pub(super) drip: Option<(usize, Duration)>,
    pub(super) end: End,
    /// The error code.
    pub(super) code: Option<String>,
}

/// What happens to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    KeepAlive,
    Close,
    CloseFirst,
    CloseAfter(u64),
    StallFirst,
    StallAfter(u64),
}

impl Answer {
    pub(super) fn new(status: u16, kind: &str, body: Vec<u8>) -> Self {
        Self {
            status,
            headers: vec![
                ("Content-Type", kind.to_owned()),
                ("Content-Length", body.len().to_string()),
            ],
            body,
            drip: None,
            end: End::KeepAlive,
            code: None,
        }
    }

    pub(super) fn error(status: u16, code: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>as the script says</Message></Error>"
        );
        Self {
            code: Some(code.to_owned()),
            ..Self::new(status, "application/xml", body.into_bytes())
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn set(&mut self, name: &'static str, value: String) {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
    }

    pub(super) fn unset(&mut self, name: &str) {
        self.headers.retain(|(known, _)| *known != name);
    }
}

/// Escapes a text for XML.
pub(super) fn escape(text: &str) -> String {
    if !text.contains(['&', '<', '>']) {
        return text.to_owned();
    }
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
