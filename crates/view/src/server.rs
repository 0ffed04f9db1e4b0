//! The HTTP server of the viewer: binds the loopback interface, checks the token and dispatches requests.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;

use shardmill_http::{Request, Response, Socket, accept, read_request, write_response};

use crate::error::ViewError;
use crate::guard::{Token, protect};
use crate::page::{page, policy};
use crate::viewed::Viewed;

/// The most connections at a time.
const CONNECTIONS: usize = 64;

/// The content security policy of data. A document of it could neither run scripts nor load anything.
const DATA_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// A server that shows one dataset to the user of this machine.
#[derive(Debug)]
pub struct Server {
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
    /// [`ViewError::Token`] for a weak token; [`ViewError::System`] for a port that is in use.
    pub fn bind(viewed: Viewed, port: u16, token: Option<&str>) -> Result<Self, ViewError> {
        let failed = |source| ViewError::System {
            object: format!("127.0.0.1:{port}"),
            source,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self {
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

    /// Answers requests until the process ends.
    pub fn run(&self) {
        let shared = Arc::clone(&self.shared);
        accept(&self.listener, CONNECTIONS, move |stream| {
            // A client that closes its connection early gets no response.
            let _ = shared.serve(stream);
        });
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut socket = Socket::new(stream);
        let (mut response, is_head, is_page) = match read_request(&mut socket) {
            Ok(request) => {
                let response = self.respond(&request, &|| is_gone(stream));
                let is_page = request.path == "/" && response.is_ok();
                (
                    response.unwrap_or_else(|refused| refused),
                    request.is_head,
                    is_page,
                )
            }
            Err(refused) => (refused, false, false),
        };
        protect(
            &mut response,
            if is_page { &self.policy } else { DATA_POLICY },
        );
        write_response(&mut socket, &response, is_head)
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

/// Returns whether the client has closed its side of the connection.
fn is_gone(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let peeked = stream
        .set_nonblocking(true)
        .and_then(|()| stream.peek(&mut byte));
    let restored = stream.set_nonblocking(false);
    match peeked {
        Ok(read) => read == 0 || restored.is_err(),
        Err(error) => error.kind() != io::ErrorKind::WouldBlock || restored.is_err(),
    }
}
