//! Sizes and listings.

use crate::RequestOptions;
use shardmill_testing::s3::Action;

use super::*;
use crate::error::StorageError;

const MAX_BYTES: u64 = Remote::MAX_LISTED;

/// Starts a server that answers every listing with this text.
fn answering(text: &str) -> S3Server {
    let server = server(Script::default());
    server.set(Settings {
        listing: Some(text.to_owned()),
        ..Settings::default()
    });
    server
}

fn names(remote: &Remote, prefix: &str) -> Vec<String> {
    let listed = remote.list(prefix, MAX_BYTES, &mut cancel).unwrap();
    listed.into_iter().map(|object| object.name).collect()
}

#[test]
fn size_sends_one_head_request() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    let size = |name: &str| remote.size(name, &mut cancel).unwrap();
    assert_eq!(size("small"), Some(SMALL as u64));
    assert_eq!(size("empty"), Some(0));
    assert_eq!(size("none"), None);
    assert!(remote.exists("large", &mut cancel).unwrap());
    assert!(!remote.exists("larg", &mut cancel).unwrap());
    assert_eq!(server.counts().heads, 5);
    assert_eq!(server.counts().bytes, 0);
    let error = remote.size("../small", &mut cancel).unwrap_err();
    assert_eq!(error.id(), "path-traversal");
}

#[test]
fn listing_merges_all_pages_and_has_a_limit() {
    let server = server(Script::default());
    for at in 0..25 {
        server
            .objects()
            .put(&format!("data/a&<b>/{at:02}"), vec![0; at]);
    }
    server.objects().put("database", Vec::new());
    server.set(Settings {
        page: Some(7),
        ..Settings::default()
    });
    let remote = alone(&quick(&server));
    let expected: Vec<_> = (0..25).map(|at| format!("a&<b>/{at:02}")).collect();
    assert_eq!(names(&remote, "a&"), expected);
    assert_eq!(server.counts().lists(), 4);
    assert_eq!(names(&remote, "a&<b>/0").len(), 10);
    let listed = remote.list("", MAX_BYTES, &mut cancel).unwrap();
    assert_eq!(listed.len(), 28);
    assert_eq!(
        (listed[24].name.as_str(), listed[24].bytes),
        ("a&<b>/24", 24)
    );
    assert_eq!(listed[25].name, "empty");
    assert_eq!(names(&remote, "none"), [""; 0]);
    let all = Remote::new(&remote_location("s3://bucket"), &quick(&server), true).unwrap();
    assert_eq!(names(&all, "database"), ["database"]);
    assert_eq!(names(&all, "").len(), 29);

    let error = remote.list("", 27, &mut cancel).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("limit-list", ErrorKind::Corrupt)
    );
    assert_eq!(remote.list("", 28, &mut cancel).unwrap().len(), 28);
}

#[test]
fn check_bucket_sends_one_request() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    remote.check_bucket(&mut cancel).unwrap();
    assert_eq!(server.counts().requests, 1);
    let other = remote_location("s3://other/data");
    let other = Remote::new(&other, &quick(&server), true).unwrap();
    let error = other.check_bucket(&mut cancel).unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "no such bucket (404, NoSuchBucket)");
    assert!(!other.exists("small", &mut cancel).unwrap());
}

