//! Tests of the credentials of other stores.

use super::*;

fn azure() -> RemoteLocation {
    remote_location("az://bucket/data")
}

#[test]
fn azure_tokens_are_requested_for_apps_and_managed_identity() {
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
fn credential_source_is_described_for_other_stores() {
    let home = Home::new("", "");
    let of = |url: &str, settings: &[(&str, &str)]| {
        access(&remote_location(url), &home.settings(settings))
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
        (
            "gs://b",
            &[
                ("GOOGLE_APPLICATION_CREDENTIALS", "/x.json"),
                ("GOOGLE_OAUTH_ACCESS_TOKEN", "hush"),
                ("STORAGE_EMULATOR_HOST", "localhost:1"),
            ],
            "none, requests are not signed (STORAGE_EMULATOR_HOST is set)",
        ),
        (
            "gs://b",
            &[
                ("GOOGLE_APPLICATION_CREDENTIALS", "/x.json"),
                ("GOOGLE_ENDPOINT_URL", "https://one"),
                ("STORAGE_EMULATOR_HOST", "localhost:1"),
            ],
            "/x.json (GOOGLE_APPLICATION_CREDENTIALS)",
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
