//! The address of a Databricks volume, and the login to its workspace, from the settings or from a profile of
//! `.databrickscfg`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use configparser::ini::{Ini, IniDefault};
use url::Url;

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::file::FileHandle;
use crate::location::RemoteLocation;
use crate::remote::settings::{HOME, Settings, check_endpoint, encode, setting};
use crate::remote::signing::{Access, Client, Signing};

pub(crate) const HINT: &str = "set DATABRICKS_HOST with DATABRICKS_TOKEN, or with DATABRICKS_CLIENT_ID and DATABRICKS_CLIENT_SECRET, or write them into ~/.databrickscfg, or run where /Volumes is mounted";

pub(super) fn access(
    location: &RemoteLocation,
    known: &Settings<'_>,
) -> Result<Access, StorageError> {
    let (url, signing) = login(location, known)?;
    let host = url.as_str().trim_end_matches('/');
    let mut volume = String::new();
    encode(&mut volume, location.bucket(), true);
    let base = format!("{host}/api/2.0/fs/files/Volumes/{volume}");
    Ok(Access {
        folders: format!("{host}/api/2.0/fs/directories/Volumes/{volume}"),
        account: Some(format!("/Volumes/{}/", location.bucket())),
        ..Access::at(StoreKind::Volumes, &base, signing)?
    })
}

/// The name of the default profile.
const DEFAULT: &str = "DEFAULT";

/// The maximum number of bytes of a profile file.
const MOST: u64 = 1 << 20;

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
fn login(location: &RemoteLocation, known: &Settings<'_>) -> Result<(Url, Signing), StorageError> {
    let missing = |fault: StorageError| fault.at(location.to_string());
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
        (None, None) => return Err(missing(StorageError::SettingMissing { hint: HINT })),
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
        // The other half may be in the profile.
        let half = |given: Option<String>, field, name| match (given, &profile) {
            (Some(given), _) => Ok(given),
            (None, Some(profile)) => profile.header(field)?.ok_or_else(|| profile.without(field)),
            (None, None) => Err(setting(name)),
        };
        let id = half(id, "client_id", "DATABRICKS_CLIENT_ID")?;
        let secret = half(secret, "client_secret", "DATABRICKS_CLIENT_SECRET")?;
        return Ok((url.clone(), client(&url, id, secret)));
    }
    let profile = profile.ok_or_else(|| missing(StorageError::SettingLogin { hint: HINT }))?;
    let signing = profile.signing(&url, way)?;
    Ok((url, signing))
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

/// A profile. Has no `Debug`, because it contains secrets.
struct Profile {
    file: PathBuf,
    name: String,
    fields: BTreeMap<String, String>,
}

impl Profile {
    /// Finds the profile of that name, or the default profile if it exists.
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
        match fields(&bytes, &name).map_err(|line| wrong(StorageError::ProfileLine { line }))? {
            Some(fields) => Ok(Some(Self { file, name, fields })),
            None if named.is_none() => Ok(None),
            None => Err(wrong(StorageError::ProfileMissing { profile: name })),
        }
    }

    /// Returns the token or the client of the profile. `way` is the method that the settings select.
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

    /// Returns a value that is used in a header, after checking its characters.
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
        wrong(&self.file, StorageError::ProfileValue { profile, field })
    }

    fn without(&self, field: &'static str) -> StorageError {
        let profile = self.name.clone();
        wrong(&self.file, StorageError::ProfileWithout { profile, field })
    }

    fn login(&self, field: &str) -> StorageError {
        let (profile, field) = (self.name.clone(), field.to_owned());
        wrong(&self.file, StorageError::ProfileLogin { profile, field })
    }
}

fn wrong(file: &Path, fault: StorageError) -> StorageError {
    fault.at(file.display().to_string())
}

/// Returns whether the error only means that the file does not exist.
fn is_nowhere(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
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

/// Parses the fields of a profile. Returns `None` if the file does not have the profile, and the number of the first
/// invalid line as an error. Fields before the first profile belong to the default profile.
fn fields(bytes: &[u8], profile: &str) -> Result<Option<BTreeMap<String, String>>, usize> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        before.split(|byte| *byte == b'\n').count()
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let mut rules = IniDefault::default();
    // Profile names are case-sensitive, and a value may contain any character.
    rules.case_sensitive = true;
    rules.enable_inline_comments = false;
    rules.default_section = DEFAULT.to_owned();
    // The error may quote the line, so only its number is used.
    let mut all = Ini::new_from_defaults(rules)
        .read(text.to_owned())
        .map_err(|error| number(&error).unwrap_or(1))?;
    // A line without an equals sign may be a secret.
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

/// Parses the number in `line 7: …` and `line 7:3: …`.
fn number(error: &str) -> Option<usize> {
    let rest = error.strip_prefix("line ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest.get(..end)?.parse().ok()
}
