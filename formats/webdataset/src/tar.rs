//! Reads and writes the members of tar files. Other modules decide what members mean.

mod header;
mod pax;
mod scan;
#[cfg(test)]
mod tests;
mod write;

pub use header::Dialect;
pub(crate) use header::{BLOCK, block_at};
pub use scan::{Member, Scanner, Step, check_member};
pub use write::{
    KEY_DIGITS, TRAILER_BYTES, TarStyle, content_of_numbered, member_bytes, renumber,
    trailer_bytes, write_member, write_member_head, write_trailer,
};
