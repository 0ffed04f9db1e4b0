//! Where the credentials of a store come from: the options `--profile`, `--region` and `--endpoint-url`, and `doctor`.

use shardmill_testing::s3::{Objects, S3Server, Settings};
use shardmill_testing::stub::Stub;

use crate::common::{Ran, TestDir};

const CONFIG: &str = "[default]\nregion = eu-west-1\n\
    [profile train]\nregion = eu-west-1\nrole_arn = arn:aws:iam::1:role/train\nsource_profile = keys\n\
    [profile keys]\naws_access_key_id = one\naws_secret_access_key = hush\n";

fn server() -> S3Server {
    S3Server::start(Objects::memory("bucket", []), Settings::default()).unwrap()
}

/// Runs a command with a home directory that has profiles, and without other settings.
fn run(dir: &TestDir, args: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = dir.command();
    for (name, _) in std::env::vars() {
        if name.starts_with("AWS_") || name.starts_with("S3_") {
            command.env_remove(name);
        }
    }
    command
        .args(args)
        .env("HOME", dir.path())
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(environment.iter().copied());
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!all.contains("hush"), "{all}");
    ran
}

fn dir() -> TestDir {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path().join(".aws")).unwrap();
    dir.write(".aws/config", CONFIG);
    dir
}

#[test]
fn doctor_reports_the_credential_source() {
    let (server, dir) = (server(), dir());
    let endpoint = server.endpoint();
    let doctor = |more: &[&str], environment: &[(&str, &str)]| {
        let args = ["doctor", "s3://bucket", "--endpoint-url", &endpoint];
        let ran = run(&dir, &[&args[..], more].concat(), environment);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    let line = |shown: &str| {
        let mut lines = shown.lines();
        lines.find_map(|line| line.strip_prefix("credentials: ").map(str::to_owned))
    };
    let keys = [
        ("AWS_ACCESS_KEY_ID", "env"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
    ];
    let options = [
        "--storage-option",
        "AWS_ACCESS_KEY_ID=key",
        "--storage-option",
        "AWS_SECRET_ACCESS_KEY=hush",
    ];
    for (more, environment, expected) in [
        (
            &["--profile", "keys"][..],
            &keys[..],
            "profile \"keys\" in ~/.aws/config",
        ),
        (&[], &keys, "AWS_ACCESS_KEY_ID in the environment"),
        (&options, &keys, "AWS_ACCESS_KEY_ID of the storage options"),
        (
            &[],
            &[("AWS_SKIP_SIGNATURE", "true")],
            "none, requests are not signed (AWS_SKIP_SIGNATURE is set)",
        ),
    ] {
        assert_eq!(line(&doctor(more, environment)).as_deref(), Some(expected));
    }

    let sts = Stub::start(|_| {
        let body = "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>two</AccessKeyId>\
            <SecretAccessKey>hush</SecretAccessKey><SessionToken>hush</SessionToken>\
            <Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>";
        (200, body.to_owned())
    })
    .unwrap();
    let url = sts.url();
    let environment = [("AWS_ENDPOINT_URL_STS", url.as_str())];
    let shown = line(&doctor(&["--profile", "train"], &environment)).unwrap();
    let start = "profile \"train\" in ~/.aws/config (role arn:aws:iam::1:role/train, expires in ";
    assert!(
        shown.starts_with(start) && shown.ends_with(" days)"),
        "{shown}"
    );
    let json = doctor(&["--profile", "train", "--json"], &environment);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["credentials"],
        serde_json::json!({
            "source": "profile",
            "name": "profile \"train\" in ~/.aws/config",
            "profile": "train",
            "role": "arn:aws:iam::1:role/train",
            "facts": [],
            "expires": 32_472_144_000_u64,
        })
    );
    // A directory needs none.
    let ran = run(&dir, &["doctor", "."], &[]);
    assert_eq!(line(&ran.stdout), None);
}

#[test]
fn invalid_credential_options_are_errors() {
    let dir = dir();
    let ran = run(&dir, &["doctor", "s3://bucket", "--profile", "absent"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("url-profile"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("\"default\", \"keys\", \"train\""),
        "{}",
        ran.stderr
    );
    for (option, value, expected) in [
        ("--profile", "", "the value is empty"),
        ("--region", "no/region", "AWS_REGION cannot have this value"),
        (
            "--endpoint-url",
            "ftp://x",
            "the scheme \"ftp\" is not supported",
        ),
        (
            "--endpoint-url",
            "http://store.lan",
            "connections would be open",
        ),
    ] {
        let ran = run(
            &dir,
            &["inspect", "--shards", "s3://bucket", option, value],
            &[],
        );
        assert_eq!(ran.code, 2, "{option}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{option}: {}", ran.stderr);
    }
    dir.write(".aws/config", "[default]\nhush\n");
    let ran = run(&dir, &["inspect", "--shards", "s3://bucket"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("~/.aws/config"), "{}", ran.stderr);
    assert!(ran.stderr.contains("line 2: expected"), "{}", ran.stderr);
}
