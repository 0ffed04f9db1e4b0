//! Options for requests to a store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::precedence;
use super::settings::{SINGLE_WRITER, Settings, known_name, option};
use crate::error::StorageError;
use crate::heartbeat::LeaseWait;

/// Options for requests to a store: limits, part sizes, retries and settings.
#[derive(Clone, Default)]
pub struct RemoteOptions {
    /// Limits of single requests.
    pub request: RequestOptions,
    /// How large objects are fetched.
    pub download: DownloadOptions,
    /// How files are uploaded.
    pub upload: UploadOptions,
    /// How failed requests are repeated.
    pub retry: RetryOptions,
    /// Credentials, endpoint and region, by the names of environment variables: see [`SETTINGS`](crate::SETTINGS). The files of
    /// profiles are searched in `HOME`.
    pub settings: BTreeMap<String, String>,
    /// The names of the settings that were given explicitly, for reports.
    pub explicit: BTreeSet<String>,
    /// Called when a writer has to wait for the lease of another writer, if the wait can take a second or more.
    pub on_lease_wait: Option<OnLeaseWait>,
}

/// Limits of single requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestOptions {
    /// The maximum number of concurrent requests to a store. Ranges of up to 64 KiB and requests without a body have a
    /// separate limit of twice as many. Both are lowered while the store asks to slow down for more than a fifth of the
    /// requests.
    pub connections: usize,
    /// The timeout for making a connection.
    pub connect_timeout: Duration,
    /// The longest time without receiving a byte.
    pub idle_timeout: Duration,
    /// The slowest transfer that is not aborted, measured over `slow_window`.
    pub min_bytes_per_second: u64,
    /// How long a transfer may be too slow.
    pub slow_window: Duration,
    /// The deadline for one object or part, retries included. Waits for a free connection do not count. Received bytes
    /// extend it at the rate of `min_bytes_per_second`.
    pub total_timeout: Duration,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self {
            connections: 64,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            min_bytes_per_second: 16 << 10,
            slow_window: Duration::from_secs(30),
            total_timeout: Duration::from_secs(180),
        }
    }
}

/// How large objects are fetched.
#[derive(Clone, Copy, Debug)]
pub struct DownloadOptions {
    /// The size in bytes of each part of an object that is fetched in parts.
    pub part_bytes: u64,
    /// Objects and ranges larger than this many bytes are fetched in parts.
    pub split_above: u64,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        Self {
            part_bytes: 4 << 20,
            split_above: 8 << 20,
        }
    }
}

/// How files are uploaded.
#[derive(Clone, Copy, Debug)]
pub struct UploadOptions {
    /// Files larger than this many bytes are uploaded in parts.
    pub split_above: u64,
    /// The maximum size in bytes of an uploaded part. All parts but the last are equal. They grow if there would be
    /// more than 10,000.
    pub part_bytes: u64,
    /// The number of parts of a file that are uploaded concurrently and held in memory. Google gets one at a time.
    pub parts: usize,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            split_above: 64 << 20,
            part_bytes: 16 << 20,
            parts: 4,
        }
    }
}

/// How failed requests are repeated.
#[derive(Clone, Copy, Debug)]
pub struct RetryOptions {
    /// The maximum number of requests for one object or part.
    pub attempts: u32,
    /// Whether `attempts` counts only requests that the store answers with an error. Then a store that cannot be
    /// reached or asks to slow down is tried until the deadline.
    pub outlasts_outages: bool,
    /// The upper bound of the wait before the second request. It triples with each retry; the wait is a random part of
    /// it.
    pub back_off: Duration,
    /// The limit of the tripling.
    pub back_off_most: Duration,
    /// The longest `Retry-After` that is obeyed.
    pub retry_after_most: Duration,
    /// The retries that the process makes without delay, as a percentage of its requests.
    pub budget_percent: u64,
    /// Added to `budget_percent`. Retries beyond this budget take turns, one per `turn`.
    pub budget_floor: u64,
    /// The interval between two retries beyond the budget.
    pub turn: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            attempts: 8,
            outlasts_outages: true,
            back_off: Duration::from_millis(20),
            back_off_most: Duration::from_secs(5),
            retry_after_most: Duration::from_secs(60),
            budget_percent: 20,
            budget_floor: 10,
            turn: Duration::from_millis(100),
        }
    }
}

