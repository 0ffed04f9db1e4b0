//! Logins to a Databricks workspace: with a token, as a client, or with a profile.

use std::path::Path;

use shardmill_testing::s3::{Action, Flavor, Login};

use super::*;
use crate::error::StorageError;
use crate::remote::access::access;
use crate::remote::credential::CredentialCache;
use crate::remote::signing::Credential;

const PERSONAL: &str = "hush-personal";

fn client() -> Login {
    Login {
        personal: Some(PERSONAL.to_owned()),
        ..Login::new("app", "hush-secret")
    }
}

fn behaves(login: Login, faults: Script) -> Settings {
    Settings {
        flavor: Flavor::Files,
        login: Some(login),
        faults,
        ..Settings::default()
    }
}

fn serve(login: Login, faults: Script) -> S3Server {
    let objects = [("data/small".to_owned(), contents(1, SMALL))];
    let objects = Objects::memory("main/default/volume", objects);
    S3Server::start(objects, behaves(login, faults)).unwrap()
}

fn volume() -> RemoteLocation {
    remote_location("dbfs:/Volumes/main/default/volume/data")
}

fn open(options: &RemoteOptions) -> Result<Remote, StorageError> {
    Remote::new(&volume(), options, true)
}

fn set(mut options: RemoteOptions, settings: &[(&str, &str)]) -> RemoteOptions {
    for (name, value) in settings {
        options
            .settings
            .insert((*name).to_owned(), (*value).to_owned());
    }
    options
}

/// Options with only these settings.
fn only(server: &S3Server, settings: &[(&str, &str)]) -> RemoteOptions {
    let mut options = quick(server);
    options.settings.clear();
    set(options, settings)
}

fn reads(remote: &Remote) -> Result<(), StorageError> {
    let read = remote.read("small", SMALL as u64)?;
    assert!(read == contents(1, SMALL));
    Ok(())
}

/// Everything of an error that a user or a log can see.
fn shown(error: &StorageError) -> String {
    format!("{error:?} {error} {:?} {:?}", error.object(), error.hint())
}

#[test]
fn token_is_reused_until_the_store_rejects_it() {
    let login = Login {
        uses: Some(5),
        ..client()
    };
    let server = serve(login, Script::default());
    let remote = open(&quick(&server)).unwrap();
    for _ in 0..20 {
        reads(&remote).unwrap();
    }
    let counts = server.counts();
    // The sixth, eleventh and sixteenth request found that the token had expired.
    assert_eq!((counts.tokens, counts.denied), (4, 3));
    assert_eq!(counts.by_action[&Action::Get], 23);
    assert_eq!(remote.stats().retries, 3);
}

#[test]
fn every_request_is_retried_with_a_new_token() {
    let login = Login {
        uses: Some(1),
        ..client()
    };
    let server = serve(login, Script::default());
    let remote = open(&quick(&server)).unwrap();
    let mut cancel = |_: u64| true;
    remote.put("new", contents(3, LARGE), &mut cancel).unwrap();
    assert_eq!(
        remote.read("new", LARGE as u64).unwrap(),
        contents(3, LARGE)
    );
    assert_eq!(remote.list("", 10, &mut cancel).unwrap().len(), 2);
    remote.remove("new", &mut cancel).unwrap();
    assert_eq!(remote.size("new", &mut cancel).unwrap(), None);
    assert!(server.counts().denied >= 4, "{:?}", server.counts());
}

#[test]
fn revoked_token_is_renewed_once_for_concurrent_requests() {
    let server = serve(client(), Script::default());
    let remote = open(&quick(&server)).unwrap();
    let wanted: Vec<_> = (0..40).map(|at| ("small".to_owned(), at..at + 1)).collect();
    let all_well = |results: Vec<Result<Vec<u8>, StorageError>>| {
        for result in results {
            result.unwrap();
        }
    };
    all_well(remote.read_ranges(&wanted));
    assert_eq!(server.counts().tokens, 1);
    // All of them are signed before the first one is refused.
    server.set(Settings {
        latency: Duration::from_millis(50),
        ..behaves(client(), Script::default())
    });
    server.revoke_tokens();
    server.forget_counts();
    all_well(remote.read_ranges(&wanted));
    let counts = server.counts();
    assert!(counts.denied >= 2, "{counts:?}");
    assert_eq!(counts.tokens, 1);
}

