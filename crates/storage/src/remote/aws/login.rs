//! What the login of a profile consists of: a source of credentials, and the roles that are assumed with them.

use std::collections::BTreeSet;

use super::files::{Files, Profiles};
use super::issue::Keys;
use crate::error::StorageError;
use crate::remote::credential_source::CredentialSource;
use crate::remote::profile::Profile;
use crate::remote::settings::is_label;

const MFA: &str = "log in with `aws configure export-credentials`, or configure single sign-on or a credential_process for the profile";

const ROLE: &str = "use source_profile, or credential_source = Ec2InstanceMetadata or EcsContainer";

const CYCLE: &str =
    "end the chain with a profile that has keys, a single sign-on or a credential_process";

const OTHER: &str = "run `aws configure export-credentials`, and set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN from its output";

/// The login of a profile: the files, which are read again for each renewal.
#[derive(Clone)]
pub(crate) struct ProfileLogin {
    pub(super) files: Files,
    source: CredentialSource,
}

impl ProfileLogin {
    /// Returns the login of the profile, or `None` if the profile has none.
    ///
    /// # Errors
    ///
    /// `url-profile` for a login that is incomplete, circular or not supported.
    pub(crate) fn find(profiles: &Profiles) -> Result<Option<Self>, StorageError> {
        let files = profiles.files.clone();
        let login = Login::resolve(profiles)?;
        Ok(login.map(|login| Self {
            files,
            source: login.source(),
        }))
    }

    /// Returns where the credentials come from.
    pub(crate) fn source(&self) -> CredentialSource {
        self.source.clone()
    }
}

/// A source of credentials, and the roles that are assumed with them, one after the other.
pub(super) struct Login {
    /// The profile, for messages.
    pub(super) profile: String,
    /// The file that decides, for messages.
    pub(super) file: String,
    pub(super) base: Base,
    pub(super) roles: Vec<Role>,
}

/// The source of the first credentials. Has no `Debug`, because it contains secrets.
pub(super) enum Base {
    Keys(Keys),
    Sso(Sso),
    WebIdentity {
        role: String,
        session: Option<String>,
        token_file: String,
    },
    Program(Vec<String>),
    Container,
    Machine,
}

/// A single sign-on.
pub(super) struct Sso {
    /// The name of the session, or the start URL, which the token is stored under.
    pub(super) key: String,
    /// Whether it is the name of a session.
    pub(super) is_session: bool,
    pub(super) region: String,
    pub(super) account: String,
    pub(super) role: String,
}

/// A role that is assumed.
#[derive(Clone)]
pub(super) struct Role {
    pub(super) arn: String,
    pub(super) session: String,
    pub(super) external_id: Option<String>,
    pub(super) seconds: Option<u32>,
}

impl Login {
    /// Returns the login of the profile that is used, or `None` if it has none.
    pub(super) fn resolve(profiles: &Profiles) -> Result<Option<Self>, StorageError> {
        let Some(used) = profiles.used()? else {
            return Ok(None);
        };
        let name = used.name.clone();
        let mut profile = used;
        let mut roles = Vec::new();
        let mut seen = BTreeSet::new();
        let mut field = None;
        let base = loop {
            let is_first = seen.insert(profile.name.clone());
            // A profile may be its own source if it has keys.
            let needs_role = profile.text("role_arn").is_some()
                && profile.text("web_identity_token_file").is_none();
            let has_keys = profile.text("aws_access_key_id").is_some();
            if !needs_role || has_keys && !roles.is_empty() {
                let found = base(&profile, profiles)?;
                match found {
                    Some((base, deciding)) => {
                        field.get_or_insert(deciding);
                        break base;
                    }
                    None if roles.is_empty() => return Ok(None),
                    None => return Err(profile.without("credentials")),
                }
            }
            if !is_first {
                let name = &profile.name;
                let message = format!("source_profile leads back to the profile {name:?}");
                return Err(profile.error(message, Some(CYCLE)));
            }
            field.get_or_insert("role_arn");
            roles.push(role(&profile)?);
            match (
                profile.header("credential_source")?,
                profile.text("source_profile"),
            ) {
                (None, None) => return Err(profile.without("source_profile")),
                (Some(_), Some(_)) => return Err(profile.value("credential_source")),
                (None, Some(source)) => profile = profiles.profile(source)?,
                (Some(source), None) => match source.as_str() {
                    "Ec2InstanceMetadata" => break Base::Machine,
                    "EcsContainer" => break Base::Container,
                    "Environment" => {
                        return Err(profile.login("credential_source = Environment", ROLE));
                    }
                    _ => return Err(profile.value("credential_source")),
                },
            }
        };
        roles.reverse();
        Ok(Some(Self {
            file: profiles.file_of(&name, field.unwrap_or_default()),
            profile: name,
            base,
            roles,
        }))
    }

