//! Credentials from the settings or from a provider (a machine, a role or a file), and the signing of requests with
//! them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::azure::{
    AzureAuthorizer, AzureConfigKey, AzureCredential, AzureCredentialProvider,
    MicrosoftAzureBuilder,
};
use object_store::client::HttpRequest;
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder, GoogleConfigKey};
use ring::{digest, hmac};
use shardmill_core::lock;

use super::access::azure::ACCOUNT_KEYS;
use super::access::databricks;
use super::access::google::SERVICE_ACCOUNTS;
use super::aws::{self, ProfileProvider};
use super::connector::{Connector, retry};
use super::credential_source::CredentialSource;
use super::payload::hex;
use super::renewal::{CREDENTIALS, NoToken, STANDS};
use super::settings::{Settings, is_graphic};
use super::signing::{Access, Credential, Signing};
use super::token::Tokens;
use crate::entry::StoreKind;
use crate::error::{HUB, HUB_BUCKET, StorageError};

/// A provider of credentials that are not in the settings.
#[derive(Clone)]
enum Provider {
    Aws(AwsCredentialProvider),
    Google(GcpCredentialProvider),
    Azure(AzureCredentialProvider),
    Client(Arc<Tokens>),
    Profile(Arc<ProfileProvider>),
}

impl Provider {
    async fn ask(&self) -> Result<Credential, NoToken> {
        let found = match self {
            Self::Client(tokens) => return Ok(Credential::Bearer(tokens.token().await?)),
            Self::Profile(provider) => return Ok(Credential::Aws(provider.credential().await?)),
            Self::Aws(provider) => {
                let found = provider.get_credential().await.ok();
                let found = found.filter(|it| is_graphic(&it.key_id));
                let found = found.filter(|it| it.token.as_deref().is_none_or(is_graphic));
                found.map(Credential::Aws)
            }
            Self::Google(provider) => {
                let found = provider.get_credential().await.ok();
                let bearer = found.map(|found| found.bearer.trim().to_owned());
                let letter = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
                let bearer = bearer.filter(|it| !it.is_empty() && it.bytes().all(letter));
                bearer.map(Credential::Bearer)
            }
            Self::Azure(provider) => {
                let found = provider.get_credential().await.ok();
                let found = found.filter(|found| match &**found {
                    AzureCredential::BearerToken(token) => is_graphic(token),
                    _ => true,
                });
                found.map(Credential::Azure)
            }
        };
        // The error is not shown, because it may quote an answer that contains secrets.
        found.ok_or_else(NoToken::unknown)
    }
}