#[test]
fn renewal_for_an_old_epoch_keeps_the_new_token() {
    let server = serve(client(), Script::default());
    let access = access(&volume(), &server.environment()).unwrap();
    let credential_cache = CredentialCache::default();
    let token = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        match runtime.block_on(credential_cache.credential(&access)) {
            Ok(Credential::Bearer(token)) => token,
            _ => panic!(),
        }
    };
    let first = credential_cache.epoch();
    assert_eq!(
        (token(), token()),
        ("token-1".to_owned(), "token-1".to_owned())
    );
    assert!(credential_cache.renew(&access, first));
    // No new token was requested yet.
    assert!(credential_cache.renew(&access, first));
    assert_eq!(token(), "token-2");
    assert!(credential_cache.renew(&access, first));
    assert_eq!(token(), "token-2");
    assert!(credential_cache.renew(&access, credential_cache.epoch()));
    assert_eq!(token(), "token-3");
}

#[test]
fn token_is_renewed_before_expiry() {
    let login = Login {
        expires_in: 1,
        ..client()
    };
    let server = serve(login, Script::default());
    let remote = open(&quick(&server)).unwrap();
    until(|| {
        reads(&remote).unwrap();
        server.counts().tokens >= 2
    });
    assert_eq!(server.counts().denied, 0);
}

#[test]
fn wrong_client_secret_is_an_error_for_all_pending_reads() {
    let server = serve(client(), Script::default());
    let options = set(
        quick(&server),
        &[("DATABRICKS_CLIENT_SECRET", "hush-wrong")],
    );
    let remote = open(&options).unwrap();
    let wanted: Vec<_> = (0..20).map(|at| ("small".to_owned(), at..at + 1)).collect();
    let began = Instant::now();
    for result in remote.read_ranges(&wanted) {
        let error = result.unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("credentials", ErrorKind::Permission)
        );
        assert_eq!(
            error.to_string(),
            "no credentials were found: the token service of the workspace refused the client (401, invalid_client)"
        );
        assert!(error.hint().unwrap().contains("DATABRICKS_CLIENT_SECRET"));
        let all = format!("{} {remote:?} {options:?}", shown(&error));
        assert!(!all.contains("hush"), "{all}");
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(server.counts().requests, 1);
}

#[test]
fn invalid_token_response_is_an_error() {
    let target = serve(client(), Script::default());
    let to = format!("{}/oidc/v1/token", target.endpoint());
    let of = |fault: Fault| (client(), Script::on(Action::Login, None, fault));
    let says = |answer: &str| {
        let answer = Some(answer.to_owned());
        (Login { answer, ..client() }, Script::default())
    };
    let secret = r#"{"access_token":"hush x","token_type":"Bearer"}"#;
    for ((login, faults), what, requests) in [
        (
            of(Fault::Page),
            "gave an answer without a token: it is not JSON",
            1,
        ),
        (
            says("hush"),
            "gave an answer without a token: it is not JSON",
            1,
        ),
        (
            says(secret),
            "gave an answer without a token: it has no access_token",
            1,
        ),
        (
            says(&"[".repeat(100_000)),
            "gave an answer without a token: it is too long",
            1,
        ),
        (
            of(Fault::Redirect(to)),
            "answered with a redirect, which is not followed",
            1,
        ),
        (of(Fault::status(404)), "answered with status 404", 1),
        (of(Fault::status(403)), "refused the client (403)", 1),
        (of(Fault::status(500)), "answered with status 500", 3),
        (of(Fault::status(429)), "answered with status 429", 3),
    ] {
        let server = serve(login, faults);
        let began = Instant::now();
        let error = reads(&open(&quick(&server)).unwrap()).unwrap_err();
        assert_eq!(error.id(), "credentials", "{what}");
        let text = format!("no credentials were found: the token service of the workspace {what}");
        assert_eq!(error.to_string(), text);
        assert!(!shown(&error).contains("hush"), "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{what}");
        assert_eq!(server.counts().requests, requests, "{what}");
    }
    assert_eq!(target.counts().requests, 0);

    // A temporary fault is not an error.
    for fault in [Fault::status(503), Fault::CloseBefore] {
        let server = serve(client(), Script::on(Action::Login, Some(2), fault));
        reads(&open(&quick(&server)).unwrap()).unwrap();
        assert_eq!(server.counts().tokens, 1);
    }
}

