//! Credentials of Amazon from profiles, roles, single sign-on, programs, containers and machines, against servers on this
//! machine. Tests of other stores are in `other`.

mod files;
mod other;
mod services;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use object_store::aws::AwsCredential;
use shardmill_testing::stub::{Stub, StubRequest};

use super::*;
use crate::remote::CredentialSource;
use crate::remote::access::access;
use crate::remote::credential::CredentialCache;
use crate::remote::signing::{Access, Credential};

/// A home directory with the files of Amazon's tools.
struct Home(tempfile::TempDir);

impl Home {
    fn new(config: &str, credentials: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let home = Self(home);
        home.write(".aws/config", config);
        home.write(".aws/credentials", credentials);
        home
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns settings with this home and without a machine.
    fn settings(&self, more: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut all = BTreeMap::from([
            ("HOME".to_owned(), self.path("")),
            ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
        ]);
        all.extend(
            more.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        all
    }
}

/// Credentials, and where they came from.
type Found = (std::sync::Arc<AwsCredential>, CredentialSource);

fn block<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

fn find(settings: &BTreeMap<String, String>) -> Result<Found, StorageError> {
    let access = access(&location(), settings)?;
    let cache = CredentialCache::default();
    let found = block(async {
        let credential = cache.credential(&access).await?;
        Ok::<_, StorageError>((credential, cache.source(&access).await?))
    })?;
    match found {
        (Credential::Aws(credential), source) => Ok((credential, source)),
        _ => panic!("not of Amazon"),
    }
}

fn access_of(settings: &BTreeMap<String, String>) -> Access {
    access(&location(), settings).unwrap()
}

fn key(settings: &BTreeMap<String, String>) -> String {
    find(settings).unwrap().0.key_id.clone()
}

fn failure(settings: &BTreeMap<String, String>) -> StorageError {
    let error = find(settings).err().unwrap();
    let shown = format!("{error:?} {error} {:?} {:?}", error.object(), error.hint());
    assert!(!shown.to_ascii_lowercase().contains("hush"), "{shown}");
    error
}

/// A time of this many seconds from now, as services write it.
fn after(seconds: u64) -> String {
    let time = SystemTime::now() + Duration::from_secs(seconds);
    let time = chrono::DateTime::<chrono::Utc>::from(time);
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The value of a field of a form.
fn field<'a>(request: &'a StubRequest, name: &str) -> &'a str {
    let mut fields = request
        .body
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    fields
        .find(|(known, _)| *known == name)
        .map_or("", |(_, value)| value)
}

/// The key that signed a request.
fn signer(request: &StubRequest) -> &str {
    let (_, rest) = request
        .header("authorization")
        .split_once("Credential=")
        .unwrap_or_default();
    rest.split('/').next().unwrap_or_default()
}

/// A security token service. The key of a role is the key that signed, an arrow, and the name of the role.
fn tokens(life: u64) -> Stub {
    let given = AtomicU64::new(0);
    Stub::start(move |request| {
        if signer(request) == "denied" {
            let body = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>hush</Message></Error></ErrorResponse>";
            return (403, body.to_owned());
        }
        let role = field(request, "RoleArn").rsplit("%2F").next().unwrap_or("");
        let number = given.fetch_add(1, Ordering::Relaxed);
        let key = match signer(request) {
            "" => format!("web-{role}"),
            signer => format!("{signer}-{role}"),
        };
        let action = match request.line.contains("WebIdentity") {
            true => "AssumeRoleWithWebIdentity",
            false => "AssumeRole",
        };
        let body = format!(
            "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials>\
             <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>hush</SecretAccessKey>\
             <SessionToken>token-{number}</SessionToken><Expiration>{}</Expiration>\
             </Credentials></{action}Result></{action}Response>",
            after(life)
        );
        (200, body)
    })
    .unwrap()
}

const KEYS: &str = "[default]\naws_access_key_id = one\naws_secret_access_key = hush\n\
    [other]\naws_access_key_id = two\naws_secret_access_key = hush\naws_session_token = hush-token\n";
