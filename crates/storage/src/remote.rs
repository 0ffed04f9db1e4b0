//! Reads objects from a store, and writes them.

// The modules, from the bottom up: each uses only modules above it in this list.

mod client; // The HTTP client.
mod credential_source; // Where credentials came from.
mod renewal; // Credentials that are renewed before they expire.
mod semaphore; // The limit of concurrent requests.
mod settings; // The settings of stores.
mod xml; // XML answers.

mod answer; // Answers, and what their failures mean.
mod connector; // The HTTP client of providers of credentials.
mod credential_request; // Requests to services that give credentials.
mod payload; // Bodies of requests and their checksums.
mod profile; // Profiles of configuration files.

mod aws; // Credentials of Amazon.

mod signing; // The address of a bucket and the source of its credentials.

mod access; // Addresses and credentials from locations and settings.
mod pages; // Pages of listings.
mod token; // Tokens of Databricks.

mod credential; // Credentials from providers, and signatures.
mod precedence; // Explicit settings before those of the environment.
mod protocol; // The requests of each store, and their answers.
mod sorted; // Listings that are too large for memory.

mod options; // Options for requests.
mod request; // Signed requests.

mod engine; // The thread and the connections of a process.

mod live; // The state of a location in one process.

mod handle; // The handle of a location.
mod retry; // Attempts, waits and deadlines.

mod hub; // Revisions and redirects of the Hugging Face Hub.

mod send; // Requests with short answers.
mod transfer; // Transfers of ranges.

mod read; // Reads of objects and ranges.

mod list; // Listings.
mod spool; // Ranges of an object in a local file.

mod put; // Uploads.
mod save; // Downloads to files.
mod walk; // Concurrent listings.

#[cfg(test)]
mod tests;

pub use credential_source::CredentialSource;
pub use handle::{Remote, RemoteStats};
pub use list::RemoteObject;
pub use options::{
    DownloadOptions, OnLeaseWait, RemoteOptions, RequestOptions, RetryOptions, StoreSettings,
    UploadOptions,
};
pub use read::Fetching;
pub use settings::{SETTINGS, SINGLE_WRITER, settings_of};
pub use sorted::SortedListing;
pub use walk::ListOptions;
