//! `view`: requests and samples that try to do harm.

use super::*;

/// The bytes of a text that is far too long for a page.
const BIG: usize = 100_000_000;

#[test]
fn requests_need_the_token_and_a_local_host_name() {
    let dir = TestDir::with_shards();
    let view = View::start(&dir, "shards", &[]);
    let port = view.address.port();
    let cookie = format!("Cookie: a=b; shardmill-view-{port}={TOKEN}");
    let other_cookie = format!("Cookie: shardmill-view-1={TOKEN}");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let host = "Host: localhost:8000";
    for (target, headers, status) in [
        ("/?token=0123456789abcdef", vec![host], 200),
        ("/", vec![host, &cookie], 200),
        ("/", vec!["Host: 127.0.0.1", &bearer], 200),
        ("/", vec!["Host: [::1]:1", &bearer], 200),
        ("/api/dataset", vec![host, &cookie], 200),
        ("/", vec![host], 401),
        ("/api/dataset", vec![host], 401),
        ("/api/raw?sample=0&column=id", vec![host], 401),
        ("/api/run/inspect", vec![host], 401),
        ("/nothing", vec![host], 401),
        ("/?token=", vec![host], 401),
        ("/?token=0123456789abcdeg", vec![host], 401),
        ("/?token=0123456789abcde", vec![host], 401),
        ("/?token=0123456789abcdef0", vec![host], 401),
        ("/", vec![host, &other_cookie], 401),
        (
            "/",
            vec![host, "Authorization: Basic 0123456789abcdef"],
            401,
        ),
        ("/", vec![host, &bearer, &bearer], 401),
        ("/", vec![&bearer], 421),
        ("/", vec!["Host:", &bearer], 421),
        ("/", vec!["Host: evil.example", &bearer], 421),
        ("/", vec!["Host: evil.example:8000", &bearer], 421),
        ("/", vec!["Host: localhost.evil.example", &bearer], 421),
        ("/", vec!["Host: 127.0.0.1.evil.example", &bearer], 421),
        ("/", vec!["Host: evil.example@localhost", &bearer], 421),
        ("/", vec!["Host: localhost:80@evil.example", &bearer], 421),
        ("/", vec!["Host: 127.0.0.2", &bearer], 421),
        ("/", vec!["Host: 0.0.0.0", &bearer], 421),
        (
            "/",
            vec!["Host: localhost", "Host: localhost", &bearer],
            421,
        ),
        (
            "/api/dataset",
            vec![host, &cookie, "Sec-Fetch-Site: cross-site"],
            403,
        ),
        (
            "/api/dataset",
            vec![host, &cookie, "Sec-Fetch-Site: same-origin"],
            200,
        ),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\n{}\r\n\r\n", headers.join("\r\n"));
        let answer = view.send(request.as_bytes());
        assert_eq!(answer.status, status, "{target} {headers:?}");
        if status != 200 {
            assert!(!answer.text().contains("shards"), "{}", answer.text());
            assert!(!answer.head.contains(TOKEN), "{}", answer.head);
        }
    }
    let page = view.send(format!("GET /?token={TOKEN} HTTP/1.1\r\n{host}\r\n\r\n").as_bytes());
    let cookie = page.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    // The page loads nothing, and does not contain the secret.
    let text = page.text();
    assert!(!text.contains(TOKEN) && !text.contains("src=\"http") && !text.contains("href=\"http"));
}

