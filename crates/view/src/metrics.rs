//! The metrics of a running job, from the one address that the command line names.

use std::io;
use std::time::Duration;

use shardmill_http::{Bounds, Socket, connect, get};

use crate::error::ViewError;

/// The time in which the whole answer must arrive.
const MAX_TIME: Duration = Duration::from_secs(5);

/// What an answer may take.
const BOUNDS: Bounds = Bounds {
    body_bytes: 4 << 20,
    idle: MAX_TIME,
    total: MAX_TIME,
};

/// The address of an endpoint of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    url: String,
    host: String,
    path: String,
}

impl Metrics {
    /// Parses an address such as `http://127.0.0.1:9100/metrics`.
    ///
    /// # Errors
    ///
    /// [`ViewError::Value`] for anything but `http://`, a host and a path.
    pub fn parse(url: &str) -> Result<Self, ViewError> {
        let wrong = |reason: &str| ViewError::Value {
            object: "--metrics".to_owned(),
            reason: reason.to_owned(),
            hint: "use an address such as http://127.0.0.1:9100/metrics",
        };
        let rest = url.strip_prefix("http://");
        let rest = rest.ok_or_else(|| wrong("the address does not begin with http://"))?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("the address has a space or a character beyond ASCII"));
        }
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || host.contains(['@', '?', '#']) {
            return Err(wrong("the address has no host, or a user"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
            !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
        });
        Ok(Self {
            url: url.to_owned(),
            host: match has_port {
                true => host.to_owned(),
                false => format!("{host}:80"),
            },
            path: match path {
                "" => "/".to_owned(),
                path => path.to_owned(),
            },
        })
    }

    /// Returns the address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests the metrics, and returns them as text. A redirection is an error, because the address is fixed.
    pub fn fetch(&self) -> io::Result<String> {
        let stream = connect(&self.host, MAX_TIME)?;
        let accept = [("Accept", "text/plain")];
        let answer = get(
            &mut Socket::new(&stream),
            &self.host,
            &self.path,
            &accept,
            BOUNDS,
        )?;
        match answer.status {
            200 => Ok(String::from_utf8_lossy(&answer.body).into_owned()),
            status => Err(io::Error::other(format!("the endpoint answered {status}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_url_is_parsed_and_validated() {
        let metrics = Metrics::parse("http://127.0.0.1:9100/metrics?a=b").unwrap();
        assert_eq!(
            (&*metrics.host, &*metrics.path),
            ("127.0.0.1:9100", "/metrics?a=b")
        );
        assert_eq!(Metrics::parse("http://node").unwrap().host, "node:80");
        assert_eq!(Metrics::parse("http://[::1]").unwrap().host, "[::1]:80");
        for wrong in [
            "https://node/metrics",
            "file:///etc/passwd",
            "http:///metrics",
            "http://user@node/",
            "http://node/a\r\nX: y",
            "http://node/a b",
        ] {
            assert!(Metrics::parse(wrong).is_err(), "{wrong}");
        }
    }
}
