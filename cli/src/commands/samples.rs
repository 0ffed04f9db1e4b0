//! The samples of a dataset that a command reads.

use std::sync::Arc;

use shardmill_dataset::View;
use shardmill_storage::Location;

use super::options;
use crate::args::{SampleArgs, StorageArgs};
use crate::error::Stop;

/// Which samples are read. The default is all that are not deleted.
#[derive(Clone, Debug, Default)]
pub struct SampleChoice {
    pub with_deleted: bool,
    pub view: Option<Arc<View>>,
}

impl SampleChoice {
    /// Reads the view of the options.
    pub fn read(args: &SampleArgs, storage: &StorageArgs) -> Result<Self, Stop> {
        Self::of_view(args.view.as_ref(), args.with_deleted, storage)
    }

    pub fn of_view(
        view: Option<&Location>,
        with_deleted: bool,
        storage: &StorageArgs,
    ) -> Result<Self, Stop> {
        let view = match view {
            Some(location) => Some(View::read(location, &options::remote(storage)?)?),
            None => None,
        };
        Ok(Self {
            with_deleted,
            view: view.map(Arc::new),
        })
    }

    /// Returns these samples and the deleted ones.
    pub fn stored(&self) -> Self {
        Self {
            with_deleted: true,
            ..self.clone()
        }
    }
}