#[test]
fn invalid_listing_response_is_an_error() {
    let entry =
        |key: &str, size: &str| format!("<Contents><Key>{key}</Key><Size>{size}</Size></Contents>");
    let page = |inner: &str| format!("<ListBucketResult>{inner}</ListBucketResult>");
    let more = |inner: &str, token: &str| {
        page(&format!(
            "{inner}<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        ))
    };
    for (text, what) in [
        (String::new(), "the XML is cut off"),
        ("{}".to_owned(), "text outside of the XML"),
        (
            "<html><body>Sign in</body></html>".to_owned(),
            "its root element is `html`, not `ListBucketResult`",
        ),
        (
            page("<Contents><Key>data/a</Key></Contents>"),
            "an object without a key or a size",
        ),
        (page(&entry("data/a", "-1")), "a size that is no number"),
        (page(&entry("data/a", "1e9")), "a size that is no number"),
        (page(&entry("other/a", "1")), "a key that was not asked for"),
        (
            page(&entry("database", "1")),
            "a key that was not asked for",
        ),
        (
            page("<IsTruncated>true</IsTruncated>"),
            "a listing continues, but does not say where",
        ),
        (
            more(&entry("data/a", "1"), "x"),
            "a listing that has no end",
        ),
        (more("", "x"), "a listing that has no end"),
        (
            format!(
                "<!DOCTYPE x [<!ENTITY a \"aaaa\">]>{}",
                page(&entry("&a;", "1"))
            ),
            "a declaration in the XML",
        ),
        (page(&entry("data/&a;", "1")), "an entity in the XML"),
        (
            "<a>".repeat(100_000),
            "the XML has too many levels or roots",
        ),
        (" ".repeat(17 << 20), "it is too long"),
    ] {
        let server = answering(&text);
        let error = alone(&quick(&server))
            .list("", MAX_BYTES, &mut cancel)
            .unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("storage-answer", ErrorKind::Storage)
        );
        assert_eq!(
            error.to_string(),
            format!("this is no answer of a store: {what}")
        );
    }
    let server = answering("<Error><Code>AccessDenied</Code></Error>");
    let error = alone(&quick(&server))
        .list("", MAX_BYTES, &mut cancel)
        .unwrap_err();
    assert_eq!(error.id(), "storage-refused");
}

#[test]
fn failures_of_list_and_size_are_retried_or_reported() {
    let list = |remote: &Remote| {
        remote
            .list("", MAX_BYTES, &mut cancel)
            .map(|all| all.len() as u64)
    };
    let size = |remote: &Remote| {
        let found = remote.size("small", &mut cancel)?;
        Ok::<_, StorageError>(found.unwrap_or_default())
    };
    let check = |fault: &Fault, asks_list: bool, always: &str| {
        for once in [true, false] {
            let server = server(if once {
                Script::first(1, fault.clone())
            } else {
                Script::always(fault.clone())
            });
            let remote = alone(&RemoteOptions {
                request: RequestOptions {
                    total_timeout: Duration::from_secs(5),
                    ..quick(&server).request
                },
                ..quick(&server)
            });
            let (result, right) = if asks_list {
                (list(&remote), 3)
            } else {
                (size(&remote), SMALL as u64)
            };
            match result {
                Ok(found) => assert!(found == right && (once || always.is_empty()), "{fault:?}"),
                Err(error) => assert_eq!((once, error.id()), (false, always), "{fault:?}"),
            }
        }
    };
    for (fault, list, size) in [
        (Fault::status(500), "storage-gave-up", "storage-gave-up"),
        (Fault::status(503), "throttled", "throttled"),
        (Fault::CloseBefore, "storage-gave-up", "storage-gave-up"),
        (Fault::CloseAfter(100), "storage-gave-up", ""),
        (Fault::StallBefore, "stalled", "stalled"),
        (Fault::StallAfter(100), "stalled", ""),
        (Fault::NoContentLength, "", "body-length"),
        (Fault::NoEtag, "", "storage-answer"),
        (Fault::Page, "storage-answer", "storage-answer"),
        (
            Fault::ErrorInside("InternalError"),
            "storage-gave-up",
            "storage-answer",
        ),
        (Fault::FlipByte(1), "storage-answer", ""),
    ] {
        check(&fault, true, list);
        check(&fault, false, size);
    }
    let server = server(Script::on(Action::Head, None, Fault::status(403)));
    let error = alone(&quick(&server))
        .size("none", &mut cancel)
        .unwrap_err();
    assert_eq!(error.id(), "credentials");
}
