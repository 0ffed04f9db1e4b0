//! `shardmill view`: which requests are answered, what is served, and that hostile samples and requests do no harm.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use shardmill_testing::s3::{Objects, S3Server, Settings};

use crate::common::Place;

const TOKEN: &str = "0123456789abcdef";

/// A running server. It ends when it is dropped.
struct View {
    child: Child,
    address: SocketAddr,
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines();
        let mut pairs = lines.filter_map(|line| line.split_once(": "));
        pairs.find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
    }
}

impl View {
    fn start(place: &Place, location: &str, environment: &[(&str, &str)]) -> Self {
        Self::with(place, &[location], environment)
    }

    fn with(place: &Place, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shardmill"))
            .args(["view", "--json", "--read-only-token", TOKEN])
            .args(args)
            .current_dir(place.path())
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let url = line["url"].as_str().unwrap();
        let address = url.strip_prefix("http://").unwrap();
        let (address, rest) = address.split_once('/').unwrap();
        assert_eq!(rest, format!("?token={TOKEN}"));
        let address: SocketAddr = address.parse().unwrap();
        assert!(address.ip().is_loopback());
        Self { child, address }
    }

    /// Sends bytes and returns the answer.
    fn send(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{answer:?}"));
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            head,
            body: answer[end + 4..].to_vec(),
        }
    }

    /// Requests a path with the token.
    fn get(&self, target: &str) -> Answer {
        let authorization = format!("Authorization: Bearer {TOKEN}\r\n");
        self.send(
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n").as_bytes(),
        )
    }

    /// Returns the fields of a sample by name.
    fn fields(&self, number: u64) -> Value {
        let found = self
            .get(&format!("/api/samples?from={number}&count=1&full=true"))
            .json();
        let fields = found["samples"][0]["fields"].as_array().unwrap();
        let pairs = fields
            .iter()
            .map(|field| (field["name"].as_str().unwrap().to_owned(), field.clone()));
        Value::Object(pairs.collect())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // A server that has ended cannot be killed, and its test has failed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_and_its_data_need_the_token_and_a_name_of_this_machine() {
    let place = Place::with_shards();
    let view = View::start(&place, "shards", &[]);
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
fn no_request_reaches_another_file_or_ends_the_server() {
    let place = Place::with_shards();
    place.write("secret.txt", "the secret");
    place.write("shards/secret.txt", "the secret");
    let view = View::start(&place, "shards", &[]);
    let secret = place.path().join("secret.txt");
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
        "/api/samples?of=../secret.txt".to_owned(),
        "/api/run/diff".to_owned(),
        "/api/run/diff?after=secret.txt".to_owned(),
        "/api/run/lint?paths=secret.txt".to_owned(),
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
    assert!(!place.exists("x") && !place.exists("shards/x"));
    assert_eq!(view.get("/api/dataset").json()["samples"], 100);
}

#[test]
fn answers_are_those_of_the_commands() {
    let place = Place::with_shards();
    let view = View::start(&place, "shards", &[]);
    for (request, args) in [
        ("inspect", &["inspect", "shards"][..]),
        (
            "stats?limit=10&column=id",
            &["stats", "shards", "-n", "10", "--column", "id"],
        ),
        (
            "which?step=1&batch-size=2",
            &["which", "shards", "--step", "1", "--batch-size", "2"],
        ),
        (
            "plan?nodes=2&epochs=1",
            &["plan", "shards", "--nodes", "2", "--epochs", "1"],
        ),
    ] {
        let answer = view.get(&format!("/api/run/{request}")).json();
        let expected = place.json(&[args, &["--json"]].concat());
        assert_eq!(answer["output"], json!([expected]), "{request}");
        assert_eq!(
            (&answer["exit_code"], &answer["errors"]),
            (&json!(0), &json!([]))
        );
        // The command that the page shows prints the same.
        let command = answer["command"].as_str().unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
        assert_eq!(place.json(&words), expected, "{command}");
    }
    let order = view
        .get("/api/run/order?shuffle=true&ranks-per-node=2&batches=1")
        .json();
    assert_eq!(order["output"].as_array().unwrap().len(), 2);

    let failed = view.get("/api/run/stats?column=nothing").json();
    let expected = place.run(&["stats", "shards", "--column", "nothing", "--json"]);
    assert_eq!(failed["exit_code"], expected.code);
    assert_eq!(failed["errors"][0]["error"], expected.error());

    place.write("shards/shard.00001.mds.zstd", b"damaged");
    let sample = view.get("/api/samples?from=30&count=1").json();
    let expected = place.run(&["cat", "shards", "30", "--json"]);
    assert_eq!(sample["samples"][0]["error"], expected.error());
    // Other shards are still shown.
    assert_eq!(view.fields(0)["id"]["text"], "0");
    let verified = view.get("/api/run/verify").json();
    assert_eq!(
        (&verified["exit_code"], &verified["output"][0]["ok"]),
        (&json!(3), &json!(false))
    );
}

#[test]
fn samples_of_all_formats_are_found_by_number_and_key() {
    let place = Place::with_tars();
    place.ok(&[
        "convert",
        "tree",
        "mds",
        "--to",
        "mds",
        "--samples-per-shard",
        "2",
    ]);
    place.write(
        "rows/a.jsonl",
        "{\"__key__\": \"k0\", \"txt\": \"a\"}\n{\"__key__\": \"k1\", \"txt\": \"b\"}\n",
    );
    place.ok(&["convert", "rows", "json", "--to", "json"]);
    // A tar file without an index, and its compressed form.
    let tar = std::fs::read(place.path().join("tars/shard-000000.tar"));
    let tar = tar.unwrap_or_else(|_| place.read(&first_tar(&place)));
    place.write("alone/a.tar", &tar);
    for (location, samples) in [
        ("tars", 5),
        ("mds", 5),
        ("alone", 3),
        ("alone/a.tar", 3),
        ("json", 2),
    ] {
        let view = View::start(&place, location, &[]);
        assert_eq!(
            view.get("/api/dataset").json()["samples"],
            samples,
            "{location}"
        );
        let fields = view.fields(1);
        let key = fields["__key__"]["text"].as_str().unwrap();
        assert_eq!(fields["txt"]["kind"], "text", "{location}: {fields}");
        let found = view.get(&format!("/api/find?key={key}")).json();
        assert_eq!(found, json!({ "number": 1 }), "{location}");
        assert_eq!(
            view.get("/api/find?key=nothing").json(),
            json!({ "number": null })
        );
        let raw = view.get("/api/raw?sample=1&column=txt");
        assert_eq!(raw.text(), fields["txt"]["text"].as_str().unwrap());
        let frequent = view.get("/api/frequent?column=cls&limit=10").json();
        assert_eq!(frequent["rows"], samples, "{location}");
        assert_eq!(
            view.get("/api/run/order?batch-size=2").json()["exit_code"],
            0
        );
        assert_eq!(
            view.get("/api/run/plan?batch-size=2").json()["exit_code"],
            0
        );
    }
}

#[test]
fn samples_that_meet_a_condition_keep_their_numbers() {
    let place = Place::with_shards();
    place.ok(&[
        "convert",
        "data",
        "tars",
        "--to",
        "webdataset",
        "--samples-per-shard",
        "30",
        "--key",
        "id",
    ]);
    for location in ["shards", "tars"] {
        let view = View::start(&place, location, &[]);
        let condition = "__sample__ % 7 = 2";
        let encoded = "__sample__+%25+7+%3D+2";
        let found = view.get(&format!("/api/select?where={encoded}")).json();
        assert_eq!(found["samples"], 14, "{location}: {found}");
        let command = found["command"].as_str().unwrap();
        assert_eq!(
            command,
            format!("shardmill select {location} --where '{condition}'")
        );
        let listed = view
            .get(&format!("/api/samples?from=12&count=9&where={encoded}"))
            .json();
        let numbers = listed["samples"].as_array().unwrap().iter();
        let numbers: Vec<&Value> = numbers.map(|sample| &sample["number"]).collect();
        assert_eq!(numbers, [86, 93], "{location}");
        // The downloaded file is the one that the command writes.
        let file = view.get(&format!("/api/view?where={encoded}"));
        assert!(
            file.header("content-disposition")
                .unwrap()
                .contains("selection.view")
        );
        place.ok(&["select", location, "--where", condition, "-o", "a.view"]);
        assert_eq!(file.body, place.read("a.view"), "{location}");
        std::fs::remove_file(place.path().join("a.view")).unwrap();

        let failed = view.get("/api/select?where=nothing+%3D+1");
        let expected = place.run(&[
            "select",
            location,
            "--where",
            "nothing = 1",
            "-o",
            "-",
            "--json",
        ]);
        assert_eq!(failed.status, 422);
        assert_eq!(failed.json()["error"], expected.error(), "{location}");
    }
    let written = Command::new(env!("CARGO_BIN_EXE_shardmill"))
        .args(["select", "shards", "--where", "__sample__ < 3", "-o", "-"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert!(written.stdout.starts_with(b"smview"), "{written:?}");
    assert!(!place.exists("-") && !place.exists("selection.view"));
}

fn first_tar(place: &Place) -> String {
    let files = std::fs::read_dir(place.path().join("tars")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".tar"))
        .collect();
    names.sort();
    format!("tars/{}", names[0])
}

#[test]
fn two_datasets_are_compared_and_both_are_shown() {
    let place = Place::with_shards();
    place.ok(&[
        "convert",
        "data",
        "other",
        "--where",
        "id <> 7",
        "--samples-per-shard",
        "30",
    ]);
    let view = View::with(&place, &["shards", "--compare", "other"], &[]);
    assert_eq!(view.get("/api/dataset").json()["compared"], "other");
    let answer = view.get("/api/run/diff?key-column=id&limit=3").json();
    let expected = place.run(&[
        "diff",
        "shards",
        "other",
        "--key-column",
        "id",
        "-n",
        "3",
        "--json",
    ]);
    let expected: Value = serde_json::from_str(&expected.stdout).unwrap();
    assert_eq!(answer["output"], json!([expected]));
    assert_eq!(
        answer["command"],
        "shardmill diff shards other --key-column id --limit 3"
    );
    let side = |of: &str| {
        let answer = view.get(&format!("/api/samples?from=7{of}")).json();
        let fields = answer["samples"][0]["fields"].as_array().unwrap().clone();
        let id = fields.into_iter().find(|field| field["name"] == "id");
        id.unwrap()["text"].clone()
    };
    assert_eq!((side(""), side("&of=compared")), (json!("7"), json!("8")));
}

#[test]
fn shards_of_a_cache_are_known_by_name_and_length() {
    let place = Place::with_shards();
    let stored = place.read("shards/shard.00001.mds.zstd");
    place.write("cache/shard.00001.mds.zstd", &stored);
    place.write("cache/shard.00002.mds.zstd", &stored[..10]);
    let view = View::with(&place, &["shards", "--cache", "cache"], &[]);
    let found = view.get("/api/cache").json();
    assert_eq!(found["stored"], json!([1]));
    assert_eq!(found["raw"], json!([]));
    let view = View::with(&place, &["shards", "--cache", "nothing"], &[]);
    assert_eq!(view.get("/api/cache").json()["stored"], json!([]));
}

#[test]
fn only_the_endpoint_of_the_command_line_is_asked_for_metrics() {
    let place = Place::with_shards();
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = endpoint.local_addr().unwrap();
    let answers = [
        "HTTP/1.0 200 OK\r\n\r\n# TYPE a counter\na_total 3\n# EOF\n",
        "HTTP/1.0 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n",
    ];
    let server = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = endpoint.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            requests.push(line);
        }
        requests
    });
    let url = format!("http://{address}/metrics");
    let view = View::with(&place, &["shards", "--metrics", &url], &[]);
    let found = view.get("/api/metrics?url=http://evil.example/").json();
    assert!(found["text"].as_str().unwrap().contains("a_total 3"));
    let redirected = view.get("/api/metrics");
    assert_eq!(redirected.status, 502, "{}", redirected.text());
    let requests = server.join().unwrap();
    assert_eq!(requests, ["GET /metrics HTTP/1.0\r\n"; 2]);
    // The endpoint is gone.
    assert_eq!(view.get("/api/metrics").status, 502);
}

