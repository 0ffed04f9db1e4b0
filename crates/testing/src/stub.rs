//! A web server whose answers a closure makes, for services of credentials: security tokens, single sign-on, containers
//! and machines.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A request.
#[derive(Clone, Debug, Default)]
pub struct StubRequest {
    /// Method, a space, and the path with its query.
    pub line: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl StubRequest {
    /// Returns the value of a header, or an empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// A web server on a free port of 127.0.0.1. It stops when it is dropped.
#[derive(Debug)]
pub struct Stub {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<StubRequest>>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stub {
    /// Starts a server. `answer` returns the status and the body of the answer to a request.
    ///
    /// # Errors
    ///
    /// Returns errors of the socket or the thread.
    pub fn start(
        answer: impl Fn(&StubRequest) -> (u16, String) + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let requests: Arc<Mutex<Vec<StubRequest>>> = Arc::default();
        let stopped = Arc::new(AtomicBool::new(false));
        let (kept, stop) = (Arc::clone(&requests), Arc::clone(&stopped));
        let thread = std::thread::Builder::new()
            .name("stub".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                    // A client that closes its connection early gets no answer.
                    let _ = serve(&stream, &answer, &kept);
                }
            })?;
        Ok(Self {
            address,
            requests,
            stopped,
            thread: Some(thread),
        })
    }

    /// Returns its address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<StubRequest> {
        let kept = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    stream: &TcpStream,
    answer: &impl Fn(&StubRequest) -> (u16, String),
    kept: &Mutex<Vec<StubRequest>>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request = StubRequest::default();
    let mut line = String::new();
    reader.read_line(&mut line)?;
    request.line = line.split(" HTTP/").next().unwrap_or_default().to_owned();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            let header = (name.to_ascii_lowercase(), value.trim().to_owned());
            request.headers.push(header);
        }
    }
    let length = request.header("content-length").parse().unwrap_or(0);
    reader.take(length).read_to_string(&mut request.body)?;
    let (status, body) = answer(&request);
    kept.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(request);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status} Stub\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
