//! Downloads of objects to files.

use std::io::Write as _;
use std::sync::Arc;

use shardmill_core::CancelToken;

use super::answer::Failure;
use super::handle::Remote;
use super::transfer::Seen;
use crate::error::StorageError;
use crate::temp::TempFile;

/// The number of parts that are fetched concurrently and held in memory.
const PARTS: u64 = 16;

impl Remote {
    /// Downloads an object to a file and returns its length. Parts of `part_bytes` are fetched concurrently, all from
    /// the same version of the object. Later reads may be of another version. `cancel` is called several times a second
    /// with the number of bytes written.
    ///
    /// After an error the file contains a part of the object.
    ///
    /// # Errors
    ///
    /// [`StorageError::At`]. [`StorageError::Name`]. Errors of writing the file.
    pub fn save(
        &self,
        name: &str,
        file: &mut TempFile,
        cancel: &mut CancelToken<'_>,
    ) -> Result<u64, StorageError> {
        let failed = |fault| self.error(name, fault);
        let found = self.stat(name, cancel)?;
        let found = found.ok_or_else(|| self.not_found(name))?;
        let seen = Arc::new(Seen::default());
        let agreed = seen.agree(found.etag.as_deref(), Some(found.bytes));
        if let Err(Failure::ProtocolError(fault) | Failure::Final(fault)) = agreed {
            return Err(failed(fault));
        }
        let part_bytes = self.shared.options.download.part_bytes.max(1);
        let mut written = 0;
        while written < found.bytes {
            let end = written.saturating_add(part_bytes.saturating_mul(PARTS));
            let range = written..end.min(found.bytes);
            let (key, seen) = (self.shared.location.key(name), Arc::clone(&seen));
            let whole = Some(found.bytes);
            let bytes = self.wait_while(name, &mut |_| cancel(written), |live, _| async move {
                live.get_parts(&key, range, whole, &seen).await
            })?;
            file.write_all(&bytes)
                .map_err(|error| file.write_error(error))?;
            written += bytes.len() as u64;
            if !cancel(written) {
                return Err(failed(StorageError::Interrupted));
            }
        }
        Ok(written)
    }
}
