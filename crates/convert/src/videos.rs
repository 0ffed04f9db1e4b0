//! Writes the index of the videos of columns beside the index of a new dataset.

use shardmill_core::Progress;
use shardmill_dataset::{Dataset, OpenOptions, Videos};
use shardmill_storage::{Location, Place, PublishMode};

use crate::error::ConvertError;
use crate::lengths::LengthsOptions;

/// Writes the index of the videos of columns of an MDS dataset beside its index, as [`write_lengths`](crate::write_lengths)
/// does. A file that belongs to the dataset is kept.
pub(crate) fn write_videos(
    location: &Location,
    options: &LengthsOptions,
    progress: &Progress,
) -> Result<(), ConvertError> {
    let opened = OpenOptions {
        limits: options.limits.clone(),
        with_deleted: true,
        ..OpenOptions::default()
    };
    let dataset = Dataset::open_at(location, &opened, &options.remote)?;
    for column in &options.columns {
        // A damaged file is replaced, too.
        if matches!(Videos::of(&dataset, column), Ok(Some(_))) {
            continue;
        }
        let bytes = Videos::find(&dataset, column, options.jobs, progress)?.to_bytes();
        let place = Place::open(location, &options.remote, None)?;
        let go_on = &mut |_: u64| !progress.is_cancelled();
        let name = Videos::file_name(column);
        place.publish_bytes(None, &name, &bytes, PublishMode::Replace, go_on)?;
    }
    Ok(())
}