    /// Returns where the credentials come from.
    pub(super) fn source(&self) -> CredentialSource {
        let facts = match &self.base {
            Base::Sso(sso) => {
                vec![format!(
                    "single sign-on {:?}, account {}, permission set {}",
                    sso.key, sso.account, sso.role
                )]
            }
            Base::Program(words) => {
                let name = words.first().map_or("", String::as_str);
                vec![format!("credential_process {name}")]
            }
            Base::WebIdentity { .. } => vec!["web identity".to_owned()],
            Base::Container => vec!["container".to_owned()],
            Base::Machine => vec!["metadata service of the machine".to_owned()],
            Base::Keys(_) => Vec::new(),
        };
        let web = match &self.base {
            Base::WebIdentity { role, .. } => Some(role),
            _ => None,
        };
        let role = self.roles.last().map(|role| &role.arn).or(web);
        CredentialSource {
            profile: Some(self.profile.clone()),
            role: role.cloned(),
            facts,
            ..CredentialSource::new(
                "profile",
                format!("profile {:?} in {}", self.profile, self.file),
            )
        }
    }
}

/// Returns the credentials of a profile that assumes no role, and the field that selects them.
fn base(
    profile: &Profile,
    profiles: &Profiles,
) -> Result<Option<(Base, &'static str)>, StorageError> {
    if let Some(token_file) = profile.text("web_identity_token_file") {
        let base = Base::WebIdentity {
            role: profile.needs("role_arn")?,
            session: profile.header("role_session_name")?,
            token_file: token_file.to_owned(),
        };
        return Ok(Some((base, "web_identity_token_file")));
    }
    for field in ["sso_session", "sso_start_url"] {
        if profile.text(field).is_some() {
            return Ok(Some((Base::Sso(sso(profile, profiles)?), field)));
        }
    }
    // A program wins over keys of the configuration file, but not over those of the credentials file.
    let keys_first = profiles.is_in_credentials(&profile.name, "aws_access_key_id");
    if !keys_first && let Some(words) = program(profile)? {
        return Ok(Some((Base::Program(words), "credential_process")));
    }
    if let Some(keys) = keys(profile)? {
        return Ok(Some((keys, "aws_access_key_id")));
    }
    match profile.text("login_session") {
        Some(_) => Err(profile.login("login_session", OTHER)),
        None => Ok(None),
    }
}

/// Returns the keys of a profile.
fn keys(profile: &Profile) -> Result<Option<Base>, StorageError> {
    let key = profile.header("aws_access_key_id")?;
    let secret = profile.header("aws_secret_access_key")?;
    match (key, secret) {
        (Some(key), Some(secret)) => {
            let token = match profile.header("aws_session_token")? {
                None => profile.header("aws_security_token")?,
                token => token,
            };
            Ok(Some(Base::Keys(Keys { key, secret, token })))
        }
        (Some(_), None) => Err(profile.without("aws_secret_access_key")),
        (None, Some(_)) => Err(profile.without("aws_access_key_id")),
        (None, None) => Ok(None),
    }
}

/// Returns the words of the `credential_process` of a profile.
fn program(profile: &Profile) -> Result<Option<Vec<String>>, StorageError> {
    let Some(command) = profile.text("credential_process") else {
        return Ok(None);
    };
    let words = shlex::split(command).filter(|words| !words.is_empty());
    words
        .map(Some)
        .ok_or_else(|| profile.value("credential_process"))
}

fn sso(profile: &Profile, profiles: &Profiles) -> Result<Sso, StorageError> {
    let (account, role) = (
        profile.needs("sso_account_id")?,
        profile.needs("sso_role_name")?,
    );
    let (key, session) = match profile.text("sso_session") {
        Some(name) => {
            let session = profiles.session(name);
            let session = session.ok_or_else(|| profile.value("sso_session"))?;
            (name.to_owned(), Some(session))
        }
        None => (profile.needs("sso_start_url")?, None),
    };
    let of = session.as_ref().unwrap_or(profile);
    let region = of.needs("sso_region")?;
    if !is_label(&region) {
        return Err(of.value("sso_region"));
    }
    Ok(Sso {
        key,
        is_session: session.is_some(),
        region,
        account,
        role,
    })
}

fn role(profile: &Profile) -> Result<Role, StorageError> {
    if profile.text("mfa_serial").is_some() {
        return Err(profile.login("mfa_serial", MFA));
    }
    let seconds = match profile.text("duration_seconds").map(str::parse) {
        None => None,
        Some(Ok(seconds)) => Some(seconds),
        Some(Err(_)) => return Err(profile.value("duration_seconds")),
    };
    let session = profile.header("role_session_name")?;
    Ok(Role {
        arn: profile.needs("role_arn")?,
        session: session.unwrap_or_else(|| "shardmill".to_owned()),
        external_id: profile.header("external_id")?,
        seconds,
    })
}
