//! The address of a Databricks volume, and the login to its workspace, from the settings or from a profile of
//! `.databrickscfg`.

use std::collections::BTreeMap;

use configparser::ini::{Ini, IniDefault};
use url::Url;

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::file::FileHandle;
use crate::location::RemoteLocation;
use crate::remote::credential_source::CredentialSource;
use crate::remote::profile::{Profile, bad_line, config_file, is_nowhere, no_profile, utf8};
use crate::remote::settings::{Settings, check_endpoint, encode, no_address, setting};
use crate::remote::signing::{Access, Client, Signing};

pub(crate) const HINT: &str = "set DATABRICKS_HOST with DATABRICKS_TOKEN, or with DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET, or write them into ~/.databrickscfg, or run where /Volumes is mounted";

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let (url, signing, source) = login(location, known)?;
    let host = url.as_str().trim_end_matches('/');
    let mut volume = String::new();
    encode(&mut volume, location.bucket(), true);
    let base = format!("{host}/api/2.0/fs/files/Volumes/{volume}");
    Ok(Access {
        folders: format!("{host}/api/2.0/fs/directories/Volumes/{volume}"),
        account: Some(format!("/Volumes/{}/", location.bucket())),
        ..Access::at(StoreKind::Volumes, &base, signing, source)?
    })
}

const NAMES: &str = "check DATABRICKS_CONFIG_PROFILE and DATABRICKS_CONFIG_FILE";

const LOGIN: &str = "add a token, or a client_id and a client_secret, or set DATABRICKS_TOKEN";

/// The name of the default profile.
const DEFAULT: &str = "DEFAULT";

/// The maximum number of bytes of a profile file.
const MAX_BYTES: u64 = 1 << 20;

/// If any of these settings is given and no profile is named, the profile file is not read.
const GIVEN: [&str; 4] = [
    "DATABRICKS_HOST",
    "DATABRICKS_TOKEN",
    "DATABRICKS_CLIENT_ID",
    "DATABRICKS_CLIENT_SECRET",
];

/// The method of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Token,
    Client,
}

impl Way {
    fn of(auth_type: &str) -> Option<Self> {
        match auth_type {
            "pat" => Some(Self::Token),
            "oauth-m2m" => Some(Self::Client),
            _ => None,
        }
    }
}

