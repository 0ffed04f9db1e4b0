//! Who logs in to a workspace of Databricks, and how: as the settings say, or a profile of `.databrickscfg`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use configparser::ini::{Ini, IniDefault};
use url::Url;

use super::HINT;
use crate::error::StorageError;
use crate::fault::{ProfileFault, UrlFault};
use crate::file::FileHandle;
use crate::location::RemoteLocation;
use crate::remote::credential::Signing;
use crate::remote::settings::{HOME, Settings, check_endpoint, setting};
use crate::remote::token::Client;

/// The profile where none is named.
const DEFAULT: &str = "DEFAULT";

/// Most bytes of a file of profiles.
const MOST: u64 = 1 << 20;

/// Settings of which any makes the file be left alone, unless a profile is named.
const GIVEN: [&str; 4] = [
    "DATABRICKS_HOST",
    "DATABRICKS_TOKEN",
    "DATABRICKS_CLIENT_ID",
    "DATABRICKS_CLIENT_SECRET",
];

/// What a login is made of.
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

/// The address of the workspace, and what requests to it are signed with.
pub(super) fn login(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<(Url, Signing), StorageError> {
    let missing = |fault| StorageError::Url {
        shown: location.to_string(),
        fault,
    };
    let named = known.text("DATABRICKS_CONFIG_PROFILE");
    let profile = match named {
        None if known.first(&GIVEN).is_some() => None,
        _ => Profile::find(known, named)?,
    };
    let host = match (known.text("DATABRICKS_HOST"), &profile) {
        (Some(host), _) => host,
        (None, Some(profile)) => profile
            .text("host")
            .ok_or_else(|| profile.without("host"))?,
        (None, None) => return Err(missing(UrlFault::Missing { hint: HINT })),
    };
    let url = address(host, known.flag("ALLOW_HTTP")?)?;
    let way = match known.text("DATABRICKS_AUTH_TYPE") {
        None => None,
        Some(name) => Some(Way::of(name).ok_or_else(|| setting("DATABRICKS_AUTH_TYPE"))?),
    };
    let token = known.header("DATABRICKS_TOKEN")?;
    if let Some(token) = token.filter(|_| way != Some(Way::Client)) {
        return Ok((url, Signing::Bearer(token)));
    }
    let id = known.header("DATABRICKS_CLIENT_ID")?;
    let secret = known.header("DATABRICKS_CLIENT_SECRET")?;
    if id.as_deref().is_some_and(|id| id.contains(':')) {
        return Err(setting("DATABRICKS_CLIENT_ID"));
    }
    if way != Some(Way::Token) && (id.is_some() || secret.is_some()) {
        // Half of it may be in the profile.
        let half = |given: Option<String>, field, name| match (given, &profile) {
            (Some(given), _) => Ok(given),
            (None, Some(profile)) => profile.header(field)?.ok_or_else(|| profile.without(field)),
            (None, None) => Err(setting(name)),
        };
        let id = half(id, "client_id", "DATABRICKS_CLIENT_ID")?;
        let secret = half(secret, "client_secret", "DATABRICKS_CLIENT_SECRET")?;
        return Ok((url.clone(), client(&url, id, secret)));
    }
    let profile = profile.ok_or_else(|| missing(UrlFault::NoLogin { hint: HINT }))?;
    let signing = profile.signing(&url, way)?;
    Ok((url, signing))
}

fn client(url: &Url, id: String, secret: String) -> Signing {
    let host = url.as_str().trim_end_matches('/').to_owned();
    Signing::Client(Client { host, id, secret })
}

/// The address of a workspace as it is copied from a browser: without a scheme, or with the number of the workspace behind.
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

/// A profile. Has no `Debug`: there are secrets in it.
struct Profile {
    file: PathBuf,
    name: String,
    fields: BTreeMap<String, String>,
}

impl Profile {
    /// The profile of that name, or the default one where there is one.
    fn find(known: &Settings<'_>, named: Option<&str>) -> Result<Option<Self>, StorageError> {
        let home = known.text(HOME).map(Path::new);
        let given = known.text("DATABRICKS_CONFIG_FILE");
        let file = match (given, home) {
            (Some(given), Some(home)) => match given.strip_prefix("~/") {
                Some(beneath) => home.join(beneath),
                None => PathBuf::from(given),
            },
            (Some(given), None) => PathBuf::from(given),
            (None, Some(home)) => home.join(".databrickscfg"),
            (None, None) if named.is_none() => return Ok(None),
            (None, None) => return Err(setting("DATABRICKS_CONFIG_FILE")),
        };
        let bytes = match FileHandle::open(&file) {
            Ok(handle) => handle.read_all(MOST)?,
            Err(StorageError::Io { source, .. })
                if given.is_none() && named.is_none() && is_nowhere(&source) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let name = named.unwrap_or(DEFAULT).to_owned();
        let wrong = |fault| wrong(&file, fault);
        match fields(&bytes, &name).map_err(|line| wrong(ProfileFault::Line { line }))? {
            Some(fields) => Ok(Some(Self { file, name, fields })),
            None if named.is_none() => Ok(None),
            None => Err(wrong(ProfileFault::Absent { profile: name })),
        }
    }

    /// The token or the client of the profile. `way` is what the settings say of it.
    fn signing(&self, url: &Url, way: Option<Way>) -> Result<Signing, StorageError> {
        let way = match (way, self.text("auth_type")) {
            (None, Some(text)) => {
                let way = Way::of(text).ok_or_else(|| self.login(&auth_type(text)))?;
                Some(way)
            }
            (way, _) => way,
        };
        let token = self.header("token")?.filter(|_| way != Some(Way::Client));
        if let Some(token) = token {
            return Ok(Signing::Bearer(token));
        }
        let (id, secret) = (self.header("client_id")?, self.header("client_secret")?);
        if id.as_deref().is_some_and(|id| id.contains(':')) {
            return Err(self.value("client_id"));
        }
        match (id, secret) {
            _ if way == Some(Way::Token) => Err(self.without("token")),
            (Some(id), Some(secret)) => Ok(client(url, id, secret)),
            (Some(_), None) => Err(self.without("client_secret")),
            (None, Some(_)) => Err(self.without("client_id")),
            (None, None) => {
                let other = self.fields.keys().find(|field| is_other(field));
                Err(match (other, way) {
                    (Some(field), None) => self.login(field),
                    (_, Some(_)) => self.without("client_id"),
                    (None, None) => self.without("token and no client_id"),
                })
            }
        }
    }

    fn text(&self, field: &str) -> Option<&str> {
        let value = self.fields.get(field)?.as_str();
        (!value.is_empty()).then_some(value)
    }

    /// A value that becomes part of a header.
    fn header(&self, field: &'static str) -> Result<Option<String>, StorageError> {
        match self.text(field) {
            Some(value) if !value.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(self.value(field))
            }
            value => Ok(value.map(str::to_owned)),
        }
    }

    fn value(&self, field: &'static str) -> StorageError {
        let profile = self.name.clone();
        wrong(&self.file, ProfileFault::Value { profile, field })
    }

    fn without(&self, field: &'static str) -> StorageError {
        let profile = self.name.clone();
        wrong(&self.file, ProfileFault::Without { profile, field })
    }

    fn login(&self, field: &str) -> StorageError {
        let (profile, field) = (self.name.clone(), field.to_owned());
        wrong(&self.file, ProfileFault::Login { profile, field })
    }
}

fn wrong(file: &Path, fault: ProfileFault) -> StorageError {
    StorageError::Url {
        shown: file.display().to_string(),
        fault: UrlFault::Profile { fault },
    }
}

/// Whether there is no such file, and nothing else is wrong.
fn is_nowhere(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The field with its value, which is shown where it looks like the name of a way to log in.
fn auth_type(value: &str) -> String {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match value.len() <= 32 && value.bytes().all(letter) {
        true => format!("auth_type = {value}"),
        false => "auth_type".to_owned(),
    }
}

/// Whether a field belongs to a way to log in that is not served.
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

/// The fields of a profile; `None` where the file has none of that name, and the number of a line that is none of such a file.
/// Fields in front of the first profile are those of the default one.
fn fields(bytes: &[u8], profile: &str) -> Result<Option<BTreeMap<String, String>>, usize> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        before.split(|byte| *byte == b'\n').count()
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let mut rules = IniDefault::default();
    // Names of profiles are compared as they are, and a value may have any letter in it.
    rules.case_sensitive = true;
    rules.enable_inline_comments = false;
    rules.default_section = DEFAULT.to_owned();
    // The error may quote the line: only its number is taken.
    let mut all = Ini::new_from_defaults(rules)
        .read(text.to_owned())
        .map_err(|error| number(&error).unwrap_or(1))?;
    // What has no equals sign may be a secret that stands alone.
    let lonely = all.values().flatten().find(|(_, value)| value.is_none());
    if let Some((key, _)) = lonely {
        let line = text.lines().position(|line| line.trim() == key);
        return Err(line.unwrap_or_default() + 1);
    }
    let Some(fields) = all.remove(profile) else {
        return Ok(None);
    };
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.unwrap_or_default()));
    Ok(Some(fields.collect()))
}

/// The number in `line 7: …` and `line 7:3: …`.
fn number(error: &str) -> Option<usize> {
    let rest = error.strip_prefix("line ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest.get(..end)?.parse().ok()
}
