//! Implements the kernel's `ObjectStore` over one bucket: absolute keys, read only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use delta_kernel::object_store::path::Path;
use delta_kernel::object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use shardmill_core::lock;
use shardmill_storage::{Remote, RemoteObject, StorageError};

/// The most bytes of one log file, or of one file with deletion vectors.
const LOG_BYTES: u64 = 4 << 30;

/// A bucket, as the kernel reads it.
#[derive(Clone)]
pub(crate) struct KernelStore {
    remote: Remote,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// The lengths of objects that were listed or requested.
    bytes: BTreeMap<String, u64>,
    /// The first failure, not counting missing objects. The kernel would reduce it to text.
    failure: Option<StorageError>,
}

impl KernelStore {
    pub(crate) fn new(remote: Remote) -> Self {
        Self {
            remote,
            seen: Arc::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Takes the store's own error, to report it instead of the one that the kernel made from it.
    pub(crate) fn take_failure(&self) -> Option<StorageError> {
        self.seen().failure.take()
    }

    fn failed(&self, key: &str, error: StorageError) -> Error {
        if error.is_not_found() {
            return Error::NotFound {
                path: key.to_owned(),
                source: Box::new(error),
            };
        }
        let text = error.to_string();
        self.seen().failure.get_or_insert(error);
        Error::Generic {
            store: "shardmill",
            source: text.into(),
        }
    }

    /// Runs a blocking request on a thread of the blocking pool.
    async fn wait<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&Remote) -> std::result::Result<T, StorageError> + Send + 'static,
    ) -> Result<T> {
        let remote = self.remote.clone();
        let done = tokio::task::spawn_blocking(move || work(&remote)).await?;
        done.map_err(|error| self.failed(key, error))
    }

    /// Returns the length of an object.
    async fn bytes(&self, key: &str) -> Result<u64> {
        let known = self.seen().bytes.get(key).copied();
        if let Some(bytes) = known {
            return Ok(bytes);
        }
        let name = key.to_owned();
        let found = self
            .wait(key, move |remote| remote.size(&name, &mut |_| true))
            .await?;
        let bytes = found.ok_or_else(|| Error::NotFound {
            path: key.to_owned(),
            source: "there is no such object".into(),
        })?;
        self.seen().bytes.insert(key.to_owned(), bytes);
        Ok(bytes)
    }

    /// Lists the objects below a folder, by their keys.
    async fn objects(self, folder: String) -> Result<Vec<Result<ObjectMeta>>> {
        let prefix = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        let objects = self
            .wait(&folder, move |remote| {
                let mut objects = remote.list(&prefix, Remote::MAX_LISTED, &mut |_| true)?;
                objects.retain(|object| !object.is_marker());
                objects.sort_unstable();
                Ok(objects)
            })
            .await?;
        let mut seen = self.seen();
        for object in &objects {
            seen.bytes.insert(object.name.clone(), object.bytes);
        }
        Ok(objects.iter().map(meta_of).collect())
    }
}

fn meta_of(object: &RemoteObject) -> Result<ObjectMeta> {
    let modified = object.modified_ms.unwrap_or_default();
    Ok(ObjectMeta {
        location: Path::parse(&object.name)?,
        last_modified: DateTime::from_timestamp_millis(modified).unwrap_or_default(),
        size: object.bytes,
        e_tag: None,
        version: None,
    })
}

fn refused<T>(operation: &str) -> Result<T> {
    Err(Error::NotSupported {
        source: format!("{operation}: a source is not written to").into(),
    })
}

impl fmt::Debug for KernelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for KernelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.location().fmt(f)
    }
}

#[async_trait]
impl ObjectStore for KernelStore {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        refused("put")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        refused("put")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let key = location.as_ref();
        let size = self.bytes(key).await?;
        let range = match options.range {
            None => 0..size,
            Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
            Some(GetRange::Offset(start)) => start..size,
            Some(GetRange::Suffix(count)) => size.saturating_sub(count)..size,
        };
        let bytes = if options.head || range.start >= range.end {
            Vec::new()
        } else {
            let (name, wanted) = (key.to_owned(), range.clone());
            self.wait(key, move |remote| {
                let bytes = wanted.end - wanted.start;
                if bytes > LOG_BYTES {
                    return Err(StorageError::TooLarge {
                        path: remote.display(&name).into(),
                        bytes,
                        max: LOG_BYTES,
                    });
                }
                remote.read_range(&name, Some(size), wanted)
            })
            .await?
        };
        let payload = stream::once(async move { Ok(bytes.into()) }).boxed();
        Ok(GetResult {
            payload: GetResultPayload::Stream(payload),
            meta: ObjectMeta {
                location: location.clone(),
                last_modified: DateTime::<Utc>::default(),
                size,
                e_tag: None,
                version: None,
            },
            range,
            attributes: delta_kernel::object_store::Attributes::default(),
        })
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        stream::once(async { refused("delete") }).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix.map(ToString::to_string).unwrap_or_default();
        let objects = self.clone().objects(folder);
        stream::once(objects)
            .map_ok(stream::iter)
            .try_flatten()
            .boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        refused("list folders")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        refused("copy")
    }
}