#[test]
fn token_from_settings_is_not_renewed() {
    let server = serve(client(), Script::default());
    let with = |token| set(quick(&server), &[("DATABRICKS_TOKEN", token)]);
    let error = reads(&open(&with("other")).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store denied access (401, UNAUTHENTICATED)"
    );
    let counts = server.counts();
    assert_eq!((counts.denied, counts.requests), (1, 1));
    // The personal token takes precedence over the client, unless the client is selected.
    reads(&open(&with(PERSONAL)).unwrap()).unwrap();
    assert_eq!(server.counts().tokens, 0);
    let client = set(with("other"), &[("DATABRICKS_AUTH_TYPE", "oauth-m2m")]);
    reads(&open(&client).unwrap()).unwrap();
    assert_eq!(server.counts().tokens, 1);
}

/// Creates a folder with a profile file.
fn home(text: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".databrickscfg"), text).unwrap();
    home
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn databricks_profiles_provide_credentials() {
    let server = serve(client(), Script::default());
    let host = server.endpoint();
    let text = format!(
        "; Written by hand.\n\
         [DEFAULT]\n\
         host = {host}/?o=123\n\
         token = {PERSONAL}\n\
         client_id = stranger\n\n\
         [app]\r\n\
         Host: {host}/\r\n\
         client_id = app\r\n\
         client_secret=hush-secret\r\n\
         [both]\n\
         host = {host}\n\
         token = {PERSONAL}\n\
         client_id = app\n\
         client_secret = hush-secret\n\
         [typed]\n\
         host = {host}\n\
         auth_type = oauth-m2m\n\
         token = other\n\
         client_id = app\n\
         client_secret = hush-secret\n\
         [half]\n\
         host = {host}\n\
         client_id = app\n\
         [cli]\n\
         host = {host}\n\
         auth_type = databricks-cli\n"
    );
    let home = home(&text);
    let file = home.path().join("other");
    std::fs::write(&file, format!("host={host}\ntoken={PERSONAL}\n")).unwrap();
    let broken = home.path().join("broken");
    std::fs::write(&broken, "nonsense\n").unwrap();
    let at = ("HOME", name(home.path()));
    let profile = |name| ("DATABRICKS_CONFIG_PROFILE", name);
    let token = ("DATABRICKS_TOKEN", PERSONAL);
    let secret = ("DATABRICKS_CLIENT_SECRET", "hush-secret");
    let id = ("DATABRICKS_CLIENT_ID", "app");
    let config = |path| ("DATABRICKS_CONFIG_FILE", path);
    let pat = ("DATABRICKS_AUTH_TYPE", "pat");
    for (settings, tokens) in [
        (&[at][..], 0),
        (&[at, profile("DEFAULT")], 0),
        (&[at, profile("app")], 1),
        // A token takes precedence.
        (&[at, profile("both")], 0),
        (&[at, profile("typed")], 1),
        (
            &[at, profile("both"), ("DATABRICKS_AUTH_TYPE", "oauth-m2m")],
            1,
        ),
        // Fields before the first profile belong to the default profile.
        (&[at, config("~/other")], 0),
        (&[config(name(&file))], 0),
        // Each setting takes precedence over the profile.
        (&[at, profile("half"), secret], 1),
        (&[at, profile("both"), id, secret], 1),
        (&[at, profile("both"), id, secret, pat], 0),
        (&[at, profile("cli"), token], 0),
        (&[at, profile("app"), token], 0),
        // Nothing is missing, so the file is not read.
        (
            &[at, config(name(&broken)), ("DATABRICKS_HOST", &host), token],
            0,
        ),
        (
            &[
                at,
                config(name(&broken)),
                ("DATABRICKS_HOST", &host),
                id,
                secret,
            ],
            1,
        ),
    ] {
        server.forget_counts();
        let options = only(&server, settings);
        let shown = format!("{:?}", options.settings.keys());
        reads(&open(&options).unwrap_or_else(|error| panic!("{shown}: {error}")))
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(server.counts().tokens, tokens, "{shown}");
    }

    // The host of the settings is used.
    let other = serve(client(), Script::default());
    let options = only(
        &server,
        &[at, profile("app"), ("DATABRICKS_HOST", &other.endpoint())],
    );
    reads(&open(&options).unwrap()).unwrap();
    assert_eq!(other.counts().tokens, 1);
    assert_eq!(server.counts().tokens, 1);
    // A folder below has the same login, even after the file was removed.
    let remote = open(&only(&server, &[at])).unwrap();
    std::fs::remove_file(home.path().join(".databrickscfg")).unwrap();
    assert_eq!(
        remote.join("x").location().to_string(),
        format!("{}/x", volume())
    );
}

