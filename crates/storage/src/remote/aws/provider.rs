//! The credentials of a profile, renewed before they expire.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use object_store::aws::AwsCredential;
use shardmill_core::{Diagnostic as _, lock};

use super::environment::{environment, source};
use super::files::Profiles;
use super::issue::AwsIssued;
use super::login::{Base, Login, ProfileLogin};
use super::service::Service;
use super::{program, sso, sts};
use crate::error::StorageError;
use crate::remote::credential_source::CredentialSource;
use crate::remote::renewal::{Issued, NoToken, Renewal};
use crate::remote::settings::Settings;

/// How long credentials of the environment are used. Their provider does not say when they expire, and keeps five minutes
/// in reserve.
const PROVIDED: Duration = Duration::from_secs(300);

const FILES: &str = "check the profile and its files";

/// The credentials of a profile. The files are read again for each renewal, so that a new login takes effect.
pub(crate) struct ProfileProvider {
    login: ProfileLogin,
    settings: BTreeMap<String, String>,
    region: String,
    kept: Renewal<Arc<AwsCredential>>,
    /// Where the credentials came from, and whether it is known when they expire.
    source: Mutex<Option<(CredentialSource, bool)>>,
}

impl ProfileProvider {
    /// Returns the provider of a profile. `settings` and `region` are those of the store.
    pub(crate) fn new(
        login: ProfileLogin,
        settings: BTreeMap<String, String>,
        region: String,
    ) -> Self {
        Self {
            login,
            settings,
            region,
            kept: Renewal::default(),
            source: Mutex::new(None),
        }
    }

    /// Returns the name of the profile, for messages.
    pub(crate) fn name(&self) -> String {
        format!("the profile {:?}", self.login.files.profile())
    }

    /// Returns the credentials, or new ones if they are about to expire. The caller ensures that calls are not
    /// concurrent.
    pub(crate) async fn credential(&self) -> Result<Arc<AwsCredential>, NoToken> {
        self.kept.get(self.fetch()).await
    }

    /// Returns where the last credentials came from.
    pub(crate) fn source(&self) -> Option<CredentialSource> {
        let kept = lock(&self.source);
        let (source, has_end) = kept.clone()?;
        Some(CredentialSource {
            expires: self.kept.expires().filter(|_| has_end),
            ..source
        })
    }

    async fn fetch(&self) -> Result<AwsIssued, NoToken> {
        let profiles = Profiles::read(&self.login.files).map_err(|error| invalid(&error))?;
        let login = Login::resolve(&profiles).map_err(|error| invalid(&error))?;
        let login = login.ok_or_else(|| NoToken::of("has no credentials any more", FILES))?;
        let mut issued = self.base(&profiles, &login).await?;
        if !login.roles.is_empty() {
            let service = self.service(&profiles, "sts", "sts", &self.region)?;
            for role in &login.roles {
                issued = sts::assume_role(&service, &issued.value, role).await?;
            }
        }
        let has_end = !login.roles.is_empty()
            || !matches!(
                login.base,
                Base::WebIdentity { .. } | Base::Container | Base::Machine
            );
        let described = (login.source(), has_end);
        *lock(&self.source) = Some(described);
        Ok(issued)
    }

    async fn base(&self, profiles: &Profiles, login: &Login) -> Result<AwsIssued, NoToken> {
        match &login.base {
            Base::Keys(keys) => keys.clone().issued(None).ok_or_else(NoToken::unknown),
            Base::Sso(found) => {
                let home = self.login.files.home.as_deref();
                let home = home.ok_or_else(|| {
                    NoToken::of("has a single sign-on, and HOME is not set", "set HOME")
                })?;
                let service = self.service(profiles, "sso", "portal.sso", &found.region)?;
                sso::credentials(&service, home, found, &login.profile).await
            }
            Base::WebIdentity {
                role,
                session,
                token_file,
            } => {
                let mut settings = BTreeMap::from([
                    ("AWS_ROLE_ARN".to_owned(), role.clone()),
                    ("AWS_WEB_IDENTITY_TOKEN_FILE".to_owned(), token_file.clone()),
                ]);
                let session = session.clone().unwrap_or_else(|| "shardmill".to_owned());
                settings.insert("AWS_ROLE_SESSION_NAME".to_owned(), session);
                let endpoint = self
                    .endpoint(profiles, "sts")
                    .map_err(|error| invalid(&error))?;
                if let Some(endpoint) = endpoint {
                    settings.insert("AWS_ENDPOINT_URL_STS".to_owned(), endpoint);
                }
                self.provided(&settings).await
            }
            Base::Program(words) => {
                let words = words.clone();
                let run = tokio::task::spawn_blocking(move || program::run(&words));
                run.await.map_err(|_| NoToken::unknown())?
            }
            Base::Container => {
                let mut settings = self.settings.clone();
                settings.retain(|name, _| name.contains("_CONTAINER_"));
                if settings.is_empty() {
                    return Err(NoToken::of(
                        "has credential_source = EcsContainer, and this is no container",
                        "check credential_source of the profile",
                    ));
                }
                self.provided(&settings).await
            }
            Base::Machine => {
                let mut settings = self.settings.clone();
                settings.retain(|name, _| name.contains("_METADATA_"));
                self.provided(&settings).await
            }
        }
    }

    /// Returns the credentials of the environment.
    async fn provided(&self, settings: &BTreeMap<String, String>) -> Result<AwsIssued, NoToken> {
        let name = source(settings).name;
        let failed = |failure: NoToken| NoToken {
            what: format!("needs {name}, which {}", failure.what),
            ..failure
        };
        let provider = environment(settings, &self.region).map_err(failed)?;
        // The error may quote an answer that contains secrets.
        let found = provider.get_credential().await;
        let found = found.map_err(|_| failed(NoToken::unknown()))?;
        Ok(Issued::new(found, Instant::now(), Some(PROVIDED)))
    }

    /// Returns the endpoint of a service: of the settings, else of the profile.
    fn endpoint(
        &self,
        profiles: &Profiles,
        service: &'static str,
    ) -> Result<Option<String>, StorageError> {
        let known = Settings(&self.settings);
        let own = match service {
            "sts" => "AWS_ENDPOINT_URL_STS",
            _ => "AWS_ENDPOINT_URL_SSO",
        };
        match known.first(&[own, "AWS_ENDPOINT_URL"]) {
            Some((_, endpoint)) => Ok(Some(endpoint.to_owned())),
            None => profiles.endpoint(service),
        }
    }

    fn service(
        &self,
        profiles: &Profiles,
        service: &'static str,
        host: &str,
        region: &str,
    ) -> Result<Service, NoToken> {
        let made = || {
            let allow_http = Settings(&self.settings).allows_http("AWS_ALLOW_HTTP")?;
            let endpoint = self.endpoint(profiles, service)?;
            Service::new(host, region, endpoint.as_deref(), allow_http)
        };
        made().map_err(|error: StorageError| invalid(&error))
    }
}

/// Converts an error of the files, which contains no secrets.
fn invalid(error: &StorageError) -> NoToken {
    let object = error.object().unwrap_or_default();
    let hint = error.hint().unwrap_or_else(|| FILES.to_owned());
    NoToken::of(format!("is not valid: {object}: {error}"), hint)
}
