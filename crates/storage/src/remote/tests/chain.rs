//! Credentials of Amazon from profiles, roles, single sign-on, programs, containers and machines, against servers on this
//! machine.

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

#[test]
fn keys_come_from_the_files() {
    let home = Home::new(
        "[default]\nregion = eu-west-1\naws_access_key_id = overridden\n[profile other]\nregion = eu-north-1\n\
         endpoint_url = https://general.lan\nservices = own\n[services own]\ns3 =\n  endpoint_url = https://own.lan\n\
         [profile in-config]\naws_access_key_id = three\naws_secret_access_key = hush\n[profile bare]\nregion = x-1\n",
        KEYS,
    );
    let url = |settings: &[(&str, &str)]| {
        let access = access(&location(), &home.settings(settings)).unwrap();
        (access.url("k"), access.region.clone())
    };
    let profile = |name| [("AWS_PROFILE", name)];
    assert_eq!(key(&home.settings(&[])), "one");
    assert_eq!(key(&home.settings(&profile("in-config"))), "three");
    assert_eq!(
        key(&home.settings(&[("AWS_DEFAULT_PROFILE", "other")])),
        "two"
    );
    let (found, source) = find(&home.settings(&profile("other"))).unwrap();
    assert_eq!(found.token.as_deref(), Some("hush-token"));
    assert_eq!(
        source.to_string(),
        "profile \"other\" in ~/.aws/credentials"
    );
    assert_eq!(source.profile.as_deref(), Some("other"));
    assert_eq!(
        find(&home.settings(&profile("in-config")))
            .unwrap()
            .1
            .to_string(),
        "profile \"in-config\" in ~/.aws/config"
    );
    // Region and endpoint of the profile, unless the settings have them.
    assert_eq!(
        url(&[]),
        (
            "https://bucket.s3.eu-west-1.amazonaws.com/k".to_owned(),
            "eu-west-1".to_owned()
        )
    );
    assert_eq!(
        url(&profile("other")),
        (
            "https://own.lan/bucket/k".to_owned(),
            "eu-north-1".to_owned()
        )
    );
    assert_eq!(
        url(&[
            ("AWS_PROFILE", "other"),
            ("AWS_REGION", "r"),
            ("AWS_ENDPOINT_URL", "https://e")
        ]),
        ("https://e/bucket/k".to_owned(), "r".to_owned())
    );
    // Keys of the environment win over the profile, and take its region.
    let mixed = [
        ("AWS_ACCESS_KEY_ID", "env"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
    ];
    let mixed = [mixed[0], mixed[1], ("AWS_PROFILE", "other")];
    let (found, source) = find(&home.settings(&mixed)).unwrap();
    assert_eq!(
        (found.key_id.as_str(), found.token.as_deref()),
        ("env", None)
    );
    assert_eq!(source.to_string(), "AWS_ACCESS_KEY_ID in the environment");
    assert_eq!(url(&mixed).1, "eu-north-1");
    // An explicit profile wins over the keys of the environment.
    let options = RemoteOptions {
        settings: home.settings(&mixed[..2]),
        ..RemoteOptions::default()
    };
    let options = options.with_options(&["aws_profile=other"]).unwrap();
    assert_eq!(key(&options.settings), "two");
    // A profile without a login leaves it to the machine.
    let error = failure(&home.settings(&profile("bare")));
    assert!(
        error.to_string().contains("AWS_EC2_METADATA_DISABLED"),
        "{error}"
    );

    // Other files.
    home.write(
        "elsewhere",
        "[moved]\naws_access_key_id = four\naws_secret_access_key = hush\n",
    );
    // The parts of a pair of keys come from one file.
    home.write("elsewhere", "[in-config]\naws_access_key_id = hush\n");
    let half = [
        ("AWS_SHARED_CREDENTIALS_FILE", "~/elsewhere"),
        ("AWS_PROFILE", "in-config"),
    ];
    let error = failure(&home.settings(&half));
    assert!(
        error.to_string().contains("no aws_secret_access_key"),
        "{error}"
    );
    home.write(
        "elsewhere",
        "[moved]\naws_access_key_id = four\naws_secret_access_key = hush\n",
    );
    let moved = [
        ("AWS_SHARED_CREDENTIALS_FILE", "~/elsewhere"),
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_PROFILE", "moved"),
    ];
    assert_eq!(key(&home.settings(&moved)), "four");
}

#[test]
fn new_keys_in_the_files_are_used_when_the_old_ones_are_refused() {
    let home = Home::new("", KEYS);
    let access = access(&location(), &home.settings(&[])).unwrap();
    let cache = CredentialCache::default();
    let key = || match block(cache.credential(&access)) {
        Ok(Credential::Aws(found)) => found.key_id.clone(),
        _ => panic!(),
    };
    assert_eq!(key(), "one");
    home.write(".aws/credentials", &KEYS.replace("= one", "= rotated"));
    assert_eq!(key(), "one");
    assert!(cache.renew(&access, cache.epoch()));
    assert_eq!(key(), "rotated");
}

#[test]
fn roles_are_assumed_one_after_the_other() {
    let server = tokens(3600);
    let config = "[profile train]\nrole_arn = arn:aws:iam::1:role/reader\nsource_profile = middle\nregion = eu-west-1\n\
         external_id = a+b\nrole_session_name = job-1\nduration_seconds = 900\n\
         [profile middle]\nrole_arn = arn:aws:iam::1:role/hop\nsource_profile = default\n\
         [profile self]\nrole_arn = arn:aws:iam::1:role/self\nsource_profile = self\naws_access_key_id = own\naws_secret_access_key = hush\n";
    let home = Home::new(config, KEYS);
    let url = server.url();
    let settings =
        |profile| home.settings(&[("AWS_PROFILE", profile), ("AWS_ENDPOINT_URL_STS", &url)]);
    let (found, source) = find(&settings("train")).unwrap();
    assert_eq!(found.key_id, "one-hop-reader");
    assert_eq!(found.token.as_deref(), Some("token-1"));
    let text = source.describe(SystemTime::now());
    assert!(
        text.starts_with(
            "profile \"train\" in ~/.aws/config (role arn:aws:iam::1:role/reader, expires in 59 min"
        ) || text.ends_with("expires in 60 min)"),
        "{text}"
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].line, "POST /");
    assert_eq!(field(&requests[0], "RoleSessionName"), "shardmill");
    let last = &requests[1];
    assert_eq!(field(last, "RoleSessionName"), "job-1");
    assert_eq!(field(last, "ExternalId"), "a%2Bb");
    assert_eq!(field(last, "DurationSeconds"), "900");
    assert_eq!(last.header("x-amz-security-token"), "token-0");
    assert!(
        last.header("authorization")
            .contains("/eu-west-1/sts/aws4_request")
    );
    assert_eq!(key(&settings("self")), "own-self");
}