#[test]
fn unusable_databricks_profiles_are_errors() {
    const TEXT: &str = "[DEFAULT]\n\
        host = https://adb.net\n\
        auth_type = databricks-cli\n\
        [azure]\n\
        host = https://adb.net\n\
        azure_client_secret = hush\n\
        [google]\n\
        host = https://adb.net\n\
        google_credentials = hush\n\
        [basic]\n\
        host = https://adb.net\n\
        username = hush\n\
        [odd]\n\
        host = https://adb.net\n\
        auth_type = hush HUSH\n\
        [nowhere]\n\
        token = hush\n\
        [empty]\n\
        host = https://adb.net\n\
        [half]\n\
        host = https://adb.net\n\
        client_id = hush\n\
        [broken]\n\
        host = https://adb.net\n\
        token = hush hush\n\
        [open]\n\
        host = http://adb.net\n\
        token = hush\n\
        [typed]\n\
        host = https://adb.net\n\
        auth_type = pat\n\
        client_id = hush\n\
        client_secret = hush\n\
        [colon]\n\
        host = https://adb.net\n\
        client_id = hush:hush\n\
        client_secret = hush\n";
    let server = serve(client(), Script::default());
    let home = home(TEXT);
    let at = ("HOME", name(home.path()));
    let login = |profile: &str, by: &str| {
        format!("the profile {profile:?} logs in by {by}, which is not supported")
    };
    let without = |profile: &str, what: &str| format!("the profile {profile:?} has no {what}");
    let value = |profile: &str, what: &str| {
        format!("{what} of the profile {profile:?} cannot have this value")
    };
    for (profile, text) in [
        (None, login("DEFAULT", "auth_type = databricks-cli")),
        (Some("azure"), login("azure", "azure_client_secret")),
        (Some("google"), login("google", "google_credentials")),
        (Some("basic"), login("basic", "username")),
        (Some("odd"), login("odd", "auth_type")),
        (Some("nowhere"), without("nowhere", "host")),
        (Some("empty"), without("empty", "token and no client_id")),
        (Some("half"), without("half", "client_secret")),
        (Some("typed"), without("typed", "token")),
        (Some("broken"), value("broken", "token")),
        (Some("colon"), value("colon", "client_id")),
        (
            Some("default"),
            "there is no profile \"default\", but \"DEFAULT\", \"azure\", \"basic\", \"broken\", \"colon\", \"empty\", \"google\", \"half\", \"nowhere\", \"odd\", …".to_owned(),
        ),
    ] {
        let mut options = only(&server, &[at]);
        if let Some(profile) = profile {
            options = set(options, &[("DATABRICKS_CONFIG_PROFILE", profile)]);
        }
        let error = open(&options).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(
            (error.id(), error.kind()),
            ("url-profile", ErrorKind::InvalidInput)
        );
        let file = home.path().join(".databrickscfg");
        assert_eq!(error.object().as_deref(), Some(name(&file)));
        assert!(
            !shown(&error).to_ascii_lowercase().contains("hush"),
            "{error:?}"
        );
    }
    let open_host = only(&server, &[at, ("DATABRICKS_CONFIG_PROFILE", "open")]);
    assert_eq!(open(&open_host).unwrap_err().id(), "url-plain");
    assert!(open(&set(open_host, &[("ALLOW_HTTP", "true")])).is_ok());
}

