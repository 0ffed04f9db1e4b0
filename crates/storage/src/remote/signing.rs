//! The address of a bucket and the source of its credentials.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::aws::AwsCredential;
use object_store::azure::AzureCredential;
use url::Url;

use super::aws::ProfileLogin;
use super::credential_source::CredentialSource;
use super::settings::{encode, is_loopback};
use crate::entry::StoreKind;
use crate::error::StorageError;

/// The credential that a request is signed with. Has no `Debug`, because it is secret.
#[derive(Clone)]
pub(super) enum Credential {
    /// Requests are not signed.
    Anonymous,
    Aws(Arc<AwsCredential>),
    /// An HMAC key of Google.
    Hmac {
        key: String,
        secret: String,
    },
    Bearer(String),
    Azure(Arc<AzureCredential>),
}

/// The source of the credentials.
#[derive(Clone)]
pub(super) enum Signing {
    /// From the settings, or none.
    Fixed(Credential),
    /// From a role, a container or a machine; these settings say which.
    AwsProvider(BTreeMap<String, String>),
    /// From a profile; the settings say where its services are.
    AwsProfile(ProfileLogin, BTreeMap<String, String>),
    /// From a service account, a user or a machine; these settings say which.
    GoogleProvider(BTreeMap<String, String>),
    /// From a key, a signature, an application or a machine; these settings say which.
    AzureProvider(BTreeMap<String, String>),
    /// From the token service of a workspace, for this client.
    Client(Client),
}

impl Signing {
    pub(super) const ANONYMOUS: Self = Self::Fixed(Credential::Anonymous);

    pub(super) const fn bearer(token: String) -> Self {
        Self::Fixed(Credential::Bearer(token))
    }

    /// Returns whether the credentials come from a provider, which may return new ones later.
    pub(super) const fn is_provided(&self) -> bool {
        !matches!(self, Self::Fixed(_))
    }
}

/// A client and its workspace. Has no `Debug`, because it contains a secret.
#[derive(Clone)]
pub(super) struct Client {
    /// The URL of the workspace, without a trailing slash.
    pub(super) host: String,
    pub(super) id: String,
    pub(super) secret: String,
}

/// A bucket, its address and its credentials. Has no `Debug`, because it contains secrets.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) kind: StoreKind,
    /// Scheme, host and path of the bucket, without a trailing slash.
    pub(super) base: String,
    /// The same for folders of the bucket, for stores where folders have their own addresses; for uploads (Google).
    pub(super) folders: String,
    /// Scheme, host and port of the connections.
    pub(super) origin: String,
    /// The host is this machine, so no proxy is used.
    pub(super) loopback: bool,
    pub(super) region: String,
    pub(super) request_payer: bool,
    /// The canned ACL for uploaded objects.
    pub(super) acl: Option<String>,
    /// The account that signs requests (Azure), the project that pays for them (Google), the path of the volume
    /// (Databricks), or the revision (Hugging Face).
    pub(super) account: Option<String>,
    pub(super) signing: Signing,
    /// Where the credentials come from, as far as it is known before they are requested.
    pub(super) source: CredentialSource,
}

impl Access {
    /// Returns the access to a bucket at the URL `base`.
    pub(super) fn at(
        kind: StoreKind,
        base: &str,
        signing: Signing,
        source: CredentialSource,
    ) -> Result<Self, StorageError> {
        let url = Url::parse(base).map_err(|_| StorageError::UrlSyntax.in_text(base))?;
        Ok(Self {
            kind,
            loopback: is_loopback(&url),
            origin: url.origin().ascii_serialization(),
            base: base.to_owned(),
            folders: base.to_owned(),
            region: "us-east-1".to_owned(),
            request_payer: false,
            acl: None,
            account: None,
            signing,
            source,
        })
    }

    /// Returns the URL of a key. The key is percent-encoded once and not normalised.
    pub(super) fn url(&self, key: &str) -> String {
        match self.kind {
            StoreKind::Google if key.is_empty() => self.base.clone(),
            // The key is one part of the path.
            kind => join(&self.base, key, kind != StoreKind::Google),
        }
    }

    /// Returns the URL of a folder.
    pub(super) fn folder_url(&self, key: &str) -> String {
        join(&self.folders, key, true)
    }

    /// Returns the URL of a revision, for stores with revisions.
    pub(super) fn revision_url(&self) -> String {
        let mut url = format!("{}/revision/", self.folders);
        encode(&mut url, self.account.as_deref().unwrap_or_default(), false);
        url
    }

    pub(super) fn is_plain(&self) -> bool {
        self.base.starts_with("http:")
    }
}

fn join(base: &str, key: &str, is_path: bool) -> String {
    let mut url = String::with_capacity(base.len() + key.len() + 8);
    url.push_str(base);
    url.push('/');
    encode(&mut url, key, is_path);
    url
}
