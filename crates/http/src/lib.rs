//! Reads and writes the HTTP messages of small servers inside one machine or cluster.
//!
//! A [`Connection`] carries one request: a [`Socket`] in the clear, or one that its user encrypts. [`accept`] takes connections,
//! [`read_request`] and [`write_response`] are the side of the server, and [`get`] is the side of the client. [`is_token`] and
//! [`is_equal`] are for the secret that a request carries.
//!
//! Object stores are read by `shardmill-storage`, which has TLS, redirects, retries and credentials.

// The modules, from the bottom up: each uses only modules above it in this list.

mod socket; // Deadlines of connections.
mod token; // Secrets of requests.

mod client; // One request.
mod message; // Requests and responses of a server.

mod accept; // Connections.

pub use accept::accept;
pub use client::{Answer, Bounds, connect, get};
pub use message::{Request, Response, UNKNOWN, read_request, write_response};
pub use socket::{Connection, Socket};
pub use token::{is_equal, is_token};