/// A provider, with a name for messages.
type Named = (Provider, Cow<'static, str>);

/// A cache of credentials. One request at a time gets credentials, and all others wait for its result.
#[derive(Default)]
pub(super) struct CredentialCache {
    kept: Mutex<Kept>,
    asking: tokio::sync::Mutex<Option<Refusal>>,
}

/// A failure to get credentials, and when it happened.
struct Refusal {
    at: Instant,
    reason: String,
    hint: Cow<'static, str>,
}

impl Refusal {
    fn new(provider: &str, failed: NoToken, kind: StoreKind) -> Self {
        Self {
            at: Instant::now(),
            reason: format!("{provider} {}", failed.what),
            hint: failed.hint.unwrap_or(Cow::Borrowed(hint(kind))),
        }
    }

    fn error(&self) -> StorageError {
        StorageError::NoCredentials {
            reason: self.reason.clone(),
            hint: self.hint.clone(),
        }
    }
}

/// The provider, with a name for messages.
#[derive(Default)]
struct Kept {
    provider: Option<Named>,
    /// How often the credentials were forgotten.
    epoch: u64,
}

impl CredentialCache {
    /// Returns the current epoch. A request stores it before it is signed, to report later which credentials have
    /// expired.
    pub(super) fn epoch(&self) -> u64 {
        lock(&self.kept).epoch
    }

    /// Forgets the expired credentials of this epoch. Returns `false` if there can be no others. Of many concurrent
    /// requests, only the first forgets them, and the others use the new ones.
    pub(super) fn renew(&self, access: &Access, epoch: u64) -> bool {
        if !access.signing.is_provided() {
            return false;
        }
        let mut kept = lock(&self.kept);
        if kept.epoch == epoch {
            kept.provider = None;
            kept.epoch += 1;
        }
        true
    }

    pub(super) async fn credential(&self, access: &Access) -> Result<Credential, StorageError> {
        if let Signing::Fixed(credential) = &access.signing {
            return Ok(credential.clone());
        }
        let mut failed = self.asking.lock().await;
        if let Some(refusal) = failed.as_ref().filter(|it| it.at.elapsed() < STANDS) {
            return Err(refusal.error());
        }
        let (provider, name) = self.provider(access)?;
        match tokio::time::timeout(CREDENTIALS, provider.ask()).await {
            Ok(Ok(credential)) => {
                *failed = None;
                Ok(credential)
            }
            ended => {
                let found = match ended {
                    Ok(Err(found)) => found,
                    _ => NoToken::unknown(),
                };
                let refusal = Refusal::new(&name, found, access.kind);
                let error = refusal.error();
                *failed = Some(refusal);
                Err(error)
            }
        }
    }

    /// Returns where the credentials come from. Requests them, if they come from a provider.
    pub(super) async fn source(&self, access: &Access) -> Result<CredentialSource, StorageError> {
        self.credential(access).await?;
        let source = access.source.clone();
        let kept = lock(&self.kept);
        Ok(match kept.provider.as_ref().map(|(provider, _)| provider) {
            Some(Provider::Profile(provider)) => provider.source().unwrap_or(source),
            Some(Provider::Client(tokens)) => CredentialSource {
                expires: tokens.expires(),
                ..source
            },
            _ => source,
        })
    }

    fn provider(&self, access: &Access) -> Result<Named, StorageError> {
        let mut kept = lock(&self.kept);
        if let Some(provider) = &kept.provider {
            return Ok(provider.clone());
        }
        let made = match &access.signing {
            Signing::AwsProvider(settings) => {
                let name: Cow<'static, str> = Cow::Owned(access.source.name.clone());
                let provider = aws::environment(settings, &access.region);
                let provider =
                    provider.map_err(|failed| Refusal::new(&name, failed, access.kind).error())?;
                (Provider::Aws(provider), name)
            }
            Signing::AwsProfile(login, settings) => {
                let (settings, region) = (settings.clone(), access.region.clone());
                let provider = ProfileProvider::new(login.clone(), settings, region);
                let name = Cow::Owned(provider.name());
                (Provider::Profile(Arc::new(provider)), name)
            }
            Signing::GoogleProvider(settings) => google(settings, access)?,
            Signing::AzureProvider(settings) => azure(settings, access)?,
            Signing::Client(client) => {
                let tokens = Tokens::new(client.clone(), access)?;
                (
                    Provider::Client(Arc::new(tokens)),
                    Cow::Borrowed("the token service of the workspace"),
                )
            }
            Signing::Fixed(_) => return Err(StorageError::NoAnswer),
        };
        kept.provider = Some(made.clone());
        Ok(made)
    }
}

fn google(settings: &BTreeMap<String, String>, access: &Access) -> Result<Named, StorageError> {
    let known = Settings(settings);
    let name = access.source.name.clone();
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name("credentials")
        .with_http_connector(Connector::new(access.source.kind == "machine"))
        .with_retry(retry(2));
    if let Some((_, path)) = known.first(&SERVICE_ACCOUNTS) {
        builder = builder.with_service_account_path(path);
    } else if let Some(key) = known.text("GOOGLE_SERVICE_ACCOUNT_KEY") {
        builder = builder.with_service_account_key(key);
    } else if let Some(path) = known.text("GOOGLE_APPLICATION_CREDENTIALS") {
        builder = builder.with_config(GoogleConfigKey::ApplicationCredentials, path);
    }
    let store = builder
        .build()
        .map_err(|_| Refusal::new(&name, NoToken::unknown(), access.kind).error())?;
    Ok((
        Provider::Google(Arc::clone(store.credentials())),
        Cow::Owned(name),
    ))
}

fn azure(settings: &BTreeMap<String, String>, access: &Access) -> Result<Named, StorageError> {
    let known = Settings(settings);
    let key = known.first(&ACCOUNT_KEYS);
    let mut builder = MicrosoftAzureBuilder::new()
        .with_container_name("credentials")
        .with_account(access.account.clone().unwrap_or_default())
        .with_retry(retry(2));
    let is_set = |name: &str| known.text(name).is_some();
    let application = is_set("AZURE_CLIENT_SECRET")
        || is_set("AZURE_STORAGE_CLIENT_SECRET")
        || is_set("AZURE_FEDERATED_TOKEN_FILE");
    for (setting, value) in settings {
        let about_credentials = [
            "_SAS_",
            "_TOKEN",
            "_CLIENT_",
            "_TENANT_",
            "_AUTHORITY_",
            "_MSI_",
            "IDENTITY_ENDPOINT",
            "_OBJECT_ID",
            "_USE_AZURE_CLI",
            "_USE_EMULATOR",
        ]
        .iter()
        .any(|part| setting.contains(part));
        if let Ok(name) = AzureConfigKey::from_str(&setting.to_ascii_lowercase())
            && about_credentials
            && (setting.starts_with("AZURE_") || setting == "IDENTITY_ENDPOINT")
        {
            builder = builder.with_config(name, value);
        }
    }
    if let Some((_, key)) = key {
        builder = builder.with_access_key(key);
    }
    let signature = is_set("AZURE_STORAGE_SAS_KEY") || is_set("AZURE_STORAGE_SAS_TOKEN");
    let (name, direct) = match (key, signature, application) {
        _ if is_set("AZURE_STORAGE_TOKEN") => ("AZURE_STORAGE_TOKEN", false),
        (Some((name, _)), _, _) => (name, false),
        (None, true, _) => ("the shared access signature", false),
        (None, false, true) => ("the application", false),
        (None, false, false) if known.flag("AZURE_USE_AZURE_CLI")? => ("the Azure CLI", false),
        (None, false, false) => ("the managed identity of the machine", true),
    };
    let store = builder
        .with_http_connector(Connector::new(direct))
        .build()
        .map_err(|_| Refusal::new(name, NoToken::unknown(), access.kind).error())?;
    Ok((
        Provider::Azure(Arc::clone(store.credentials())),
        Cow::Borrowed(name),
    ))
}

const fn hint(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::S3 => aws::HINT,
        StoreKind::Google | StoreKind::GoogleXml => {
            "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS, or GCS_KEY and GCS_SECRET, or GOOGLE_SKIP_SIGNATURE=true for a public bucket"
        }
        StoreKind::Azure => {
            "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or AZURE_USE_AZURE_CLI=true after `az login`, or AZURE_SKIP_SIGNATURE=true for a public container"
        }
        StoreKind::Volumes | StoreKind::Http => databricks::HINT,
        StoreKind::Hub => HUB,
        StoreKind::HubBucket => HUB_BUCKET,
    }
}