#[test]
fn hostile_requests_read_no_file_and_do_not_stop_the_server() {
    let dir = TestDir::with_shards();
    dir.write("secret.txt", "the secret");
    dir.write("shards/secret.txt", "the secret");
    let view = View::start(&dir, "shards", &[]);
    let secret = dir.path().join("secret.txt");
    let secret = secret.to_str().unwrap();
    let long = "x".repeat(20_000);
    let targets = [
        "/secret.txt".to_owned(),
        "/../secret.txt".to_owned(),
        "/%2e%2e/secret.txt".to_owned(),
        "/..%2fsecret.txt".to_owned(),
        "/..%5csecret.txt".to_owned(),
        format!("/{secret}"),
        format!("//{secret}"),
        "/api/../secret.txt".to_owned(),
        "/api/raw/../../secret.txt".to_owned(),
        "/index.json".to_owned(),
        "/shard.00000.mds".to_owned(),
        "/api/raw?sample=0&column=../secret.txt".to_owned(),
        format!("/api/raw?sample=0&column={secret}"),
        "/api/raw?sample=0&column=id&item=1".to_owned(),
        "/api/raw?sample=99999999&column=id".to_owned(),
        "/api/raw?sample=-1&column=id".to_owned(),
        "/api/raw?sample=18446744073709551616&column=id".to_owned(),
        "/api/samples?from=18446744073709551615&count=18446744073709551615".to_owned(),
        "/api/samples?from=x".to_owned(),
        "/api/find?key=../secret.txt".to_owned(),
        "/api/find?from=-1".to_owned(),
        "/api/frequent?column=../secret.txt&limit=18446744073709551615".to_owned(),
        "/api/run/cat".to_owned(),
        "/api/run/convert".to_owned(),
        "/api/run/gc".to_owned(),
        "/api/run/../inspect".to_owned(),
        "/api/run/inspect?dataset=/".to_owned(),
        format!("/api/run/plan?svg={secret}"),
        "/api/run/plan?nodes=1%20--svg=x".to_owned(),
        "/api/run/plan?nodes=--svg=x".to_owned(),
        "/api/run/plan?nodes=999999999999".to_owned(),
        "/api/run/which?step=18446744073709551615".to_owned(),
        format!("/api/run/which?step=0&state={secret}"),
        format!("/api/run/order?resume={secret}"),
        "/api/run/order?batches=-99999999999..99999999999&shuffle-block-size=0".to_owned(),
        "/api/run/stats?limit=-1".to_owned(),
        "/api/run/stats?column=nothing".to_owned(),
        "/api/run/verify?expect-index=x".to_owned(),
        "/api/run/inspect?storage-option=AWS_ENDPOINT_URL=http://evil.example".to_owned(),
        format!("/api/run/stats?column={}", "y".repeat(5000)),
        "/api/run/select?where=true".to_owned(),
        format!("/api/select?where=true&out={secret}"),
        "/api/select?where=true)+OR+(true;--".to_owned(),
        "/api/select?where=(SELECT+1+FROM+'secret.txt')".to_owned(),
        "/api/select?where=--out=x".to_owned(),
        "/api/select".to_owned(),
        "/api/view?where=id+=".to_owned(),
        "/api/samples?where=nothing%3D1".to_owned(),
        "/api/run/verify?paths=secret.txt".to_owned(),
        "/api/cache?folder=/".to_owned(),
        "/api/metrics?url=http://127.0.0.1:1/".to_owned(),
        "/api/media?sample=0&column=id".to_owned(),
        "/api/media?sample=0&column=../secret.txt".to_owned(),
        "/%00".to_owned(),
        "/?a=%00%0d%0aSet-Cookie:%20a=b".to_owned(),
    ];
    for target in &targets {
        let answer = view.get(target);
        assert!(!answer.text().contains("the secret"), "{target}");
        // The page answers only to its own path; an error of a command is an answer.
        let is_refused = (400..500).contains(&answer.status);
        let is_data = target.starts_with("/api/") || target.starts_with("/?");
        assert!(
            is_refused || answer.status == 200 && is_data,
            "{target}: {}",
            answer.status
        );
        assert!(!answer.head.contains("\nSet-Cookie: a=b"), "{target}");
    }
    for request in [
        format!(
            "POST /api/dataset?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}"
        ),
        format!("PUT /?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET http://localhost/?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("CONNECT localhost:22?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
            "a: b\r\n".repeat(200)
        ),
        "\u{16}\u{3}\u{1} no HTTP\r\n\r\n".to_owned(),
        "\r\n\r\n\r\n\0\0\0".to_owned(),
    ] {
        let answer = view.send(request.as_bytes());
        assert!(
            (400..500).contains(&answer.status),
            "{request:.60}: {}",
            answer.status
        );
    }
    // Connections that send nothing, or a part of a request, do not keep others from being answered.
    let idle: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut stream = TcpStream::connect(view.address).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(view.get("/api/dataset").status, 200);
    for stream in idle {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    assert!(!dir.exists("x") && !dir.exists("shards/x"));
    assert_eq!(view.get("/api/dataset").json()["samples"], 100);
}

#[test]
fn hostile_samples_are_served_safely() {
    let dir = TestDir::new();
    let script = "<script>alert(1)</script>";
    let svg =
        format!("<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'>{script}</svg>");
    let png = [
        &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..],
        &[0, 1, 0, 0, 0, 1, 0, 0],
    ]
    .concat();
    let file = |name: &str, bytes: &[u8]| dir.write(&format!("tree/a.{name}"), bytes);
    file("svg", svg.as_bytes());
    file("html", script.as_bytes());
    file("jpg", svg.as_bytes());
    file("png", &png);
    file("gif", b"GIF89a");
    file("txt", "\u{202e}\u{1b}]0;title\u{7}\r\n\u{0}".as_bytes());
    file("big", &vec![b'x'; BIG]);
    file(
        "json",
        format!(
            "{{\"__proto__\": {{\"a\": {}1{}}}}}",
            "[".repeat(25),
            "]".repeat(25)
        )
        .as_bytes(),
    );
    file("bin", &[0xff; 5000]);
    file("pyd", b"cos\nsystem\n(S'touch hacked'\ntR.");
    file("cls", b"7");
    dir.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    let view = View::start(&dir, "tars", &[]);
    let fields = view.fields(0);
    for (name, kind) in [
        ("svg", "text"),
        ("html", "text"),
        ("jpg", "text"),
        ("png", "bytes"),
        ("gif", "image"),
        ("txt", "text"),
        ("big", "text"),
        ("json", "json"),
        ("bin", "bytes"),
        ("cls", "number"),
    ] {
        assert_eq!(fields[name]["kind"], kind, "{name}: {}", fields[name]);
    }
    assert_eq!(fields["big"]["truncated"], true);
    assert_eq!(fields["big"]["bytes"], BIG);
    for name in [
        "svg", "html", "jpg", "png", "gif", "txt", "json", "bin", "pyd",
    ] {
        let raw = view.get(&format!("/api/raw?sample=0&column={name}"));
        let content_type = raw.header("content-type").unwrap();
        let is_image = name == "png" || name == "gif";
        let expected = if is_image {
            format!("image/{name}")
        } else {
            "application/octet-stream".to_owned()
        };
        assert_eq!(content_type, expected, "{name}");
        assert_eq!(raw.header("x-content-type-options"), Some("nosniff"));
        let policy = raw.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; sandbox"),
            "{policy}"
        );
        assert_eq!(
            raw.header("content-disposition").is_some(),
            !is_image,
            "{name}"
        );
    }
    let page = view.get("/api/samples?count=1");
    assert!(page.body.len() < 20_000, "{}", page.body.len());
    assert_eq!(page.header("content-type"), Some("application/json"));
    assert!(!dir.exists("hacked"));
}

#[test]
fn path_like_keys_are_treated_as_text() {
    let dir = TestDir::new();
    dir.write("secret.txt", "the secret");
    let keys = [
        "../secret.txt",
        "/etc/passwd",
        "a\u{0}b",
        "<b>\u{202e}",
        "C:\\x",
    ];
    let rows = keys.map(|key| json!({ "__key__": key, "txt": "a" }).to_string());
    dir.write("rows/a.jsonl", rows.join("\n"));
    let columns = [("__key__", "str"), ("txt", "str")];
    dir.json_shards("json", &columns, &rows.join("\n"));
    for location in ["rows", "json"] {
        let view = View::start(&dir, location, &[]);
        for (number, key) in keys.iter().enumerate() {
            let fields = view.fields(number as u64);
            assert_eq!(fields["__key__"]["text"], *key, "{location}");
        }
        let found = view.get("/api/find?key=..%2Fsecret.txt").json();
        assert_eq!(found, json!({ "number": 0 }), "{location}");
        let raw = view.get("/api/raw?sample=0&column=__key__");
        assert_eq!(raw.text(), "../secret.txt");
    }
}
