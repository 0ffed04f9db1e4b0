//! Uploads of whole objects and of parts.

use super::super::checksum::{base64, hex, sha256};
use super::*;

/// Sends a request with a body on a new connection. Returns the status, head and body of the answer.
fn send(server: &S3Server, request: &str, body: &[u8]) -> (String, String, String) {
    let mut stream = connect(server);
    let length = body.len();
    ask_with(
        &mut stream,
        &format!("{request}\r\nContent-Length: {length}"),
        body,
    );
    let mut head = head(&mut stream);
    if head.starts_with("HTTP/1.1 100 ") {
        head = super::head(&mut stream);
    }
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let text = match header(&head, "Content-Length") {
        Some(_) if !request.starts_with("HEAD ") => {
            String::from_utf8(super::body(&mut stream, &head)).unwrap()
        }
        _ => String::new(),
    };
    (status, head, text)
}

fn ask_with(stream: &mut TcpStream, request: &str, body: &[u8]) {
    ask(stream, request);
    // Some tests expect that the server has closed the connection by now.
    let _ = stream.write_all(body);
}

fn field<'a>(xml: &'a str, name: &str) -> &'a str {
    let (_, rest) = xml.split_once(&format!("<{name}>")).unwrap();
    rest.split_once(&format!("</{name}>")).unwrap().0
}

#[test]
fn put_verifies_checksums() {
    let server = server(Settings::default());
    let sum = sha256(b"new");
    let (status, head, _) = send(
        &server,
        &format!(
            "PUT /bucket/a%20b HTTP/1.1\r\nx-amz-checksum-sha256: {}\r\nx-amz-content-sha256: {}\r\nx-amz-acl: private",
            base64(&sum),
            hex(&sum)
        ),
        b"new",
    );
    assert_eq!(status, "200");
    let etag = header(&head, "ETag").unwrap().to_owned();
    assert_eq!(
        header(&head, "x-amz-checksum-sha256"),
        Some(base64(&sum).as_str())
    );
    assert_eq!(server.objects().get("a b").unwrap().unwrap(), b"new");
    assert_eq!(server.counts().acls["a b"], "private");

    let (status, head, _) = send(
        &server,
        "HEAD /bucket/a%20b HTTP/1.1\r\nx-amz-checksum-mode: ENABLED\r\nConnection: close",
        b"",
    );
    assert_eq!(
        (status.as_str(), header(&head, "ETag")),
        ("200", Some(etag.as_str()))
    );
    assert_eq!(
        header(&head, "x-amz-checksum-sha256"),
        Some(base64(&sum).as_str())
    );

    for (name, value) in [
        ("x-amz-checksum-sha256", base64(&sum)),
        ("x-amz-content-sha256", hex(&sum)),
    ] {
        let request = format!("PUT /bucket/other HTTP/1.1\r\n{name}: {value}");
        assert_eq!(send(&server, &request, b"old").0, "400", "{name}");
    }
    assert_eq!(server.objects().get("other").unwrap(), None);
    assert_eq!(server.counts().by_action[&Action::Put], 3);
    assert_eq!(server.counts().received, 9);
    assert_eq!(send(&server, "POST /bucket/other HTTP/1.1", b"").0, "405");
    assert_eq!(send(&server, "PUT /elsewhere HTTP/1.1", b"").0, "405");
    assert_eq!(send(&server, "PUT /elsewhere/x HTTP/1.1", b"").0, "404");
}

#[test]
fn if_none_match_keeps_the_existing_object() {
    let server = server(Settings::default());
    let request = "PUT /bucket/two HTTP/1.1\r\nIf-None-Match: *";
    assert_eq!(send(&server, request, b"x").0, "412");
    assert_eq!(server.objects().get("two").unwrap().unwrap(), [7; 3]);
    let request = "PUT /bucket/three HTTP/1.1\r\nIf-None-Match: *";
    assert_eq!(send(&server, request, b"x").0, "200");
    assert_eq!(send(&server, request, b"x").0, "412");
    server.set(Settings {
        no_conditions: true,
        no_sums: true,
        ..Settings::default()
    });
    assert_eq!(send(&server, request, b"x").0, "501");
    let request = "PUT /bucket/four HTTP/1.1\r\nx-amz-checksum-sha256: x";
    assert_eq!(send(&server, request, b"x").0, "501");
    assert_eq!(server.objects().get("four").unwrap(), None);
}

