//! Tests of the files of Amazon's tools: profiles and keys.

use super::*;

#[test]
fn keys_are_read_from_config_and_credentials_files() {
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
fn rotated_keys_in_files_are_used_after_renewal() {
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
fn unusable_profiles_are_errors_with_specific_messages() {
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
fn config_parse_error_names_file_and_line() {
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