#[test]
fn a_video_is_served_in_parts() {
    let place = Place::new();
    let video = [&b"\0\0\0\x18ftypisom"[..], &[7; 9_000_000]].concat();
    place.write("tree/a.mp4", &video);
    place.write("tree/a.txt", "a");
    place.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    place.ok(&["convert", "tree", "mds", "--compression", "none"]);
    for location in ["tars", "mds"] {
        let view = View::start(&place, location, &[]);
        assert_eq!(view.fields(0)["mp4"]["kind"], "video", "{location}");
        let part = |range: &str| {
            view.send(
                format!(
                    "GET /api/media?sample=0&column=mp4&token={TOKEN} HTTP/1.1\r\nHost: localhost\r\nRange: {range}\r\n\r\n"
                )
                .as_bytes(),
            )
        };
        let head = part("bytes=4-11");
        assert_eq!((head.status, &*head.body), (206, &b"ftypisom"[..]));
        assert_eq!(head.header("content-type"), Some("video/mp4"));
        assert_eq!(head.header("content-range"), Some("bytes 4-11/9000012"));
        // A player receives the rest with its next request.
        let rest = part("bytes=0-");
        assert_eq!((rest.status, rest.body.len()), (206, 4 << 20));
        assert_eq!(rest.body, video[..4 << 20]);
        assert_eq!(part("bytes=9000012-").status, 416);
        let all = view.get("/api/media?sample=0&column=mp4");
        assert_eq!((all.status, all.body.len()), (200, video.len()));
        assert_eq!(view.get("/api/media?sample=0&column=txt").status, 404);
    }
}

