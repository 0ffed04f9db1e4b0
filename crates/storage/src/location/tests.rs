use shardmill_core::Diagnostic as _;

use super::*;

fn shown(text: &str) -> String {
    Location::parse(text).unwrap().to_string()
}

#[test]
fn buckets_prefixes_and_paths_are_parsed() {
    for (text, bucket, prefix) in [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("S3://my.bucket-1/a", "my.bucket-1", "a"),
        ("s3://b/a/b%20c+d e/", "b", "a/b%20c+d e"),
        ("s3://Old_Bucket/x@y", "Old_Bucket", "x@y"),
    ] {
        let Location::Remote(remote) = Location::parse(text).unwrap() else {
            panic!("{text}");
        };
        assert_eq!((remote.bucket(), remote.prefix()), (bucket, prefix));
    }
    for (text, path) in [
        ("data/train", "data/train"),
        ("/data", "/data"),
        ("./s3", "./s3"),
        ("../up", "../up"),
        ("a:b/c", "a:b/c"),
        ("file:///data/a%20b", "/data/a b"),
        ("file://localhost/data", "/data"),
    ] {
        let location = Location::parse(text).unwrap();
        assert_eq!(location.as_local(), Some(Path::new(path)), "{text}");
    }
    assert_eq!(shown("s3://b/a/"), "s3://b/a");
    assert_eq!(shown("s3://b/"), "s3://b");
}

#[test]
fn urls_of_every_store_are_parsed_and_displayed() {
    let never = |_: &Path| false;
    for (text, kind, bucket, prefix, host, shown) in [
        ("gs://b/a", StoreKind::Google, "b", "a", None, "gs://b/a"),
        ("GCS://b/", StoreKind::Google, "b", "", None, "gs://b"),
        (
            "az://c/a/b",
            StoreKind::Azure,
            "c",
            "a/b",
            None,
            "az://c/a/b",
        ),
        (
            "abfss://c/a",
            StoreKind::Azure,
            "c",
            "a",
            None,
            "abfss://c/a",
        ),
        (
            "abfss://c@Acc.dfs.core.windows.net/a/",
            StoreKind::Azure,
            "c",
            "a",
            Some("https://acc.blob.core.windows.net"),
            "abfss://c@acc.dfs.core.windows.net/a",
        ),
        (
            "https://acc.blob.core.windows.net/c/a%20b",
            StoreKind::Azure,
            "c",
            "a b",
            Some("https://acc.blob.core.windows.net"),
            "https://acc.blob.core.windows.net/c/a b",
        ),
        (
            "https://host:8443/a/b%20c",
            StoreKind::Http,
            "host",
            "a/b c",
            Some("https://host:8443"),
            "https://host:8443/a/b c",
        ),
        (
            "http://127.0.0.1:80",
            StoreKind::Http,
            "127.0.0.1",
            "",
            Some("http://127.0.0.1"),
            "http://127.0.0.1",
        ),
        (
            "dbfs:/Volumes/c/s/v/a/b/",
            StoreKind::Volumes,
            "c/s/v",
            "a/b",
            None,
            "dbfs:/Volumes/c/s/v/a/b",
        ),
        (
            "/Volumes/c/s/v",
            StoreKind::Volumes,
            "c/s/v",
            "",
            None,
            "dbfs:/Volumes/c/s/v",
        ),
        (
            "dbfs:///Volumes/c/s/v/x",
            StoreKind::Volumes,
            "c/s/v",
            "x",
            None,
            "dbfs:/Volumes/c/s/v/x",
        ),
        (
            "hf://datasets/_org/na.me/a/b/",
            StoreKind::Hub,
            "datasets/_org/na.me",
            "a/b",
            None,
            "hf://datasets/_org/na.me/a/b",
        ),
        (
            "hf://datasets/org/name@v1.0/a@b",
            StoreKind::Hub,
            "datasets/org/name@v1.0",
            "a@b",
            None,
            "hf://datasets/org/name@v1.0/a@b",
        ),
        (
            "hf://datasets/org/name@refs/convert/parquet/train",
            StoreKind::Hub,
            "datasets/org/name@refs/convert/parquet",
            "train",
            None,
            "hf://datasets/org/name@refs/convert/parquet/train",
        ),
        (
            "hf://buckets/_org/na.me/a@b/c/",
            StoreKind::HubBucket,
            "buckets/_org/na.me",
            "a@b/c",
            None,
            "hf://buckets/_org/na.me/a@b/c",
        ),
    ] {
        let Location::Remote(found) = Location::parse_where(text, &never).unwrap() else {
            panic!("{text}");
        };
        let all = (found.kind(), found.bucket(), found.prefix(), found.host());
        assert_eq!(all, (kind, bucket, prefix, host), "{text}");
        assert_eq!(found.to_string(), shown, "{text}");
        // The displayed text parses to the same location.
        if !shown.contains(' ') {
            let again = Location::parse_where(shown, &never).unwrap();
            assert_eq!(again, Location::Remote(found), "{text}");
        }
    }
}

