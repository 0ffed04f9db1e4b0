//! Shows a dataset in the browser: a small server on the loopback interface, its page, and the same page as a file.
//!
//! [`Server`] answers requests for one dataset. Single samples are read by [`Samples`], in the process of the server.
//! Everything else that the page shows is the output of a `shardmill` command, which [`Program`] runs: what `inspect`,
//! `verify`, `stats`, `order`, `which` and `plan` print with `--json`. [`report`] returns the page with the first
//! samples and statistics as one file.
//!
//! Samples are hostile: their bytes come from anywhere. Three rules keep them harmless:
//!
//! - The page and all data require a random token, and a `Host` header with a name of this machine. No request names a
//!   file: samples are named by number, and only the files of the index are read.
//! - A preview has a bounded size, whatever a sample contains.
//! - Bytes are served with the type of their content, and only types that cannot contain scripts; the content security
//!   policy allows no script but the page's own.

use shardmill_core::Error;

// The modules, from the bottom up: each uses only modules above it in this list.

mod media; // Types of images, sounds and videos.
mod message; // Requests and responses.
mod metrics; // The metrics of a running job.

mod guard; // Which requests are answered.
mod page; // The HTML file.
mod selections; // Samples that meet a condition.
mod tars; // Samples of tar shards.

mod samples; // Samples by number.

mod cached; // Shards in a cache.
mod preview; // Values in few bytes.
mod program; // Commands.

mod viewed; // Answers about one dataset.

mod server; // Connections.

pub use metrics::Metrics;
pub use program::Program;
pub use samples::{FieldValue, RowSource, Samples};
pub use selections::Selections;
pub use server::Server;
pub use viewed::Viewed;

/// Returns a page with the first samples, statistics and the shards of a dataset, which needs no server.
///
/// # Errors
///
/// `Storage` if a command cannot be run.
pub fn report(viewed: &Viewed) -> Result<String, Error> {
    let data = viewed.report().map_err(|response| {
        let body = String::from_utf8_lossy(&response.body).into_owned();
        Error::io("not available", std::io::Error::other(body))
            .about(viewed.program.path.to_string_lossy())
    })?;
    Ok(page::page(Some(&data)))
}
