//! The side files that a conversion writes next to an index: the hash of all samples, and the list of deleted samples.

mod shape;
mod sides;

pub use shardmill_mds::{
    PENDING_BYTES, PENDING_NAME, PROVENANCE_BYTES, PROVENANCE_NAME, Pending, RECORD_NAME,
    SIDE_BYTES, TOMBSTONES_NAME,
};

pub use shape::IndexShape;
pub(crate) use sides::{Converted, SideFiles, Sides, if_there, is_gone, read_file};
pub use sides::{ReadFile, check_sides, tombstones_note};
