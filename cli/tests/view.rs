//! `shardmill view`: which requests are answered, and what is served.

mod attacks;
mod exact;
mod sources;
mod stores;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::TestDir;

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
    fn start(dir: &TestDir, location: &str, environment: &[(&str, &str)]) -> Self {
        Self::with(dir, &[location], environment)
    }

    fn with(dir: &TestDir, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shardmill"))
            .args(["view", "--json", "--read-only-token", TOKEN])
            .args(args)
            .current_dir(dir.path())
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
fn api_answers_equal_command_output() {
    let dir = TestDir::with_shards();
    let view = View::start(&dir, "shards", &[]);
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
        let expected = dir.json(&[args, &["--json"]].concat());
        assert_eq!(answer["output"], json!([expected]), "{request}");
        assert_eq!(
            (&answer["exit_code"], &answer["errors"]),
            (&json!(0), &json!([]))
        );
        // The command that the page shows prints the same.
        let command = answer["command"].as_str().unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
        assert_eq!(dir.json(&words), expected, "{command}");
    }
    let order = view
        .get("/api/run/order?shuffle=true&ranks-per-node=2&batches=1")
        .json();
    assert_eq!(order["output"].as_array().unwrap().len(), 2);

    let failed = view.get("/api/run/stats?column=nothing").json();
    let expected = dir.run(&["stats", "shards", "--column", "nothing", "--json"]);
    assert_eq!(failed["exit_code"], expected.code);
    assert_eq!(failed["errors"][0]["error"], expected.error());

    dir.write("shards/shard.00001.mds.zstd", b"damaged");
    let sample = view.get("/api/samples?from=30&count=1").json();
    let expected = dir.run(&["cat", "shards", "30", "--json"]);
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
fn samples_are_found_by_number_and_key_in_all_formats() {
    let dir = TestDir::with_tars();
    dir.ok(&[
        "convert",
        "tree",
        "mds",
        "--to",
        "mds",
        "--samples-per-shard",
        "2",
    ]);
    dir.json_shards(
        "json",
        &[("__key__", "str"), ("txt", "str")],
        "{\"__key__\": \"k0\", \"txt\": \"a\"}\n{\"__key__\": \"k1\", \"txt\": \"b\"}\n",
    );
    // A tar file without an index, and its compressed form.
    let tar = std::fs::read(dir.path().join("tars/shard-000000.tar"));
    let tar = tar.unwrap_or_else(|_| dir.read(&first_tar(&dir)));
    dir.write("alone/a.tar", &tar);
    for (location, samples) in [
        ("tars", 5),
        ("mds", 5),
        ("alone", 3),
        ("alone/a.tar", 3),
        ("json", 2),
    ] {
        let view = View::start(&dir, location, &[]);
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

/// Checks that a wrong condition is refused with the error of the command.
fn check_refusal(view: &View, dir: &TestDir, location: &str) {
    let failed = view.get("/api/select?where=nothing+%3D+1");
    let expected = dir.run(&[
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

#[test]
fn filtered_samples_keep_their_numbers() {
    let dir = TestDir::with_shards();
    dir.ok(&[
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
        let view = View::start(&dir, location, &[]);
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
        dir.ok(&["select", location, "--where", condition, "-o", "a.view"]);
        assert_eq!(file.body, dir.read("a.view"), "{location}");
        std::fs::remove_file(dir.path().join("a.view")).unwrap();

        check_refusal(&view, &dir, location);
    }
    let written = Command::new(env!("CARGO_BIN_EXE_shardmill"))
        .args(["select", "shards", "--where", "__sample__ < 3", "-o", "-"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(written.stdout.starts_with(b"smview"), "{written:?}");
    assert!(!dir.exists("-") && !dir.exists("selection.view"));
}

#[test]
fn view_option_shows_and_numbers_only_its_samples() {
    let dir = TestDir::with_shards();
    dir.ok(&[
        "convert",
        "data",
        "tars",
        "--to",
        "webdataset",
        "--key",
        "id",
    ]);
    for location in ["shards", "tars"] {
        let some = format!("{location}.view");
        let condition = "__sample__ % 7 = 2";
        dir.ok(&["select", location, "--where", condition, "-o", &some]);
        let page = View::with(&dir, &[location, "--view", &some], &[]);
        let facts = page.get("/api/dataset").json();
        assert_eq!(
            (&facts["samples"], &facts["view"]),
            (&json!(14), &json!(some))
        );
        let shown = page.get("/api/samples?from=3&count=1").json();
        let whole = View::start(&dir, location, &[]);
        let stored = whole.get("/api/samples?from=23&count=1").json();
        assert_eq!(
            shown["samples"][0]["fields"],
            stored["samples"][0]["fields"]
        );
        assert_eq!(shown["samples"][0]["number"], 3);
        // Commands get the view, and a condition selects within it.
        let ran = page.get("/api/run/stats").json();
        assert_eq!(
            ran["command"],
            format!("shardmill stats {location} --view {some}")
        );
        let expected = dir.json(&["stats", location, "--view", &some, "--json"]);
        assert_eq!(ran["output"], json!([expected]));
        let found = page.get("/api/select?where=__sample__+%3E+50").json();
        assert_eq!(found["samples"], 7, "{location}: {found}");
        let listed = page.get("/api/samples?from=0&count=1&where=__sample__+%3E+50");
        assert_eq!(listed.json()["samples"][0]["number"], 7);
    }
    let refused = dir.run(&["view", "shards", "--view", "tars.view", "--json"]);
    assert_eq!(refused.error()["id"], "view-dataset");
}

fn first_tar(dir: &TestDir) -> String {
    let files = std::fs::read_dir(dir.path().join("tars")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".tar"))
        .collect();
    names.sort();
    format!("tars/{}", names[0])
}

#[test]
fn cached_shards_are_matched_by_name_and_length() {
    let dir = TestDir::with_shards();
    let stored = dir.read("shards/shard.00001.mds.zstd");
    dir.write("cache/shard.00001.mds.zstd", &stored);
    dir.write("cache/shard.00002.mds.zstd", &stored[..10]);
    let view = View::with(&dir, &["shards", "--cache", "cache"], &[]);
    let found = view.get("/api/cache").json();
    assert_eq!(found["stored"], json!([1]));
    assert_eq!(found["raw"], json!([]));
    let view = View::with(&dir, &["shards", "--cache", "nothing"], &[]);
    assert_eq!(view.get("/api/cache").json()["stored"], json!([]));
}

#[test]
fn metrics_are_fetched_only_from_the_given_endpoint() {
    let dir = TestDir::with_shards();
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
    let view = View::with(&dir, &["shards", "--metrics", &url], &[]);
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
fn video_is_served_by_byte_ranges() {
    let dir = TestDir::new();
    let video = [&b"\0\0\0\x18ftypisom"[..], &[7; 9_000_000]].concat();
    dir.write("tree/a.mp4", &video);
    dir.write("tree/a.txt", "a");
    dir.ok(&["convert", "tree", "tars", "--to", "webdataset"]);
    dir.ok(&["convert", "tree", "mds", "--compression", "none"]);
    for location in ["tars", "mds"] {
        let view = View::start(&dir, location, &[]);
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
fn token_ids_are_decoded_with_a_tokenizer() {
    let dir = TestDir::new();
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
    dir.write("tokenizer.json", tokenizer.to_string());
    dir.write("data/a.jsonl", "{\"ids\": [2, 0], \"name\": \"x\"}\n");
    dir.ok(&["convert", "data", "shards"]);
    for location in ["data", "shards"] {
        let view = View::with(&dir, &[location, "--tokenizer", "tokenizer.json"], &[]);
        let fields = view.fields(0);
        assert_eq!(fields["ids"]["decoded"], "blue red", "{location}: {fields}");
        assert_eq!(fields["name"].get("decoded"), None);
    }
}

#[test]
fn exported_report_is_self_contained() {
    let dir = TestDir::with_tars();
    let bmp = [&b"GIF89a\x01\0\x01\0"[..], &[0; 10]].concat();
    dir.write("tree/a/0.gif", bmp);
    dir.write("tree/a/0.html", "</script><script>alert(1)</script>");
    dir.ok(&[
        "convert",
        "tree",
        "images",
        "--to",
        "webdataset",
        "--nulls",
        "omit",
    ]);
    let ran = dir.run(&["view", "images", "--export", "report.html", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let page = String::from_utf8(dir.read("report.html")).unwrap();
    assert!(page.contains("data:image/gif;base64,"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("src=\"http") && !page.contains("connect-src"));
    assert_eq!(
        dir.run(&["view", "images", "--export", "."]).error_id(),
        "config-export"
    );
    assert_eq!(
        dir.run(&["view", "images", "--export", "none/a.html"])
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
fn invalid_view_options_are_errors() {
    let dir = TestDir::with_shards();
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
        let ran = dir.run(args);
        assert_eq!(ran.error_id(), id, "{args:?}: {}", ran.stderr);
    }
    let view = View::start(&dir, "shards", &[]);
    let port = view.address.port().to_string();
    let ran = dir.run(&["view", "shards", "--port", &port]);
    assert!(
        ran.stderr.contains(&format!("127.0.0.1:{port}")),
        "{}",
        ran.stderr
    );
    assert_ne!(ran.code, 0);
}
