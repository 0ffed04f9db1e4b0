//! Tests of services and programs that give credentials: roles, single sign-on, containers and machines.

use super::*;

#[test]
fn chained_roles_are_assumed_in_order() {
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
fn concurrent_reads_share_one_credential_request() {
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
    let shown = format!("{remote:?} {options:?} {source:?}");
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
fn sso_login_provides_credentials() {
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
fn credential_process_provides_credentials() {
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
fn web_identity_token_assumes_role() {
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
fn instance_and_container_metadata_provide_credentials() {
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
fn missing_metadata_service_fails_quickly() {
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
fn failing_token_service_is_an_error_naming_it() {
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
