//! Converts locations and settings to addresses and sources of credentials.

pub(super) mod azure;
pub(super) mod databricks;
pub(super) mod google;
mod hub;
pub(super) mod s3;
mod web;

use std::collections::BTreeMap;

use super::settings::Settings;
use super::signing::Access;
use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::location::RemoteLocation;

/// Returns the address of a bucket and the source of its credentials.
pub(super) fn access(
    location: &RemoteLocation,
    settings: &BTreeMap<String, String>,
) -> Result<Access, StorageError> {
    let known = Settings(settings);
    match location.kind() {
        StoreKind::S3 => s3::access(location, &known),
        StoreKind::Google | StoreKind::GoogleXml => google::access(location, &known),
        StoreKind::Azure => azure::access(location, &known),
        StoreKind::Volumes => databricks::access(location, &known),
        StoreKind::Http => web::access(location, &known),
        StoreKind::Hub | StoreKind::HubBucket => hub::access(location, &known),
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::super::settings::{SETTINGS, option, settings_of, with_query};
    use super::super::signing::{Credential, Signing};
    use super::*;
    use crate::tests::remote_location;

    fn of(url: &str, settings: &[(&str, &str)]) -> Result<Access, StorageError> {
        let vars = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        super::access(&remote_location(url), &settings_of(vars))
    }

    fn access(bucket: &str, settings: &[(&str, &str)]) -> Result<Access, StorageError> {
        of(&format!("s3://{bucket}"), settings)
    }

    fn url(bucket: &str, settings: &[(&str, &str)]) -> String {
        access(bucket, settings).unwrap().url("a/b")
    }

    #[test]
    fn s3_urls_depend_on_region_and_endpoint() {
        for (bucket, settings, expected) in [
            ("b-1", &[][..], "https://b-1.s3.us-east-1.amazonaws.com/a/b"),
            (
                "b.c",
                &[("AWS_REGION", "eu-west-1"), ("AWS_DEFAULT_REGION", "x")],
                "https://s3.eu-west-1.amazonaws.com/b.c/a/b",
            ),
            (
                "b",
                &[("AWS_DEFAULT_REGION", "cn-north-1")],
                "https://b.s3.cn-north-1.amazonaws.com.cn/a/b",
            ),
            (
                "b",
                &[
                    ("AWS_ENDPOINT_URL", "https://general"),
                    ("AWS_ENDPOINT_URL_S3", "https://minio.lan:9000/"),
                ],
                "https://minio.lan:9000/b/a/b",
            ),
            (
                "b",
                &[
                    ("AWS_ENDPOINT_URL_S3", "https://two"),
                    ("S3_ENDPOINT_URL", "http://127.0.0.1:9000/s3"),
                ],
                "http://127.0.0.1:9000/s3/b/a/b",
            ),
            (
                "b",
                &[("AWS_ENDPOINT_URL", ""), ("AWS_ENDPOINT", "http://[::1]:1")],
                "http://[::1]:1/b/a/b",
            ),
            (
                "b",
                &[
                    ("AWS_ENDPOINT_URL", "http://store.lan"),
                    ("AWS_ALLOW_HTTP", "true"),
                ],
                "http://store.lan/b/a/b",
            ),
            (
                "b",
                &[
                    ("AWS_ENDPOINT_URL", "https://b.store.lan"),
                    ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "1"),
                ],
                "https://b.store.lan/a/b",
            ),
        ] {
            assert_eq!(url(bucket, settings), expected, "{settings:?}");
        }
    }

    #[test]
    fn invalid_endpoints_and_settings_are_rejected() {
        for (name, value, id) in [
            ("AWS_ENDPOINT_URL", "http://store.lan", "url-plain"),
            ("AWS_ENDPOINT_URL", "http://10.0.0.1", "url-plain"),
            ("AWS_ENDPOINT_URL", "http://localhost.evil.com", "url-plain"),
            ("AWS_ENDPOINT_URL", "ftp://store", "url-scheme"),
            ("AWS_ENDPOINT_URL", "store:9000", "url-scheme"),
            ("AWS_ENDPOINT_URL", "store", "url-syntax"),
            ("AWS_ENDPOINT_URL", "https://u:hush@store", "url-user"),
            ("AWS_ENDPOINT_URL", "https://store?hush", "url-query"),
            ("AWS_ENDPOINT_URL", "https://st\u{1b}ore", "url-control"),
            ("AWS_REGION", "eu.evil.com/", "url-setting"),
            ("AWS_ALLOW_HTTP", "hush", "url-setting"),
            ("AWS_SKIP_SIGNATURE", "maybe", "url-setting"),
            ("AWS_ACCESS_KEY_ID", "hush", "url-setting"),
            ("AWS_SECRET_ACCESS_KEY", "hush", "url-setting"),
            ("S3_CANNED_ACL", "hush\r\nx: y", "url-setting"),
        ] {
            let Err(error) = access("b", &[(name, value)]) else {
                panic!("{name}={value}");
            };
            assert_eq!(error.id(), id, "{name}={value}");
            let all = format!("{error:?} {error} {:?}", error.object());
            assert!(!all.contains("hush"), "{all}");
        }
        let keys = [
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_SESSION_TOKEN", "hu sh"),
        ];
        assert_eq!(access("b", &keys).err().unwrap().id(), "url-setting");
    }

    #[test]
    fn credentials_in_settings_take_precedence() {
        let kind = |settings: &[(&str, &str)]| match access("b", settings).unwrap().signing {
            Signing::Fixed(Credential::Anonymous) => "anonymous",
            Signing::Fixed(Credential::Aws(keys)) if keys.token.is_none() => "fixed",
            Signing::Fixed(Credential::Aws(_)) => "session",
            Signing::AwsProvider(_) => "provider",
            _ => "other",
        };
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        assert_eq!(kind(&[]), "provider");
        assert_eq!(kind(&keys), "fixed");
        assert_eq!(
            kind(&[keys[0], keys[1], ("AWS_SESSION_TOKEN", "c")]),
            "session"
        );
        assert_eq!(
            kind(&[keys[0], keys[1], ("AWS_SKIP_SIGNATURE", "True")]),
            "anonymous"
        );
    }

    #[test]
    fn unknown_settings_are_ignored_and_keys_encoded_once() {
        let vars = [
            ("HOME", "/root"),
            ("PATH", "/bin"),
            ("AWS_REGION", "r"),
            ("AWS_VAULT", "p"),
        ];
        let picked = settings_of(vars.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        assert_eq!(
            picked.into_keys().collect::<Vec<_>>(),
            ["AWS_REGION", "HOME"]
        );
        assert_eq!(option("HOME=/root").unwrap_err().id(), "url-setting");
        let access = access("b", &[("AWS_ENDPOINT", "https://s")]).unwrap();
        assert_eq!(
            access.url("a b/ü%20+~x"),
            "https://s/b/a%20b/%C3%BC%2520%2B~x"
        );
        assert_eq!(
            with_query(
                access.url("a"),
                &[("prefix", "b/c d&".to_owned()), ("uploads", String::new())]
            ),
            "https://s/b/a?prefix=b%2Fc%20d%26&uploads="
        );
        assert!(SETTINGS.is_sorted());
    }

    #[test]
    fn endpoint_url_of_each_store_is_built_from_settings() {
        let lake = "abfss://c@acc.dfs.core.windows.net/x";
        let connection = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn";
        let emulator = ("STORAGE_EMULATOR_HOST", "localhost:4443");
        let coreweave = ("AWS_ENDPOINT_URL", "https://cwobject.com");
        for (url, settings, expected) in [
            (
                "gs://b/x",
                &[][..],
                "https://storage.googleapis.com/storage/v1/b/b/o/k",
            ),
            (
                "gs://b/x",
                &[emulator],
                "http://localhost:4443/storage/v1/b/b/o/k",
            ),
            (
                "gs://b/x",
                &[("GOOGLE_ENDPOINT_URL", "https://one"), emulator],
                "https://one/storage/v1/b/b/o/k",
            ),
            // Only the XML API knows HMAC keys.
            (
                "gs://b/x",
                &[("GCS_KEY", "k"), ("GCS_SECRET", "s")],
                "https://storage.googleapis.com/b/k",
            ),
            (
                "gs://b/x",
                &[("GCS_KEY", "k"), ("GCS_SECRET", "s"), emulator],
                "http://localhost:4443/storage/v1/b/b/o/k",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_ACCOUNT_NAME", "acc")],
                "https://acc.blob.core.windows.net/c/k",
            ),
            (lake, &[], "https://acc.blob.core.windows.net/c/k"),
            // The URL takes precedence.
            (
                lake,
                &[("AZURE_STORAGE_ENDPOINT", "https://other")],
                "https://acc.blob.core.windows.net/c/k",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_USE_EMULATOR", "true")],
                "http://127.0.0.1:10000/devstoreaccount1/c/k",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_CONNECTION_STRING", connection)],
                "https://acc.blob.core.chinacloudapi.cn/c/k",
            ),
            ("https://host:8443/x", &[], "https://host:8443/k"),
            (
                "s3://b/x",
                &[("AWS_ENDPOINT_URL", "https://oss-cn-hangzhou.aliyuncs.com")],
                "https://b.oss-cn-hangzhou.aliyuncs.com/k",
            ),
            ("s3://b/x", &[coreweave], "https://b.cwobject.com/k"),
            (
                "s3://b/x",
                &[coreweave, ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false")],
                "https://cwobject.com/b/k",
            ),
        ] {
            let access = of(url, settings).unwrap();
            assert_eq!(access.url("k"), expected, "{url} {settings:?}");
        }
        let access = of("gs://b/x", &[emulator]).unwrap();
        let base = "http://localhost:4443/storage/v1/b/b/o";
        assert_eq!(access.url("a/b c"), format!("{base}/a%2Fb%20c"));
        assert_eq!(access.url(""), base);
        assert_eq!(access.folders, base.replace("/storage", "/upload/storage"));
        let volume = [("DATABRICKS_HOST", "adb.net"), ("DATABRICKS_TOKEN", "t")];
        let access = of("dbfs:/Volumes/c/s/v w/x", &volume).unwrap();
        let root = "https://adb.net/api/2.0/fs";
        assert_eq!(access.url("k"), format!("{root}/files/Volumes/c/s/v%20w/k"));
        let folder = format!("{root}/directories/Volumes/c/s/v%20w/k");
        assert_eq!(access.folder_url("k"), folder);
    }

    #[test]
    fn setting_errors_do_not_contain_the_values() {
        let plain = ("DATABRICKS_HOST", "http://adb.net");
        for (url, settings, id) in [
            ("az://c/x", &[][..], "url-setting"),
            (
                "az://c/x",
                &[("AZURE_STORAGE_ACCOUNT_NAME", "hush/")],
                "url-setting",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_CONNECTION_STRING", "hush")],
                "url-setting",
            ),
            (
                "az://c/x",
                &[("AZURE_STORAGE_ENDPOINT", "http://other")],
                "url-plain",
            ),
            ("gs://b/x", &[("GCS_KEY", "hush")], "url-setting"),
            ("gs://b/x", &[("GCS_SECRET", "hush")], "url-setting"),
            (
                "gs://b/x",
                &[("GOOGLE_OAUTH_ACCESS_TOKEN", "hush\u{7f}x")],
                "url-setting",
            ),
            (
                "gs://b/x",
                &[("STORAGE_EMULATOR_HOST", "other:1")],
                "url-plain",
            ),
            ("dbfs:/Volumes/c/s/v", &[], "url-setting"),
            (
                "dbfs:/Volumes/c/s/v",
                &[("DATABRICKS_HOST", "a")],
                "url-setting",
            ),
            ("dbfs:/Volumes/c/s/v", &[plain], "url-plain"),
            ("http://other/x", &[], "url-plain"),
            ("http://other/x", &[("ALLOW_HTTP", "true")], "ok"),
        ] {
            match of(url, settings) {
                Ok(_) => assert_eq!(id, "ok", "{url} {settings:?}"),
                Err(error) => {
                    assert_eq!(error.id(), id, "{url} {settings:?}");
                    let all = format!("{error:?} {error} {:?} {:?}", error.object(), error.hint());
                    assert!(!all.contains("hush"), "{all}");
                }
            }
        }
        for text in ["AWS_SECRET_KEY=hush", "hush", "=hush", ""] {
            let error = option(text).unwrap_err();
            assert_eq!(error.id(), "url-setting");
            let all = format!("{error:?} {error} {:?}", error.object());
            assert!(!all.contains("hush"), "{all}");
        }
    }
}