#[test]
fn mounted_volumes_are_parsed_as_local_paths() {
    let mounted = |path: &Path| path == Path::new("/Volumes/main");
    let parse = |text: &str| Location::parse_where(text, &mounted).unwrap();
    for text in ["dbfs:/Volumes/main/s/v/a", "/Volumes/main/s/v/a"] {
        let path = parse(text);
        assert_eq!(path.as_local(), Some(Path::new("/Volumes/main/s/v/a")));
    }
    assert!(parse("/Volumes/other/s/v/a").as_local().is_none());
    // An external volume on macOS.
    assert!(parse("/Volumes/Disk/data").as_local().is_some());
}

#[test]
fn join_inserts_exactly_one_slash() {
    let join = |text: &str, name: &str| Location::parse(text).unwrap().join(name).to_string();
    assert_eq!(join("s3://b", "train"), "s3://b/train");
    assert_eq!(join("s3://b/a/", "x/y"), "s3://b/a/x/y");
    assert_eq!(join("s3://b/a", ""), "s3://b/a");
    assert_eq!(join("/data", "train"), "/data/train");
    assert_eq!(join("/data", "/train"), "/data/train");
    assert_eq!(join("/data", ""), "/data");
}

#[test]
fn invalid_locations_are_errors_with_specific_ids() {
    for (text, id) in [
        ("", "url-empty"),
        ("ftp://host/a", "url-scheme"),
        ("s3a://bucket", "url-scheme"),
        ("oci://bucket@namespace/a", "url-scheme"),
        ("azure://container/a", "url-scheme"),
        ("dbfs:/mnt/a", "url-scheme"),
        ("hf://org/name", "url-scheme"),
        ("hf://buckets/name", "url-bucket"),
        ("hf://buckets/org/", "url-bucket"),
        ("hf://buckets/org/-name", "url-bucket"),
        ("hf://buckets/org/name@main", "url-revision"),
        ("hf://buckets/org/name@", "url-revision"),
        ("hf://buckets/org/name/../x", "url-path"),
        ("hf://buckets/org/name//x", "url-path"),
        ("hf://buckets/org/name?x", "url-query"),
        ("hf://models/org/name", "url-scheme"),
        ("hf:/datasets/org/name", "url-syntax"),
        ("hf://datasets/name", "url-bucket"),
        ("hf://datasets/org/", "url-bucket"),
        ("hf://datasets/org/name@", "url-bucket"),
        ("hf://datasets/org/name@refs/pr", "url-bucket"),
        ("hf://datasets/org/../x", "url-bucket"),
        ("hf://datasets/org/name/../x", "url-path"),
        ("hf://datasets/org/name?x", "url-query"),
        ("dbfs:/Volumes/catalog", "url-bucket"),
        ("dbfs:/Volumes/c//v/a", "url-path"),
        ("dbfs:/Volumes/c/s/v/../a", "url-path"),
        ("/Volumes/c/s/v/a\nb", "url-control"),
        ("gs://key:secret@bucket/a", "url-user"),
        ("gs://", "url-bucket"),
        ("az://account.blob.core.windows.net:80/a", "url-bucket"),
        ("abfss://c@account.example.com/a", "url-host"),
        (
            "abfss://c:secret@account.dfs.core.windows.net/a",
            "url-user",
        ),
        ("abfss://@account.dfs.core.windows.net/a", "url-bucket"),
        ("https://account.blob.core.windows.net/", "url-bucket"),
        (
            "https://account.blob.core.windows.net/c?sig=secret",
            "url-query",
        ),
        ("https://user:secret@host/a", "url-user"),
        ("https://host/a?token=secret", "url-query"),
        ("https://host/a%00b", "url-control"),
        ("https://host/a/%2e%2e/b", "url-path"),
        ("https://host/a%ff", "url-syntax"),
        ("https://", "url-syntax"),
        ("az:/container", "url-syntax"),
        ("s3:/bucket", "url-syntax"),
        ("gs:/bucket", "url-syntax"),
        ("s3://", "url-bucket"),
        ("s3:///key", "url-bucket"),
        ("s3://.a/key", "url-bucket"),
        ("s3://a..b/key", "url-bucket"),
        ("s3://host:9000/key", "url-bucket"),
        ("s3://[::1]/key", "url-bucket"),
        ("s3://bücket/key", "url-bucket"),
        ("s3://bucket%2e/key", "url-bucket"),
        ("s3://key:secret@bucket/a", "url-user"),
        ("s3://key@bucket/a", "url-user"),
        ("s3://key:sec/ret@bucket/a", "url-user"),
        ("s3://key:sec?ret@bucket/a", "url-user"),
        ("s3://bucket/a?versionId=1", "url-query"),
        ("s3://bucket?x=1", "url-query"),
        ("s3://bucket/a#b", "url-query"),
        ("s3://bucket/a\nb", "url-control"),
        ("s3://bucket/a\u{7f}", "url-control"),
        ("s3://bucket/a\u{85}", "url-control"),
        ("a\0b", "url-control"),
        ("s3://bucket/a/../b", "url-path"),
        ("s3://bucket/./b", "url-path"),
        ("s3://bucket//b", "url-path"),
        ("s3://bucket//", "url-path"),
        ("s3://bucket/a//", "url-path"),
        ("s3://bucket/..", "url-path"),
        ("file://other/data", "url-host"),
        ("file:///a/../b", "url-path"),
        ("file:///a/%2e%2E/b", "url-path"),
        ("file:///a?b", "url-query"),
        ("file:///a%00b", "url-control"),
    ] {
        let error = Location::parse(text).unwrap_err();
        assert_eq!(error.id(), id, "{text}");
        assert_eq!(error.kind(), shardmill_core::ErrorKind::InvalidInput);
    }
    let long = format!("s3://b/{}", "k/".repeat(600));
    assert_eq!(Location::parse(&long).unwrap_err().id(), "url-long");
}

