mod writes;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{Action, Fault, Objects, S3Server, Script, Settings};

const LONG: Duration = Duration::from_secs(30);

fn bytes() -> Vec<u8> {
    (0..=255).cycle().take(1000).collect()
}

fn server(settings: Settings) -> S3Server {
    let objects = [
        ("a/one".to_owned(), bytes()),
        ("two".to_owned(), vec![7; 3]),
    ];
    S3Server::start(Objects::memory("bucket", objects), settings).unwrap()
}

fn faulty(fault: Fault) -> S3Server {
    server(Settings {
        faults: Script::always(fault),
        ..Settings::default()
    })
}

fn connect(server: &S3Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, request: &str) {
    stream
        .write_all(format!("{request}\r\nHost: x\r\n\r\n").as_bytes())
        .unwrap();
}

/// Reads the head of an answer; the body stays unread.
fn head(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap() == 0 {
            break;
        }
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn body(stream: &mut TcpStream, head: &str) -> Vec<u8> {
    let length = header(head, "Content-Length").unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    body
}

/// Reads until the connection ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // If the server closes a connection with unread input, reading ends with an error. The bytes before it count.
    let _ = stream.read_to_end(&mut rest);
    rest
}

#[test]
fn objects_ranges_and_heads_share_one_connection() {
    let server = server(Settings::default());
    let mut stream = connect(&server);
    ask(&mut stream, "GET /bucket/a/one HTTP/1.1");
    let answer = head(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(body(&mut stream, &answer), bytes());
    let etag = header(&answer, "ETag").unwrap().to_owned();

    ask(
        &mut stream,
        "GET /bucket/a%2Fone HTTP/1.1\r\nRange: bytes=10-19",
    );
    let answer = head(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 206 "), "{answer}");
    assert_eq!(header(&answer, "Content-Range"), Some("bytes 10-19/1000"));
    assert_eq!(body(&mut stream, &answer), bytes()[10..20]);

    ask(
        &mut stream,
        "GET /bucket/a/one HTTP/1.1\r\nRange: bytes=990-",
    );
    let answer = head(&mut stream);
    assert_eq!(body(&mut stream, &answer), bytes()[990..]);

    ask(&mut stream, "HEAD /bucket/a/one HTTP/1.1");
    let answer = head(&mut stream);
    assert_eq!(header(&answer, "Content-Length"), Some("1000"));

    for (condition, status) in [(etag.as_str(), "200"), ("\"no\"", "412")] {
        ask(
            &mut stream,
            &format!("GET /bucket/a/one HTTP/1.1\r\nIf-Match: {condition}"),
        );
        let answer = head(&mut stream);
        assert_eq!(answer.split(' ').nth(1), Some(status));
        body(&mut stream, &answer);
    }
    for (target, extra, status) in [
        ("/bucket/none", "", "404"),
        ("/other/one", "", "404"),
        ("/bucket/two", "\r\nRange: bytes=3-5", "416"),
    ] {
        ask(&mut stream, &format!("GET {target} HTTP/1.1{extra}"));
        let answer = head(&mut stream);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{target}");
        body(&mut stream, &answer);
    }
    let counts = server.counts();
    assert_eq!(
        (counts.requests, counts.heads, counts.load.connections),
        (9, 1, 1)
    );
    assert_eq!(counts.by_key["a/one"], 6);
    assert_eq!(counts.load.max_transfers, 1);
}

#[test]
fn listing_is_paginated() {
    let server = server(Settings {
        page: Some(1),
        ..Settings::default()
    });
    let mut stream = connect(&server);
    ask(&mut stream, "GET /bucket?list-type=2&prefix= HTTP/1.1");
    let answer = head(&mut stream);
    let page = String::from_utf8(body(&mut stream, &answer)).unwrap();
    assert!(
        page.contains("<Key>a/one</Key>") && !page.contains("two"),
        "{page}"
    );
    assert!(page.contains("<NextContinuationToken>a/one</NextContinuationToken>"));
    ask(
        &mut stream,
        "GET /bucket?list-type=2&continuation-token=a%2Fone HTTP/1.1",
    );
    let answer = head(&mut stream);
    let page = String::from_utf8(body(&mut stream, &answer)).unwrap();
    assert!(
        page.contains("<Key>two</Key>") && page.contains("<Size>3</Size>"),
        "{page}"
    );
    assert!(page.contains("<IsTruncated>false</IsTruncated>"), "{page}");
    assert_eq!(server.counts().lists(), 2);
}

#[test]
fn directory_is_served_as_a_bucket() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("train")).unwrap();
    std::fs::write(root.path().join("train/shard"), bytes()).unwrap();
    let server =
        S3Server::start(Objects::folder("data", root.path()), Settings::default()).unwrap();
    let mut stream = connect(&server);
    let mut tags = Vec::new();
    for _ in 0..2 {
        ask(
            &mut stream,
            "GET /data/train/shard HTTP/1.1\r\nRange: bytes=5-9",
        );
        let answer = head(&mut stream);
        assert_eq!(body(&mut stream, &answer), bytes()[5..10]);
        tags.push(header(&answer, "ETag").unwrap().to_owned());
    }
    assert_eq!(tags[0], tags[1]);
    for target in ["/data/train", "/data/train/../train/shard", "/data/no"] {
        ask(&mut stream, &format!("GET {target} HTTP/1.1"));
        let answer = head(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{target} {answer}");
        body(&mut stream, &answer);
    }
}

#[test]
fn every_read_failure_mode_is_simulated() {
    let played = |fault: Fault| {
        let server = faulty(fault);
        let mut stream = connect(&server);
        ask(
            &mut stream,
            "GET /bucket/a/one HTTP/1.1\r\nRange: bytes=0-99",
        );
        let answer = head(&mut stream);
        (server, stream, answer)
    };

    let (_server, mut stream, answer) = played(Fault::Status {
        status: 503,
        code: "SlowDown",
        retry_after: Some(9),
    });
    assert!(answer.starts_with("HTTP/1.1 503 "));
    assert_eq!(header(&answer, "Retry-After"), Some("9"));
    let text = String::from_utf8(body(&mut stream, &answer)).unwrap();
    assert!(text.contains("<Code>SlowDown</Code>"), "{text}");

    let (_server, _stream, answer) = played(Fault::CloseBefore);
    assert_eq!(answer, "");

    let (_server, mut stream, answer) = played(Fault::CloseAfter(40));
    assert_eq!(header(&answer, "Content-Length"), Some("100"));
    assert_eq!(rest(&mut stream), bytes()[..40]);

    let (_server, mut stream, answer) = played(Fault::FlipByte(3));
    let mut flipped = bytes()[..100].to_vec();
    flipped[3] ^= 0x20;
    assert_eq!(body(&mut stream, &answer), flipped);

    let (_server, mut stream, answer) = played(Fault::ContentLength(-10));
    assert_eq!(header(&answer, "Content-Length"), Some("90"));
    assert_eq!(rest(&mut stream).len(), 100);

    let (_server, mut stream, answer) = played(Fault::ContentLength(10));
    assert_eq!(header(&answer, "Content-Length"), Some("110"));
    assert_eq!(rest(&mut stream).len(), 100);

    let (_server, mut stream, answer) = played(Fault::NoContentLength);
    assert_eq!(header(&answer, "Content-Length"), None);
    assert_eq!(rest(&mut stream).len(), 100);

    let (_server, _stream, answer) = played(Fault::ContentRange(5));
    assert_eq!(header(&answer, "Content-Range"), Some("bytes 5-104/1000"));

    let (_server, _stream, answer) = played(Fault::WholeObject);
    assert!(answer.starts_with("HTTP/1.1 200 "));
    assert_eq!(header(&answer, "Content-Length"), Some("1000"));

    let (_server, _stream, answer) = played(Fault::OtherEtag);
    assert_eq!(header(&answer, "ETag"), Some("\"another\""));

    let (_server, _stream, answer) = played(Fault::NoEtag);
    assert_eq!(header(&answer, "ETag"), None);

    let (_server, mut stream, answer) = played(Fault::Drip {
        bytes: 10,
        every: Duration::from_millis(1),
    });
    assert_eq!(body(&mut stream, &answer), bytes()[..100]);

    let (_server, _stream, answer) = played(Fault::Redirect("http://10.0.0.1/x".to_owned()));
    assert!(answer.starts_with("HTTP/1.1 307 "));
    assert_eq!(header(&answer, "Location"), Some("http://10.0.0.1/x"));

    let (server, mut stream, answer) = played(Fault::Page);
    assert!(answer.starts_with("HTTP/1.1 200 "));
    assert!(body(&mut stream, &answer).starts_with(b"<!DOCTYPE html>"));
    assert_eq!(server.counts().faults, 1);
}

#[test]
fn stalled_connection_does_not_block_server_shutdown() {
    for fault in [Fault::StallBefore, Fault::StallAfter(10)] {
        let server = faulty(fault);
        let mut stream = connect(&server);
        ask(&mut stream, "GET /bucket/a/one HTTP/1.1");
        let mut first = [0; 1];
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        while stream.read(&mut first).is_ok_and(|read| read > 0) {}
        assert_eq!(server.open_connections(), 1);
        let began = Instant::now();
        drop(server);
        assert!(began.elapsed() < LONG / 2);
    }
}

#[test]
fn latency_and_bandwidth_limits_are_applied() {
    let objects = [("big".to_owned(), vec![1; 1 << 20])];
    let server = S3Server::start(
        Objects::memory("bucket", objects),
        Settings {
            latency: Duration::from_millis(20),
            bytes_per_second: Some(20 << 20),
            ..Settings::default()
        },
    )
    .unwrap();
    let mut stream = connect(&server);
    let began = Instant::now();
    ask(&mut stream, "GET /bucket/big HTTP/1.1");
    let answer = head(&mut stream);
    assert!(began.elapsed() >= Duration::from_millis(20));
    body(&mut stream, &answer);
    // 1 MiB without its last step, which is not delayed.
    assert!(began.elapsed() >= Duration::from_millis(20 + 48));
}

#[test]
fn equal_seeds_fail_the_same_requests() {
    let asked = |number| super::Asked {
        number,
        nth: 0,
        action: Action::Get,
        nth_action: 0,
        key: "k".to_owned(),
        range: None,
    };
    let faults = vec![Fault::CloseBefore, Fault::status(500)];
    let drawn = |seed| {
        let script = Script::random(seed, 10, faults.clone());
        (0..1000)
            .map(|number| script.decide(&asked(number)))
            .collect::<Vec<_>>()
    };
    assert_eq!(drawn(5), drawn(5));
    assert_ne!(drawn(5), drawn(6));
    let hits = drawn(5).iter().flatten().count();
    assert!((60..150).contains(&hits), "{hits}");
}