#[test]
fn invalid_databricks_config_is_an_error_with_its_line() {
    let server = serve(client(), Script::default());
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("profiles");
    let at = ("HOME", name(home.path()));
    let config = ("DATABRICKS_CONFIG_FILE", name(&file));
    for (bytes, line) in [
        (&b"[DEFAULT]\nhost = https://adb.net\nhush\n"[..], 3),
        (b"[DEFAULT]\n\n[DEFAULT\nhost = x\n", 3),
        (b"[other]\n= hush\n", 2),
        (b"# \xc3\xa4\n[DEFAULT]\ntoken = \xff\n", 3),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let error = open(&only(&server, &[config])).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("line {line}: expected `[profile]` or `key = value`, each only once")
        );
        assert_eq!(error.id(), "url-profile");
        assert_eq!(error.object().as_deref(), Some(name(&file)));
        assert!(!shown(&error).contains("hush"), "{error:?}");
    }
    std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
    let error = open(&only(&server, &[config])).unwrap_err();
    assert_eq!(error.id(), "limit-file-bytes");
    std::fs::remove_file(&file).unwrap();

    // A profile file that was named has to exist; the default one need not.
    let named = ("DATABRICKS_CONFIG_PROFILE", "app");
    let default = home.path().join(".databrickscfg");
    let nowhere = ("HOME", "/dev/null");
    for (settings, id, object) in [
        (&[config][..], "not-found", Some(file.as_path())),
        (&[at, named], "not-found", Some(&default)),
        (&[config, named], "not-found", Some(&file)),
        (&[named], "url-setting", None),
        (&[at], "url-setting", None),
        (&[nowhere], "url-setting", None),
        (&[], "url-setting", None),
    ] {
        let error = open(&only(&server, settings)).unwrap_err();
        assert_eq!(error.id(), id, "{settings:?}");
        if let Some(object) = object {
            assert_eq!(error.object().as_deref(), Some(name(object)));
        }
    }
    std::fs::create_dir(&file).unwrap();
    let error = open(&only(&server, &[config])).unwrap_err();
    assert_eq!(error.id(), "path-not-a-file");
    // A file without the default profile is ignored.
    std::fs::write(&default, "[app]\nhost = https://adb.net\n").unwrap();
    let error = open(&only(&server, &[at])).unwrap_err();
    assert_eq!(error.id(), "url-setting");
    assert_eq!(error.to_string(), "the store has no address");
    assert!(error.hint().unwrap().contains(".databrickscfg"));
    let host = open(&only(&server, &[("DATABRICKS_HOST", "adb.net")])).unwrap_err();
    assert_eq!(host.to_string(), "no credentials for the store were found");
    for settings in [
        &[("DATABRICKS_HOST", "adb.net")][..],
        &[
            ("DATABRICKS_CLIENT_ID", "a"),
            ("DATABRICKS_HOST", "adb.net"),
        ],
        &[
            ("DATABRICKS_CLIENT_SECRET", "hush"),
            ("DATABRICKS_HOST", "adb.net"),
        ],
        &[
            ("DATABRICKS_AUTH_TYPE", "azure-cli"),
            ("DATABRICKS_HOST", "adb.net"),
            ("DATABRICKS_TOKEN", "hush"),
        ],
        &[
            ("DATABRICKS_CLIENT_ID", "hush:"),
            ("DATABRICKS_CLIENT_SECRET", "hush"),
            ("DATABRICKS_HOST", "adb.net"),
        ],
    ] {
        let error = open(&only(&server, settings)).unwrap_err();
        assert_eq!(error.id(), "url-setting", "{settings:?}");
        assert!(!shown(&error).contains("hush"), "{error:?}");
    }
}