/// A function that reports the wait for the lease of another writer.
pub type OnLeaseWait = Arc<dyn Fn(&LeaseWait) + Send + Sync>;

impl RemoteOptions {
    /// Returns these options with more settings, given as `NAME=VALUE` texts: see [`SETTINGS`](crate::SETTINGS). They take precedence as
    /// in [`with_settings`](Self::with_settings).
    ///
    /// ```
    /// use shardmill_storage::RemoteOptions;
    ///
    /// let options = RemoteOptions::default().with_options(&["aws_region=eu-west-1"])?;
    /// assert_eq!(options.settings["AWS_REGION"], "eu-west-1");
    /// assert!(options.with_options(&["aws_regoin=eu-west-1"]).is_err());
    /// # Ok::<(), shardmill_storage::StorageError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `url-setting`, which is `InvalidInput`: an unknown name, or a text without an equals sign.
    pub fn with_options<T: AsRef<str>>(self, texts: &[T]) -> Result<Self, StorageError> {
        let explicit = texts.iter().map(|text| option(text.as_ref()));
        Ok(self.with_settings(explicit.collect::<Result<_, _>>()?))
    }

    /// Returns whether the user declares that no other process writes to the same destination.
    ///
    /// # Errors
    ///
    /// `url-setting`: the value is not that of a flag.
    pub fn is_single_writer(&self) -> Result<bool, StorageError> {
        Settings(&self.settings).flag(SINGLE_WRITER)
    }

    /// Returns these options with explicit settings, after checking their names. They take precedence as in
    /// [`with_settings`](Self::with_settings). Errors are those of [`StoreSettings::checked`].
    pub fn with_checked(
        self,
        explicit: BTreeMap<String, String>,
        object: &'static str,
    ) -> Result<Self, StorageError> {
        Ok(self.with_settings(StoreSettings::checked(explicit, object)?.0))
    }

    /// Returns these options with explicit settings. They take precedence over existing settings, which usually come
    /// from the environment. They also override other names of the same value and other ways to log in.
    ///
    /// ```
    /// use std::collections::{BTreeMap, BTreeSet};
    ///
    /// use shardmill_storage::RemoteOptions;
    ///
    /// let mut options = RemoteOptions::default();
    /// options.settings.insert("AWS_ENDPOINT_URL".to_owned(), "https://one".to_owned());
    /// let explicit = BTreeMap::from([("AWS_ENDPOINT".to_owned(), "https://two".to_owned())]);
    /// assert_eq!(options.with_settings(explicit.clone()).settings, explicit);
    /// ```
    #[must_use]
    pub fn with_settings(mut self, explicit: BTreeMap<String, String>) -> Self {
        self.explicit.extend(explicit.keys().cloned());
        precedence::add(&mut self.settings, explicit);
        self
    }
}

/// Explicit settings of a store, whose names are known. `Debug` hides the values, which are secrets.
#[derive(Clone, Default)]
pub struct StoreSettings(BTreeMap<String, String>);

impl StoreSettings {
    /// Checks the names of settings, which may be in lower case.
    ///
    /// # Errors
    ///
    /// `url-setting`, which is `InvalidInput`: an unknown name. The error names `object`.
    pub fn checked(
        settings: BTreeMap<String, String>,
        object: &'static str,
    ) -> Result<Self, StorageError> {
        let checked = settings.into_iter().map(|(name, value)| {
            let name = known_name(&name, object)?;
            Ok((name, value.trim().to_owned()))
        });
        Ok(Self(checked.collect::<Result<_, _>>()?))
    }

    /// Returns options with these settings, which win over those of `options`.
    #[must_use]
    pub fn over(&self, options: &RemoteOptions) -> RemoteOptions {
        options.clone().with_settings(self.0.clone())
    }
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values of settings are secrets.
        f.debug_struct("RemoteOptions")
            .field("request", &self.request)
            .field("download", &self.download)
            .field("upload", &self.upload)
            .field("retry", &self.retry)
            .field("settings", &self.settings.keys())
            .field("explicit", &self.explicit)
            .finish_non_exhaustive()
    }
}