/// Signs a request. `payload` is the SHA-256 of its body, if it has one and the digest is known.
pub(super) fn authorize(
    access: &Access,
    credential: &Credential,
    request: &mut HttpRequest,
    payload: Option<&[u8]>,
) -> Result<(), StorageError> {
    let bug = |_| StorageError::NoAnswer;
    if let Some(project) = access.account.as_deref()
        && matches!(access.kind, StoreKind::Google | StoreKind::GoogleXml)
    {
        let value = HeaderValue::from_str(project).map_err(bug)?;
        request.headers_mut().insert("x-goog-user-project", value);
    }
    match credential {
        Credential::Aws(credential) => AwsAuthorizer::new(credential, "s3", &access.region)
            .with_request_payer(access.request_payer)
            .authorize(request, payload),
        Credential::Azure(credential) => {
            AzureAuthorizer::new(credential, access.account.as_deref().unwrap_or_default())
                .authorize(request);
        }
        Credential::Bearer(token) => {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(bug)?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        Credential::Hmac { key, secret } => {
            let now = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
            let time = now.format("%Y%m%dT%H%M%SZ").to_string();
            google_hmac(request, &access.region, key, secret, &time)
                .ok_or(StorageError::NoAnswer)?;
        }
        Credential::Anonymous if access.kind == StoreKind::Azure => {
            let value = HeaderValue::from_static("2023-11-03");
            request.headers_mut().insert("x-ms-version", value);
        }
        Credential::Anonymous if access.request_payer => {
            let value = HeaderValue::from_static("requester");
            request.headers_mut().insert("x-amz-request-payer", value);
        }
        Credential::Anonymous => {}
    }
    Ok(())
}

/// Signs a request with an HMAC key, using Google's own V4 signatures. Amazon's may not be combined with the headers of
/// conditional requests.
fn google_hmac(
    request: &mut HttpRequest,
    region: &str,
    key: &str,
    secret: &str,
    time: &str,
) -> Option<()> {
    const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
    let host = request.uri().authority()?.as_str().to_owned();
    let headers = request.headers_mut();
    headers.insert("host", HeaderValue::from_str(&host).ok()?);
    headers.insert("x-goog-date", HeaderValue::from_str(time).ok()?);
    headers.insert("x-goog-content-sha256", HeaderValue::from_static(UNSIGNED));
    let mut signed: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in request.headers() {
        if name.as_str() != "content-length" {
            signed.insert(name.as_str(), value.to_str().ok()?);
        }
    }
    let names: Vec<_> = signed.keys().copied().collect();
    let names = names.join(";");
    let lines: String = signed
        .iter()
        .map(|(name, value)| format!("{name}:{}\n", value.trim()))
        .collect();
    // Path and query are already encoded as the signature requires. The query has to be sorted.
    let mut query: Vec<_> = request
        .uri()
        .query()
        .unwrap_or_default()
        .split('&')
        .collect();
    query.sort_unstable();
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{UNSIGNED}",
        request.method(),
        request.uri().path(),
        query.join("&"),
    );
    let day = time.get(..8)?;
    let scope = format!("{day}/{region}/storage/goog4_request");
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("GOOG4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
    let with = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
    };
    let mut signature = with(format!("GOOG4{secret}").as_bytes(), day);
    for part in [region, "storage", "goog4_request", &text] {
        signature = with(signature.as_ref(), part);
    }
    let value = format!(
        "GOOG4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={}",
        hex(signature.as_ref())
    );
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, value);
    Some(())
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    /// The expected signature was computed by a separate script that follows Google's specification.
    #[test]
    fn google_hmac_signature_matches_the_specification() {
        let mut request = http::Request::put("https://storage.googleapis.com/bucket/a%20b?y=1&x=2")
            .header("accept-encoding", "gzip")
            .header("content-length", "5")
            .header("x-goog-if-generation-match", "0")
            .body(HttpRequestBody::empty())
            .unwrap();
        google_hmac(
            &mut request,
            "auto",
            "GOOGKEY",
            "secret",
            "20260101T000000Z",
        )
        .unwrap();
        assert_eq!(
            request.headers()[AUTHORIZATION],
            "GOOG4-HMAC-SHA256 Credential=GOOGKEY/20260101/auto/storage/goog4_request, SignedHeaders=accept-encoding;host;x-goog-content-sha256;x-goog-date;x-goog-if-generation-match, Signature=ab70d09f315bc3afb53550db7c73f58f9dd9c2fa2c28ce26c27418709287ab1d"
        );
    }
}