#[test]
fn credentials_are_requested_once_and_renewed_before_they_expire() {
    let server = tokens(3600);
    let config = "[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = other\n";
    let home = Home::new(config, &KEYS.replace("[default]", "[unused]"));
    let settings = home.settings(&[("AWS_ENDPOINT_URL_STS", &server.url())]);
    let access = access_of(&settings);
    let cache = CredentialCache::default();
    let all = || {
        block(async {
            let wait = (0..20).map(|_| cache.credential(&access));
            futures::future::join_all(wait)
                .await
                .into_iter()
                .map(|found| match found {
                    Ok(Credential::Aws(found)) => found.token.clone().unwrap(),
                    _ => panic!(),
                })
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(all(), vec!["token-0"; 20]);
    assert_eq!(server.requests().len(), 1);
    // Of many requests that were refused, one gets new credentials.
    let old = cache.epoch();
    for _ in 0..5 {
        assert!(cache.renew(&access, old));
    }
    assert_eq!(all(), vec!["token-1"; 20]);
    assert_eq!(server.requests().len(), 2);

    // Those that live for a second are renewed within it.
    let server = tokens(1);
    let settings = home.settings(&[("AWS_ENDPOINT_URL_STS", &server.url())]);
    let access = access_of(&settings);
    let cache = CredentialCache::default();
    until(|| {
        assert!(block(cache.credential(&access)).is_ok());
        server.requests().len() >= 2
    });
}

#[test]
fn many_readers_share_a_refresh() {
    let sts = tokens(3600);
    let store = super::server(Script::default());
    let config = "[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = other\n";
    let home = Home::new(config, &KEYS.replace("[default]", "[unused]"));
    let mut options = quick(&store);
    options.settings = home.settings(&[
        ("AWS_ENDPOINT_URL", &store.endpoint()),
        ("AWS_ENDPOINT_URL_STS", &sts.url()),
    ]);
    let remote = alone(&options);
    let wanted: Vec<_> = (0..40).map(|at| ("small".to_owned(), at..at + 1)).collect();
    for result in remote.read_ranges(&wanted) {
        result.unwrap();
    }
    assert_eq!(sts.requests().len(), 1);
    let source = remote.credential_source(&mut |_| true).unwrap();
    assert_eq!(source.role.as_deref(), Some("arn:aws:iam::1:role/r"));
    assert_eq!(sts.requests().len(), 1);
    let shown = format!("{remote:?} {options:?} {:?} {source:?}", remote.live());
    assert!(
        !shown.contains("hush") && !shown.contains("token-0"),
        "{shown}"
    );
}

const SSO: &str = "[profile sso]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = Reader\n\
    [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.awsapps.com/start\n\
    [profile old]\nsso_start_url = https://corp.awsapps.com/start\nsso_region = eu-west-1\nsso_account_id = 123\nsso_role_name = Reader\n";

/// Writes the token of a session, as `aws sso login` does.
fn sign_on(home: &Home, key: &str, text: &str) {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes());
    let name: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    home.write(&format!(".aws/sso/cache/{name}.json"), text);
}

fn portal() -> Stub {
    Stub::start(|request| match request.header("x-amz-sso_bearer_token") {
        "hush-good" => {
            let end = SystemTime::now() + Duration::from_secs(3600);
            let end = end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
            let body = format!(
                r#"{{"roleCredentials":{{"accessKeyId":"from-portal","secretAccessKey":"hush","sessionToken":"t","expiration":{end}}}}}"#
            );
            (200, body)
        }
        "hush-odd" => (200, "hush".to_owned()),
        "hush-forbidden" => (403, r#"{"message":"hush"}"#.to_owned()),
        _ => (401, r#"{"message":"hush"}"#.to_owned()),
    })
    .unwrap()
}

#[test]
fn a_single_sign_on_gives_credentials() {
    let home = Home::new(SSO, "");
    let token =
        |token: &str, end: &str| format!(r#"{{"accessToken":"{token}","expiresAt":"{end}"}}"#);
    for (profile, name) in [("sso", "corp"), ("old", "https://corp.awsapps.com/start")] {
        let server = portal();
        let url = server.url();
        let settings =
            |profile| home.settings(&[("AWS_PROFILE", profile), ("AWS_ENDPOINT_URL_SSO", &url)]);
        let error = failure(&settings(profile));
        assert!(
            error
                .to_string()
                .contains("has no login for the single sign-on"),
            "{error}"
        );
        let hint = format!("run `aws sso login` for the profile {profile:?}");
        assert_eq!(error.hint(), Some(hint.clone()));
        sign_on(&home, name, &token("hush-good", "2020-01-01T00:00:00Z"));
        let error = failure(&settings(profile));
        assert!(
            error
                .to_string()
                .ends_with("that expired at 2020-01-01T00:00:00Z"),
            "{error}"
        );
        assert_eq!(
            (error.id(), error.hint()),
            ("credentials", Some(hint.clone()))
        );
        assert_eq!(server.requests().len(), 0);
        for (text, what) in [
            ("hush".to_owned(), "without a token and its end"),
            (token("hush-good", "hush"), "without a token and its end"),
            (token("hush-bad", &after(60)), "was refused (401)"),
            (
                token("hush-forbidden", &after(60)),
                "may not use the role Reader of account 123 (403)",
            ),
            (token("hush-odd", &after(60)), "without credentials"),
        ] {
            sign_on(&home, name, &text);
            let error = failure(&settings(profile));
            assert!(error.to_string().contains(what), "{error}");
        }
        sign_on(
            &home,
            name,
            &token("hush-good", &after(600).replace('Z', "UTC")),
        );
        let before = server.requests().len();
        let (found, source) = find(&settings(profile)).unwrap();
        assert_eq!(found.key_id, "from-portal");
        assert!(source.expires.is_some());
        assert_eq!(source.facts.len(), 1);
        let requests = server.requests();
        assert_eq!(requests.len(), before + 1);
        assert_eq!(
            requests[before].line,
            "GET /federation/credentials?account_id=123&role_name=Reader"
        );
    }
}

#[test]
fn programs_print_credentials() {
    let home = Home::new("", "");
    let script = home.path("program");
    let run = |body: &str| {
        std::fs::write(&script, format!("#!/bin/sh\n{body}\n")).unwrap();
        let config =
            format!("[default]\ncredential_process = /bin/sh {script} \"a b\" '$HOME;x'\n");
        home.write(".aws/config", &config);
        home.settings(&[])
    };
    // The arguments are passed on as they are written: no shell expands them.
    let print = r#"printf '{"Version":1,"AccessKeyId":"%s","SecretAccessKey":"hush"}' "$#:$(printf %s "$1$2" | tr ' ' _)""#;
    let (found, source) = find(&run(print)).unwrap();
    assert_eq!(found.key_id, "2:a_b$HOME;x");
    assert_eq!(
        source.to_string(),
        "profile \"default\" in ~/.aws/config (credential_process /bin/sh)"
    );
    for (body, what) in [
        ("exit 3", "failed (exit status: 3)"),
        ("echo hush", "refused: it is not JSON"),
        ("echo '{\"Version\":1}'", "refused: it has no AccessKeyId"),
    ] {
        let error = failure(&run(body));
        assert!(error.to_string().ends_with(what), "{error}");
        assert_eq!(error.id(), "credentials");
    }
    home.write(
        ".aws/config",
        "[default]\ncredential_process = /nowhere/hush\n",
    );
    let error = find(&home.settings(&[])).err().unwrap();
    assert!(error.to_string().contains("cannot be started"), "{error}");
}

#[test]
fn web_identities_assume_roles() {
    let server = tokens(3600);
    let home = Home::new("", KEYS);
    home.write("token", "hush-jwt");
    let (file, url) = (home.path("token"), server.url());
    let role = "arn:aws:iam::1:role/web";
    let identity = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.as_str()),
        ("AWS_ROLE_ARN", role),
        ("AWS_ENDPOINT_URL_STS", &url),
    ];
    let (found, source) = find(&home.settings(&identity)).unwrap();
    assert_eq!(found.key_id, "web-");
    assert_eq!(source.kind, "web-identity");
    assert_eq!(source.role.as_deref(), Some(role));
    // In a profile, and as the source of another role.
    let config = format!(
        "[profile web]\nweb_identity_token_file = {file}\nrole_arn = {role}\n\
         [profile next]\nrole_arn = arn:aws:iam::1:role/next\nsource_profile = web\n"
    );
    home.write(".aws/config", &config);
    let settings =
        |profile| home.settings(&[("AWS_PROFILE", profile), ("AWS_ENDPOINT_URL_STS", &url)]);
    assert_eq!(
        find(&settings("web")).unwrap().1.role.as_deref(),
        Some(role)
    );
    assert_eq!(key(&settings("next")), "web--next");
    std::fs::remove_file(&file).unwrap();
    let error = failure(&settings("next"));
    assert_eq!(error.id(), "credentials");
}

/// The metadata service of a machine, or of a container.
fn metadata() -> Stub {
    Stub::start(|request| {
        let body = format!(
            r#"{{"AccessKeyId":"from-metadata","SecretAccessKey":"hush","Token":"t","Expiration":"{}"}}"#,
            after(3600)
        );
        match request.line.as_str() {
            "PUT /latest/api/token" => (200, "session".to_owned()),
            "GET /pod" if request.header("authorization") == "hush-token" => (200, body),
            _ if request.header("x-aws-ec2-metadata-token") != "session" => (401, String::new()),
            "GET /latest/meta-data/iam/security-credentials/" => (200, "my-role".to_owned()),
            "GET /latest/meta-data/iam/security-credentials/my-role" => (200, body),
            _ => (404, String::new()),
        }
    })
    .unwrap()
}

#[test]
fn machines_and_containers_give_credentials() {
    let server = metadata();
    let home = Home::new(
        "[profile machine]\nrole_arn = arn:aws:iam::1:role/a\ncredential_source = Ec2InstanceMetadata\n\
         [profile container]\nrole_arn = arn:aws:iam::1:role/b\ncredential_source = EcsContainer\n",
        "",
    );
    let url = server.url();
    let mut machine = home.settings(&[("AWS_METADATA_ENDPOINT", &url)]);
    machine.remove("AWS_EC2_METADATA_DISABLED");
    let (found, source) = find(&machine).unwrap();
    assert_eq!(found.key_id, "from-metadata");
    assert_eq!(source.to_string(), "the metadata service of the machine");
    home.write("token", "hush-token");
    let (pod, file) = (format!("{url}/pod"), home.path("token"));
    let container = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", pod.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file),
    ];
    let (found, source) = find(&home.settings(&container)).unwrap();
    assert_eq!(
        (found.key_id.as_str(), source.kind),
        ("from-metadata", "container")
    );
    let error = failure(&home.settings(&container[..1]));
    assert!(error.hint().unwrap().contains("TOKEN_FILE"), "{error}");

    // As the source of a role.
    let sts = tokens(3600);
    let sts_url = sts.url();
    let with = |base: &BTreeMap<String, String>, profile: &str| {
        let mut all = base.clone();
        all.insert("AWS_PROFILE".to_owned(), profile.to_owned());
        all.insert("AWS_ENDPOINT_URL_STS".to_owned(), sts_url.clone());
        all
    };
    assert_eq!(key(&with(&machine, "machine")), "from-metadata-a");
    let container = home.settings(&container);
    assert_eq!(key(&with(&container, "container")), "from-metadata-b");
    let error = failure(&with(&home.settings(&[]), "container"));
    assert!(error.to_string().contains("EcsContainer"), "{error}");
}

#[test]
fn a_machine_without_metadata_is_quick_to_say_so() {
    // Nothing answers here, like outside of Amazon.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    for endpoint in ["http://127.0.0.1:9", silent.as_str()] {
        let home = Home::new("", "");
        let mut settings = home.settings(&[("AWS_METADATA_ENDPOINT", endpoint)]);
        settings.remove("AWS_EC2_METADATA_DISABLED");
        let began = Instant::now();
        let error = failure(&settings);
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(
            error.to_string(),
            "no credentials were found: the metadata service of the machine gave none"
        );
        assert!(error.hint().unwrap().contains("AWS_PROFILE"));
    }
}

#[test]
fn services_that_fail_are_named() {
    let config = "[default]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = other\n";
    let home = Home::new(
        config,
        &KEYS
            .replace("[default]", "[unused]")
            .replace("two", "denied"),
    );
    let server = tokens(3600);
    let settings = |url: &str| home.settings(&[("AWS_ENDPOINT_URL_STS", url)]);
    let error = failure(&settings(&server.url()));
    assert_eq!(
        error.to_string(),
        "no credentials were found: the profile \"default\" may not assume the role arn:aws:iam::1:role/r (403, AccessDenied)"
    );
    assert_eq!(server.requests().len(), 1);
    let odd = Stub::start(|_| (200, "<html>hush</html>".to_owned())).unwrap();
    let error = failure(&settings(&odd.url()));
    assert!(
        error
            .to_string()
            .contains("got no credentials for the role"),
        "{error}"
    );
    let busy = Stub::start(|_| (503, "hush".to_owned())).unwrap();
    let error = failure(&settings(&busy.url()));
    assert!(error.to_string().ends_with("(503)"), "{error}");
    assert_eq!(busy.requests().len(), 3);
    let error = failure(&settings("http://127.0.0.1:9"));
    assert!(
        error
            .to_string()
            .contains("cannot reach the security token service at 127.0.0.1:9"),
        "{error}"
    );
    let error = failure(&settings("http://sts.lan"));
    assert!(
        error.to_string().contains("its connections would be open"),
        "{error}"
    );
}

#[test]
fn profiles_that_cannot_be_used_say_why() {
    let config = "[default]\nregion = r\n\
        [profile a]\nrole_arn = r\nsource_profile = b\n\
        [profile b]\nrole_arn = r\nsource_profile = a\n\
        [profile self]\nrole_arn = r\nsource_profile = self\n\
        [profile nowhere]\nrole_arn = r\nsource_profile = missing\n\
        [profile empty]\nrole_arn = r\nsource_profile = default\n\
        [profile none]\nrole_arn = r\n\
        [profile both]\nrole_arn = r\nsource_profile = a\ncredential_source = EcsContainer\n\
        [profile odd]\nrole_arn = r\ncredential_source = hush\n\
        [profile environment]\nrole_arn = r\ncredential_source = Environment\n\
        [profile mfa]\nrole_arn = r\nsource_profile = a\nmfa_serial = hush\n\
        [profile half]\naws_access_key_id = hush\n\
        [profile broken]\naws_access_key_id = hu sh\naws_secret_access_key = hush\n\
        [profile sso]\nsso_session = missing\nsso_account_id = 1\nsso_role_name = r\n\
        [profile short]\nsso_start_url = https://x\nsso_account_id = 1\nsso_role_name = r\n\
        [profile quote]\ncredential_process = \"hush\n\
        [profile region]\nregion = hush/\n\
        [profile new]\nlogin_session = hush\n";
    let home = Home::new(config, "");
    let without = |profile: &str, field: &str| format!("the profile {profile:?} has no {field}");
    let value = |profile: &str, field: &str| {
        format!("{field} of the profile {profile:?} cannot have this value")
    };
    let login = |profile: &str, by: &str| {
        format!("the profile {profile:?} logs in by {by}, which is not supported")
    };
    for (profile, text) in [
        (
            "a",
            "source_profile leads back to the profile \"a\"".to_owned(),
        ),
        (
            "self",
            "source_profile leads back to the profile \"self\"".to_owned(),
        ),
        ("empty", without("default", "credentials")),
        ("none", without("none", "source_profile")),
        ("both", value("both", "credential_source")),
        ("odd", value("odd", "credential_source")),
        (
            "environment",
            login("environment", "credential_source = Environment"),
        ),
        ("mfa", login("mfa", "mfa_serial")),
        ("half", without("half", "aws_secret_access_key")),
        ("broken", value("broken", "aws_access_key_id")),
        ("sso", value("sso", "sso_session")),
        ("short", without("short", "sso_region")),
        ("quote", value("quote", "credential_process")),
        ("region", value("region", "region")),
        ("new", login("new", "login_session")),
    ] {
        let error = failure(&home.settings(&[("AWS_PROFILE", profile)]));
        assert_eq!(error.to_string(), text);
        assert_eq!(
            (error.id(), error.kind()),
            ("url-profile", ErrorKind::InvalidInput)
        );
        assert_eq!(
            error.object().as_deref(),
            Some("~/.aws/config"),
            "{profile}"
        );
    }
    for profile in ["absent", "nowhere"] {
        let error = failure(&home.settings(&[("AWS_PROFILE", profile)]));
        assert_eq!(error.id(), "url-profile");
        assert_eq!(
            error.object().as_deref(),
            Some("~/.aws/config, ~/.aws/credentials")
        );
        let text = error.to_string();
        assert!(text.contains("but \"a\", \"b\", \"both\""), "{text}");
        assert!(error.hint().unwrap().contains("AWS_PROFILE"));
    }
}

#[test]
fn files_that_cannot_be_parsed_are_named_with_the_line() {
    let home = Home::new("[default]\nregion = r\n\nhush\n", "");
    let error = failure(&home.settings(&[]));
    assert_eq!(error.object().as_deref(), Some("~/.aws/config"));
    assert!(error.to_string().starts_with("line 4: expected"), "{error}");
    home.write(".aws/config", "");
    home.write(".aws/credentials", "[a]\nk = hush\nk = hush\n");
    let error = failure(&home.settings(&[]));
    assert_eq!(error.object().as_deref(), Some("~/.aws/credentials"));
    assert!(error.to_string().starts_with("line 3: expected"), "{error}");
    // With complete settings, the files are not read.
    let complete = [
        ("AWS_ACCESS_KEY_ID", "env"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
        ("AWS_REGION", "r"),
        ("AWS_ENDPOINT_URL", "https://e"),
    ];
    assert_eq!(key(&home.settings(&complete)), "env");
    assert!(Path::new(&home.path(".aws/credentials")).exists());
}

fn azure() -> RemoteLocation {
    match Location::parse("az://bucket/data").unwrap() {
        Location::Remote(location) => location,
        Location::Local(path) => panic!("{}", path.display()),
    }
}

#[test]
fn azure_gives_tokens_to_applications_and_machines() {
    let server = Stub::start(|request| {
        let by = if request.body.contains("client_assertion=hush-jwt") {
            "workload"
        } else if request.body.contains("client_secret=hush-secret") {
            "application"
        } else if request.line.contains("/msi") && request.header("metadata") == "true" {
            "machine"
        } else {
            return (401, r#"{"error":"hush"}"#.to_owned());
        };
        let body = format!(
            r#"{{"access_token":"{by}","expires_in":3600,"expires_on":"{}","token_type":"Bearer","resource":"r"}}"#,
            after_1970(3600)
        );
        (200, body)
    })
    .unwrap();
    let home = Home::new("", "");
    home.write("jwt", "hush-jwt");
    let (url, jwt) = (server.url(), home.path("jwt"));
    let msi = format!("{url}/msi");
    let base = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_AUTHORITY_HOST", url.as_str()),
        ("AZURE_MSI_ENDPOINT", &msi),
    ];
    let application = [("AZURE_CLIENT_ID", "app"), ("AZURE_TENANT_ID", "tenant")];
    let find = |more: &[(&str, &str)]| {
        let settings = home.settings(&[&base[..], more].concat());
        let access = access(&azure(), &settings).unwrap();
        let cache = CredentialCache::default();
        let found = block(async { cache.credential(&access).await.map(|_| ()) });
        let source = block(cache.source(&access));
        (found, source.map(|source| source.to_string()))
    };
    for (more, name) in [
        (
            &[
                application[0],
                application[1],
                ("AZURE_FEDERATED_TOKEN_FILE", jwt.as_str()),
            ][..],
            format!("the workload identity in {jwt} (client app)"),
        ),
        (
            &[
                application[0],
                application[1],
                ("AZURE_CLIENT_SECRET", "hush-secret"),
            ],
            "AZURE_CLIENT_SECRET in the environment (client app)".to_owned(),
        ),
        (&[], "the managed identity of the machine".to_owned()),
        (
            &[("AZURE_STORAGE_TOKEN", "hush")],
            "AZURE_STORAGE_TOKEN in the environment".to_owned(),
        ),
        (
            &[("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=hush")],
            "AZURE_STORAGE_SAS_TOKEN in the environment".to_owned(),
        ),
        (
            &[("AZURE_STORAGE_ACCOUNT_KEY", "aHVzaA==")],
            "AZURE_STORAGE_ACCOUNT_KEY in the environment".to_owned(),
        ),
    ] {
        let (found, source) = find(more);
        found.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(source.unwrap(), name);
    }
    let wrong = [
        application[0],
        application[1],
        ("AZURE_CLIENT_SECRET", "hush-wrong"),
    ];
    let error = find(&wrong).0.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no credentials were found: the application gave none"
    );
    assert!(!format!("{error:?} {:?}", error.hint()).contains("hush"));
}

fn after_1970(seconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_secs() + seconds
}

#[test]
fn other_stores_say_where_their_credentials_come_from() {
    let home = Home::new("", "");
    let of = |url: &str, settings: &[(&str, &str)]| {
        let Location::Remote(location) = Location::parse(url).unwrap() else {
            panic!("{url}");
        };
        access(&location, &home.settings(settings))
            .unwrap()
            .source
            .to_string()
    };
    let account = ("AZURE_STORAGE_ACCOUNT_NAME", "a");
    let text = "AccountName=a;AccountKey=aHVzaA==;EndpointSuffix=core.windows.net";
    for (url, settings, expected) in [
        (
            "gs://b",
            &[("GOOGLE_APPLICATION_CREDENTIALS", "/x.json")][..],
            "/x.json (GOOGLE_APPLICATION_CREDENTIALS)",
        ),
        (
            "gs://b",
            &[("GOOGLE_SERVICE_ACCOUNT_KEY", "hush")],
            "GOOGLE_SERVICE_ACCOUNT_KEY in the environment",
        ),
        (
            "gs://b",
            &[("GCS_KEY", "hush"), ("GCS_SECRET", "hush")],
            "GCS_KEY in the environment",
        ),
        (
            "gs://b",
            &[("GOOGLE_OAUTH_ACCESS_TOKEN", "hush")],
            "GOOGLE_OAUTH_ACCESS_TOKEN in the environment",
        ),
        (
            "gs://b",
            &[("GOOGLE_SKIP_SIGNATURE", "true")],
            "none, requests are not signed (GOOGLE_SKIP_SIGNATURE is set)",
        ),
        ("gs://b", &[], "the metadata service of the machine"),
        (
            "az://c",
            &[account, ("AZURE_USE_AZURE_CLI", "true")],
            "the Azure CLI (az account get-access-token)",
        ),
        (
            "az://c",
            &[("AZURE_STORAGE_CONNECTION_STRING", text)],
            "AZURE_STORAGE_CONNECTION_STRING in the environment",
        ),
        (
            "dbfs:/Volumes/c/s/v",
            &[("DATABRICKS_HOST", "h"), ("DATABRICKS_TOKEN", "hush")],
            "DATABRICKS_TOKEN in the environment",
        ),
        ("https://host/x", &[], "none, requests are not signed"),
    ] {
        assert_eq!(
            of(url, settings),
            expected,
            "{url} {:?}",
            settings.first().map(|(name, _)| name)
        );
    }
    home.write(".config/gcloud/application_default_credentials.json", "{}");
    assert_eq!(
        of("gs://b", &[]),
        "~/.config/gcloud/application_default_credentials.json (gcloud auth application-default login)"
    );
}
