//! The metrics of a running job, from the one address that the command line names.

use std::io;
use std::time::Duration;

use shardmill_core::Error;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

/// The time in which the whole answer must arrive.
const MAX_TIME: Duration = Duration::from_secs(5);

/// The most bytes of the answer.
const MAX_BYTES: usize = 4 << 20;

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
    /// `InvalidInput` for anything but `http://`, a host and a path.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let wrong = |reason: &str| {
            Error::usage("usage-value", reason)
                .about("--metrics")
                .with_hint("use an address such as http://127.0.0.1:9100/metrics")
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
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { timeout(MAX_TIME, self.answer()).await? })
    }

    async fn answer(&self) -> io::Result<String> {
        let stream = TokioIo::new(TcpStream::connect(&self.host).await?);
        let connected = http1::handshake(stream).await;
        let (mut sender, connection) = connected.map_err(io::Error::other)?;
        tokio::spawn(connection);
        let request = Request::get(&self.path)
            // Servers answer it without chunks.
            .version(Version::HTTP_10)
            .header(HOST, &self.host)
            .header(ACCEPT, "text/plain")
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        if answer.status() != StatusCode::OK {
            let status = answer.status().as_u16();
            return Err(io::Error::other(format!("the endpoint answered {status}")));
        }
        let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
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