/// Returns the address of the workspace, and how requests to it are signed.
fn login(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<(Url, Signing, CredentialSource), StorageError> {
    let named = known.text("DATABRICKS_CONFIG_PROFILE");
    let profile = match named {
        None if known.first(&GIVEN).is_some() => None,
        _ => find(known, named)?,
    };
    let host = match (known.text("DATABRICKS_HOST"), &profile) {
        (Some(host), _) => host,
        (None, Some(profile)) => profile
            .text("host")
            .ok_or_else(|| profile.without("host"))?,
        (None, None) => return Err(no_address(location, HINT)),
    };
    let url = address(host, known.flag("ALLOW_HTTP")?)?;
    let way = match known.text("DATABRICKS_AUTH_TYPE") {
        None => None,
        Some(name) => Some(Way::of(name).ok_or_else(|| setting("DATABRICKS_AUTH_TYPE"))?),
    };
    let token = known.header("DATABRICKS_TOKEN")?;
    if let Some(token) = token.filter(|_| way != Some(Way::Client)) {
        let source = CredentialSource::setting("DATABRICKS_TOKEN");
        return Ok((url, Signing::bearer(token), source));
    }
    let id = known.header("DATABRICKS_CLIENT_ID")?;
    let secret = known.header("DATABRICKS_CLIENT_SECRET")?;
    if id.as_deref().is_some_and(|id| id.contains(':')) {
        return Err(setting("DATABRICKS_CLIENT_ID"));
    }
    if way != Some(Way::Token) && (id.is_some() || secret.is_some()) {
        // The other half may be in the profile.
        let half = |given: Option<String>, field, name| match (given, &profile) {
            (Some(given), _) => Ok(given),
            (None, Some(profile)) => profile.header(field)?.ok_or_else(|| profile.without(field)),
            (None, None) => Err(setting(name)),
        };
        let id = half(id, "client_id", "DATABRICKS_CLIENT_ID")?;
        let secret = half(secret, "client_secret", "DATABRICKS_CLIENT_SECRET")?;
        let source = CredentialSource::setting("DATABRICKS_CLIENT_ID");
        return Ok((url.clone(), client(&url, id, secret), source));
    }
    let profile = profile.ok_or_else(|| {
        let (message, hint) = ("no credentials for the store were found", Some(HINT));
        let message = message.to_owned();
        StorageError::Setting { message, hint }.at(location.to_string())
    })?;
    let signing = signing(&profile, &url, way)?;
    let source = CredentialSource {
        profile: Some(profile.name.clone()),
        ..CredentialSource::new(
            "profile",
            format!("profile {:?} in {}", profile.name, profile.file),
        )
    };
    Ok((url, signing, source))
}

fn client(url: &Url, id: String, secret: String) -> Signing {
    let host = url.as_str().trim_end_matches('/').to_owned();
    Signing::Client(Client { host, id, secret })
}

/// Parses the address of a workspace. As in a browser, it may lack the scheme or end with the workspace id (`?o=123`).
fn address(text: &str, allow_http: bool) -> Result<Url, StorageError> {
    let text = match text.rsplit_once("?o=") {
        Some((host, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => text,
    };
    match text.contains("://") {
        true => check_endpoint(text, allow_http),
        false => check_endpoint(&format!("https://{text}"), allow_http),
    }
}

/// Finds the profile of that name, or the default profile if it exists.
fn find(known: &Settings<'_>, named: Option<&str>) -> Result<Option<Profile>, StorageError> {
    let given = known.text("DATABRICKS_CONFIG_FILE").is_some();
    let Some(path) = config_file(known, "DATABRICKS_CONFIG_FILE", ".databrickscfg") else {
        return match named {
            None => Ok(None),
            Some(_) => Err(setting("DATABRICKS_CONFIG_FILE")),
        };
    };
    let bytes = match FileHandle::open(&path) {
        Ok(handle) => handle.read_all(MAX_BYTES)?,
        Err(error) if !given && named.is_none() && is_nowhere(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let name = named.unwrap_or(DEFAULT).to_owned();
    let file = path.display().to_string();
    let mut all = sections(&bytes).map_err(|line| bad_line(line).at(&file))?;
    match all.remove(&name) {
        Some(fields) => Ok(Some(Profile { file, name, fields })),
        None if named.is_none() => Ok(None),
        None => Err(no_profile(&name, all.keys(), NAMES).at(file)),
    }
}

/// Returns the token or the client of the profile. `way` is the method that the settings select.
fn signing(profile: &Profile, url: &Url, way: Option<Way>) -> Result<Signing, StorageError> {
    let login = |field: &str| profile.login(field, LOGIN);
    let way = match (way, profile.text("auth_type")) {
        (None, Some(text)) => Some(Way::of(text).ok_or_else(|| login(&auth_type(text)))?),
        (way, _) => way,
    };
    let token = profile.header("token")?;
    if let Some(token) = token.filter(|_| way != Some(Way::Client)) {
        return Ok(Signing::bearer(token));
    }
    let (id, secret) = (
        profile.header("client_id")?,
        profile.header("client_secret")?,
    );
    if id.as_deref().is_some_and(|id| id.contains(':')) {
        return Err(profile.value("client_id"));
    }
    match (id, secret) {
        _ if way == Some(Way::Token) => Err(profile.without("token")),
        (Some(id), Some(secret)) => Ok(client(url, id, secret)),
        (Some(_), None) => Err(profile.without("client_secret")),
        (None, Some(_)) => Err(profile.without("client_id")),
        (None, None) => {
            let other = profile.fields.keys().find(|field| is_other(field));
            Err(match (other, way) {
                (Some(field), None) => login(field),
                (_, Some(_)) => profile.without("client_id"),
                (None, None) => profile.without("token and no client_id"),
            })
        }
    }
}

/// Returns the field `auth_type` for messages. Its value is included if it looks like the name of a login method.
fn auth_type(value: &str) -> String {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match value.len() <= 32 && value.bytes().all(letter) {
        true => format!("auth_type = {value}"),
        false => "auth_type".to_owned(),
    }
}

/// Returns whether a field belongs to an unsupported login method.
fn is_other(field: &str) -> bool {
    const OTHERS: [&str; 5] = [
        "databricks_id_token_filepath",
        "metadata_service_url",
        "oidc_token_env",
        "password",
        "username",
    ];
    field.starts_with("azure_") || field.starts_with("google_") || OTHERS.contains(&field)
}

/// Parses the profiles of a file. The error is the number of the first invalid line. Fields before the first profile
/// belong to the default profile.
fn sections(bytes: &[u8]) -> Result<BTreeMap<String, BTreeMap<String, String>>, usize> {
    let text = utf8(bytes)?;
    let mut rules = IniDefault::default();
    // Profile names are case-sensitive, and a value may contain any character.
    rules.case_sensitive = true;
    rules.enable_inline_comments = false;
    rules.default_section = DEFAULT.to_owned();
    // The error may quote the line, so only its number is used.
    let all = Ini::new_from_defaults(rules)
        .read(text.to_owned())
        .map_err(|error| number(&error).unwrap_or(1))?;
    // A line without an equals sign may be a secret.
    let lonely = all.values().flatten().find(|(_, value)| value.is_none());
    if let Some((key, _)) = lonely {
        let line = text.lines().position(|line| line.trim() == key);
        return Err(line.unwrap_or_default() + 1);
    }
    let lower = |(name, value): (String, Option<String>)| {
        (name.to_ascii_lowercase(), value.unwrap_or_default())
    };
    let all = all.into_iter();
    Ok(all
        .map(|(name, fields)| (name, fields.into_iter().map(lower).collect()))
        .collect())
}

/// Parses the number in `line 7: …` and `line 7:3: …`.
fn number(error: &str) -> Option<usize> {
    let rest = error.strip_prefix("line ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest.get(..end)?.parse().ok()
}