#[test]
fn tables_and_trees_are_shown_before_their_conversion() {
    let place = Place::with_tree();
    place.parquet("data/rows.parquet", &crate::common::rows(100));
    place.write("lines/a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
    for (location, samples) in [("data", 100), ("tree", 5), ("lines", 2)] {
        let view = View::start(&place, location, &[]);
        let facts = view.get("/api/dataset").json();
        assert_eq!(
            (&facts["kind"], &facts["samples"]),
            (&json!("source"), &json!(samples)),
            "{location}"
        );
        let last = view.get(&format!("/api/samples?from={}", samples - 1));
        let last = last.json();
        assert!(
            last["samples"][0]["fields"][0]["name"].is_string(),
            "{last}"
        );
        // The command line reads the same rows.
        let inspected = view.get("/api/run/inspect").json();
        assert_eq!(
            inspected["output"],
            json!([place.json(&["inspect", location, "--json"])])
        );
    }
    let view = View::start(&place, "data", &[]);
    assert_eq!(view.fields(42)["id"]["text"], "42");
    assert_eq!(view.fields(3)["id"]["text"], "3");
}

#[test]
fn token_ids_are_decoded_with_a_tokenizer() {
    let place = Place::new();
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": { "red": 0, "green": 1, "blue": 2 }, "unk_token": "red" },
    });
    place.write("tokenizer.json", tokenizer.to_string());
    place.write("data/a.jsonl", "{\"ids\": [2, 0], \"name\": \"x\"}\n");
    place.ok(&["convert", "data", "shards"]);
    for location in ["data", "shards"] {
        let view = View::with(&place, &[location, "--tokenizer", "tokenizer.json"], &[]);
        let fields = view.fields(0);
        assert_eq!(fields["ids"]["decoded"], "blue red", "{location}: {fields}");
        assert_eq!(fields["name"].get("decoded"), None);
    }
}

