//! Reads objects from a store, and writes them.

mod access;
mod answer;
mod client;
mod credential;
mod engine;
mod handle;
mod list;
mod live;
mod manifest;
mod options;
mod pages;
mod payload;
mod precedence;
mod process;
mod protocol;
mod put;
mod read;
mod request;
mod retry;
mod save;
mod semaphore;
mod send;
mod settings;
mod signing;
mod spool;
mod token;
mod transfer;
mod walk;
mod xml;

#[cfg(test)]
mod tests;

pub use handle::{Remote, RemoteStats};
pub use list::RemoteObject;
pub use manifest::{Manifest, ManifestEntries, ManifestEntry};
pub use options::{
    DownloadOptions, OnLeaseWait, RemoteOptions, RequestOptions, RetryOptions, UploadOptions,
};
pub use read::Fetching;
pub use settings::{SETTINGS, settings_of};
pub use walk::{ListOptions, ListReport};