#[test]
fn multipart_upload_joins_the_listed_parts() {
    let server = server(Settings::default());
    let create = || {
        let (_, _, text) = send(&server, "POST /bucket/big?uploads= HTTP/1.1", b"");
        field(&text, "UploadId").to_owned()
    };
    let part = |id: &str, number: u32, bytes: &[u8]| {
        let request = format!("PUT /bucket/big?partNumber={number}&uploadId={id} HTTP/1.1");
        let (status, head, _) = send(&server, &request, bytes);
        (status, header(&head, "ETag").unwrap_or_default().to_owned())
    };
    let complete = |id: &str, list: &[(u32, &str)]| {
        let list: String = list
            .iter()
            .map(|(number, etag)| {
                format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
            })
            .collect();
        let request = format!("POST /bucket/big?uploadId={id} HTTP/1.1");
        let body = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
        send(&server, &request, body.as_bytes())
    };
    let id = create();
    assert_eq!(server.open_uploads(), 1);
    let (_, two) = part(&id, 2, b"two");
    let (_, one) = part(&id, 1, b"one");
    assert_eq!(part(&id, 0, b"none").0, "400");
    assert_eq!(part("no", 1, b"none").0, "404");
    assert_eq!(server.objects().get("big").unwrap(), None);
    for (list, code) in [
        (
            &[(2, two.as_str()), (1, one.as_str())][..],
            "InvalidPartOrder",
        ),
        (&[(1, two.as_str())], "InvalidPart"),
        (&[(3, one.as_str())], "InvalidPart"),
        (&[], "MalformedXML"),
    ] {
        let (status, _, text) = complete(&id, list);
        assert_eq!((status.as_str(), field(&text, "Code")), ("400", code));
    }
    let (status, _, text) = complete(&id, &[(1, &one), (2, &two)]);
    assert_eq!(status, "200", "{text}");
    assert_eq!(server.objects().get("big").unwrap().unwrap(), b"onetwo");
    let sums = [sha256(b"one"), sha256(b"two")].concat();
    let sum = format!("{}-2", base64(&sha256(&sums)));
    assert_eq!(field(&text, "ChecksumSHA256"), sum);
    assert_eq!(complete(&id, &[(1, &one), (2, &two)]).0, "404");

    let id = create();
    part(&id, 1, b"other");
    let abort = format!("DELETE /bucket/big?uploadId={id} HTTP/1.1");
    assert_eq!(send(&server, &abort, b"").0, "204");
    assert_eq!(send(&server, &abort, b"").0, "404");
    assert_eq!(server.open_uploads(), 0);
    assert_eq!(server.objects().get("big").unwrap().unwrap(), b"onetwo");
}

#[test]
fn every_write_failure_mode_is_simulated() {
    let put = |fault: Fault| {
        let server = faulty(fault);
        let (status, _, text) = send(&server, "PUT /bucket/new HTTP/1.1", b"12345");
        let stored = server.objects().get("new").unwrap();
        (status, text, stored)
    };
    for (fault, status, stored) in [
        (Fault::status(500), "500", None),
        (Fault::Page, "200", None),
        (Fault::ErrorInside("InternalError"), "200", None),
        (Fault::CloseBefore, "", None),
        (Fault::CloseWithin(3), "", None),
        (Fault::FlipWithin(0), "200", Some(b"\x112345".to_vec())),
        (Fault::AnswerLost, "", Some(b"12345".to_vec())),
        (Fault::NoEtag, "200", Some(b"12345".to_vec())),
    ] {
        let shown = format!("{fault:?}");
        let played = put(fault);
        assert_eq!((played.0.as_str(), played.2), (status, stored), "{shown}");
        assert_eq!(
            played.1.contains("<Code>InternalError</Code>"),
            shown.contains("Inside") || status == "500"
        );
    }
    let server = faulty(Fault::StallWithin(2));
    let mut stream = connect(&server);
    ask_with(
        &mut stream,
        "PUT /bucket/new HTTP/1.1\r\nContent-Length: 5",
        b"12345",
    );
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    assert!(stream.read(&mut [0]).is_err());
    assert_eq!(server.objects().get("new").unwrap(), None);
}

#[test]
fn script_matches_requests_by_action_and_count() {
    let server = server(Settings {
        faults: Script::on(Action::Part, Some(1), Fault::status(500)),
        ..Settings::default()
    });
    let (_, _, text) = send(&server, "POST /bucket/big?uploads HTTP/1.1", b"");
    let id = field(&text, "UploadId");
    let part = format!("PUT /bucket/big?partNumber=1&uploadId={id} HTTP/1.1");
    assert_eq!(send(&server, &part, b"1").0, "500");
    assert_eq!(send(&server, &part, b"1").0, "200");
    assert_eq!(send(&server, "GET /bucket/two HTTP/1.1", b"").0, "200");
}

#[test]
fn put_into_a_directory_bucket_writes_the_file() {
    let root = tempfile::tempdir().unwrap();
    let server =
        S3Server::start(Objects::folder("data", root.path()), Settings::default()).unwrap();
    let request = "PUT /data/new/shard HTTP/1.1\r\nIf-None-Match: *";
    assert_eq!(send(&server, request, b"bytes").0, "200");
    assert_eq!(send(&server, request, b"other").0, "412");
    let request = "PUT /data/new/shard HTTP/1.1\r\nExpect: 100-continue";
    assert_eq!(send(&server, request, b"third").0, "200");
    assert_eq!(
        std::fs::read(root.path().join("new/shard")).unwrap(),
        b"third"
    );
    assert_eq!(
        std::fs::read_dir(root.path().join("new")).unwrap().count(),
        1
    );
}