#[test]
fn hostile_samples_are_served_without_harm() {
    let place = Place::new();
    let script = "<script>alert(1)</script>";
    let svg =
        format!("<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'>{script}</svg>");
    let png = [
        &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..],
        &[0, 1, 0, 0, 0, 1, 0, 0],
    ]
    .concat();
    let file = |name: &str, bytes: &[u8]| place.write(&format!("tree/a.{name}"), bytes);
    file("svg", svg.as_bytes());
    file("html", script.as_bytes());
    file("jpg", svg.as_bytes());
    file("png", &png);
    file("gif", b"GIF89a");
    file("txt", "\u{202e}\u{1b}]0;title\u{7}\r\n\u{0}".as_bytes());
    file("big", &vec![b'x'; 20 << 20]);
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
    place.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    let view = View::start(&place, "tars", &[]);
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
    assert_eq!(fields["big"]["bytes"], 20 << 20);
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
    assert!(!place.exists("hacked"));
}

#[test]
fn a_report_is_one_file_that_loads_nothing() {
    let place = Place::with_tars();
    let bmp = [&b"GIF89a\x01\0\x01\0"[..], &[0; 10]].concat();
    place.write("tree/a/0.gif", bmp);
    place.write("tree/a/0.html", "</script><script>alert(1)</script>");
    place.ok(&[
        "convert",
        "tree",
        "images",
        "--to",
        "webdataset",
        "--nulls",
        "omit",
    ]);
    let ran = place.run(&["view", "images", "--export", "report.html", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let page = String::from_utf8(place.read("report.html")).unwrap();
    assert!(page.contains("data:image/gif;base64,"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("src=\"http") && !page.contains("connect-src"));
    assert_eq!(
        place.run(&["view", "images", "--export", "."]).error_id(),
        "config-export"
    );
    assert_eq!(
        place
            .run(&["view", "images", "--export", "none/a.html"])
            .error_id(),
        "not-found"
    );
}

trait ErrorId {
    fn error_id(&self) -> String;
}

impl ErrorId for crate::common::Ran {
    fn error_id(&self) -> String {
        let id = self.stderr.split(['[', ']']).nth(1);
        id.unwrap_or_default().to_owned()
    }
}

#[test]
fn mistakes_on_the_command_line_are_named() {
    let place = Place::with_shards();
    for (args, id) in [
        (&["view", "nothing"][..], "source-not-found"),
        (
            &["view", "shards", "--metrics", "file:///etc/passwd"],
            "usage-value",
        ),
        (
            &["view", "shards", "--tokenizer", "nothing.json"],
            "not-found",
        ),
        (
            &["view", "shards", "--compare", "nothing"],
            "source-not-found",
        ),
        (
            &["view", "shards", "--cache", "s3://bucket/a"],
            "url-scheme",
        ),
        (
            &["view", "shards", "--read-only-token", "short"],
            "usage-value",
        ),
        (&["view", "shards", "--port", "65536"], "config-port"),
        (
            &["view", "shards", "--export", "a.html", "--open"],
            "usage-conflict",
        ),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.error_id(), id, "{args:?}: {}", ran.stderr);
    }
    let view = View::start(&place, "shards", &[]);
    let port = view.address.port().to_string();
    let ran = place.run(&["view", "shards", "--port", &port]);
    assert!(
        ran.stderr.contains(&format!("127.0.0.1:{port}")),
        "{}",
        ran.stderr
    );
    assert_ne!(ran.code, 0);
}

#[test]
fn a_dataset_in_a_store_is_shown_by_ranges() {
    let place = Place::with_shards();
    place.ok(&[
        "convert",
        "data",
        "tars",
        "--to",
        "webdataset",
        "--samples-per-shard",
        "30",
        "--key",
        "id",
    ]);
    for folder in ["shards", "tars"] {
        let objects = Objects::folder("bucket", place.path());
        let server = S3Server::start(objects, Settings::default()).unwrap();
        let environment = server.environment();
        let environment: Vec<(&str, &str)> = environment
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let view = View::start(&place, &format!("s3://bucket/{folder}"), &environment);
        assert_eq!(view.get("/api/dataset").json()["samples"], 100);
        let (from, to) = (view.fields(3), view.fields(99));
        assert_ne!(from, to, "{folder}");
        assert!(to.as_object().unwrap().len() > 4, "{folder}: {to}");
        let inspected = view.get("/api/run/inspect").json();
        assert_eq!(inspected["output"][0]["samples"], 100, "{inspected}");
    }
}