#[test]
fn hub_bucket_revision_is_an_error_naming_the_bucket() {
    let error = Location::parse("hf://buckets/org/name@v1.0/train").unwrap_err();
    assert_eq!(error.id(), "url-revision");
    let message = "the bucket org/name has no revisions, but the URL names one after @";
    assert_eq!(error.to_string(), message);
    let hint = error.hint().unwrap();
    assert!(hint.contains("hf://buckets/org/name/PREFIX"), "{hint}");
}

#[test]
fn url_errors_do_not_contain_secrets() {
    for text in [
        "s3://AKIA:hush@bucket/a",
        "s3://hush@bucket/a?x",
        "s3://AKIA:hu/sh@bucket/a",
        "s3://AKIA:hush/x@bucket/a",
        "s3://AKIA:a?hush@bucket/a",
        "s3://AKIA:hush",
        "s3://bucket/a?token=hush",
        "s3://bucket/a#hush",
        "gs://hush@bucket",
        "https://user:hush@host/a?sig=hush",
        "file://u:hush@host/a",
    ] {
        let error = Location::parse(text).unwrap_err();
        let all = format!("{error:?} {error} {:?} {:?}", error.object(), error.hint());
        assert!(!all.contains("hush"), "{all}");
    }
}

#[test]
fn control_characters_are_escaped_in_errors_and_display() {
    let error = Location::parse("s3://bucket/a\u{1b}[2J").unwrap_err();
    assert!(!error.object().unwrap().contains('\u{1b}'));
    assert!(!shown("a\u{1b}b").contains('\u{1b}'));
}
