//! The HTTP server of the viewer: binds the loopback interface, checks the token and dispatches requests.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::Error;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::http;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::guard::Token;
use crate::message::{Request, Response};
use crate::page::{page, policy};
use crate::viewed::Viewed;

/// The most connections at a time.
const CONNECTIONS: usize = 64;

/// The most bytes, and the most headers, of the head of a request.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 64;

/// The time in which the head of a request must arrive.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// The longest time of a connection. It includes that of a command.
const TOTAL_TIME: Duration = Duration::from_secs(600);

/// How long no connection is accepted after a failure, which is mostly too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// The content security policy of data. A document of it could neither run scripts nor load anything.
const DATA_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// A server that shows one dataset to the user of this machine.
#[derive(Debug)]
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    shared: Arc<Shared>,
    port: u16,
}

#[derive(Debug)]
struct Shared {
    viewed: Viewed,
    token: Token,
    page: String,
    policy: String,
}

impl Server {
    /// Binds a port of the loopback interface; 0 stands for any free one. Without `token`, the token is random.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a weak token; `Storage` for a port that is in use.
    pub fn bind(viewed: Viewed, port: u16, token: Option<&str>) -> Result<Self, Error> {
        let failed = |error| Error::io("not available", error).about(format!("127.0.0.1:{port}"));
        let runtime = Runtime::new().map_err(failed)?;
        let bound = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        let listener = bound.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self {
            runtime,
            listener,
            port,
            shared: Arc::new(Shared {
                viewed,
                token: Token::new(token, port)?,
                page: page(None),
                policy: policy(false),
            }),
        })
    }

    /// Returns the address of the page. It contains the token.
    #[must_use]
    pub fn url(&self) -> String {
        let token = self.shared.token.text();
        format!("http://127.0.0.1:{}/?token={token}", self.port)
    }

    /// Answers requests until the process ends. Connections beyond the most are closed.
    pub fn run(&self) {
        self.runtime.block_on(async {
            let free = Arc::new(Semaphore::new(CONNECTIONS));
            loop {
                let Ok((stream, _)) = self.listener.accept().await else {
                    sleep(PAUSE).await;
                    continue;
                };
                let Ok(permit) = Arc::clone(&free).try_acquire_owned() else {
                    continue;
                };
                let shared = Arc::clone(&self.shared);
                tokio::spawn(async move {
                    // A client that closes its connection early, or is too slow, gets no response.
                    let _ = timeout(TOTAL_TIME, shared.exchange(stream)).await;
                    drop(permit);
                });
            }
        });
    }
}

impl Shared {
    /// Answers one request.
    async fn exchange(self: Arc<Self>, stream: TcpStream) -> hyper::Result<()> {
        let service = service_fn(|request| Arc::clone(&self).answer(request));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).keep_alive(false);
        builder.header_read_timeout(HEAD_TIME);
        builder.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
        builder
            .serve_connection(TokioIo::new(stream), service)
            .await
    }

    async fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
    ) -> http::Result<hyper::Response<Full<Bytes>>> {
        // The future is dropped, and this with it, when the client closes its side of the connection.
        let client = Arc::new(());
        let reader = Arc::downgrade(&client);
        let shared = Arc::clone(&self);
        let answered = spawn_blocking(move || {
            let request = Request::new(&request)?;
            let response = shared.respond(&request, &|| reader.strong_count() == 0)?;
            Ok((response, request.path == "/"))
        });
        let answered = answered
            .await
            .unwrap_or_else(|_| Err(Response::refusal(500, "the server failed")));
        drop(client);
        match answered {
            Ok((page, true)) => page.sent(&self.policy),
            Ok((response, false)) | Err(response) => response.sent(DATA_POLICY),
        }
    }

    fn respond(&self, request: &Request, is_gone: &dyn Fn() -> bool) -> Result<Response, Response> {
        self.token.check(request)?;
        if request.path != "/" {
            return self.viewed.answer(request, is_gone);
        }
        let mut response = Response::new("text/html; charset=utf-8", self.page.as_str());
        response
            .headers
            .push(("Set-Cookie", self.token.set_cookie()));
        Ok(response)
    }
}
