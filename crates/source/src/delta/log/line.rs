//! Parses the lines of a commit that add or remove files.

use serde::Deserialize;

/// One line: an add, a remove, or neither.
#[derive(Deserialize)]
pub(super) struct Line {
    pub(super) add: Option<Action>,
    pub(super) remove: Option<Action>,
}

/// The fields of an add or a remove.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Action {
    /// The path as written in the log.
    pub(super) path: String,
    /// The protocol requires this field. If it is missing, the commit counts as a data change.
    #[serde(default = "yes")]
    pub(super) data_change: bool,
    deletion_vector: Option<Vector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    storage_type: String,
    path_or_inline_dv: String,
    offset: Option<i32>,
}

const fn yes() -> bool {
    true
}

impl Action {
    /// Returns an id that distinguishes the deletion vector from others, if there is one.
    pub(super) fn deletion(&self) -> Option<String> {
        let vector = self.deletion_vector.as_ref()?;
        let (storage, place) = (&vector.storage_type, &vector.path_or_inline_dv);
        Some(super::vector_id(storage, place, vector.offset))
    }
}
