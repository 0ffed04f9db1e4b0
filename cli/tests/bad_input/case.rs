//! Defines a case of the catalogue, how it is run, and what must hold for every case.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use shardmill_testing::files::Snapshot;
use shardmill_testing::mds;
use shardmill_testing::process::{self, Ended};
use shardmill_testing::s3::{Objects, S3Server, Script, Settings};
use tempfile::TempDir;

/// The most processor time of a command with bad input. Wall clock time is not checked, because the machine may be
/// busy.
const MAX_CPU: Duration = Duration::from_secs(5);
/// The time after which a command counts as hanging.
const MAX_WALL: Duration = Duration::from_secs(20);
/// The most memory of a command with bad input.
const MAX_MEMORY: u64 = 512 << 20;
/// The number of commands that run in parallel.
const JOBS: usize = 2;

/// A temporary directory for one case, in which its commands run.
pub struct TestDir {
    dir: TempDir,
    /// Additional environment variables of the commands.
    env: Mutex<BTreeMap<String, String>>,
    /// Kept alive while the commands run.
    server: Mutex<Option<S3Server>>,
}

impl TestDir {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            env: Mutex::default(),
            server: Mutex::default(),
        }
    }

    /// Serves the folder `store` as `s3://bucket`.
    pub fn serve(&self, faults: Script) {
        let settings = Settings {
            faults,
            ..Settings::default()
        };
        let server = S3Server::start(Objects::folder("bucket", &self.at("store")), settings);
        let server = server.unwrap();
        self.env.lock().unwrap().extend(server.environment());
        *self.server.lock().unwrap() = Some(server);
    }

    /// Sets an environment variable for the commands.
    pub fn env(&self, name: &str, value: &str) {
        let mut env = self.env.lock().unwrap();
        env.insert(name.to_owned(), value.to_owned());
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.at(name)).unwrap()
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.at(name)).unwrap();
    }

    /// Changes the bytes of a file.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(name);
        change(&mut bytes);
        self.write(name, bytes);
    }

    /// Changes the index of the dataset `shards`.
    pub fn index(&self, change: impl FnOnce(&mut Value)) {
        let dir = self.at("shards");
        let mut index = mds::read_index(&dir).unwrap();
        change(&mut index);
        mds::write_index(&dir, &index).unwrap();
    }

    pub fn fifo(&self, name: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    pub fn link(&self, to: &str, name: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
    }

    /// Runs a command that must succeed, to prepare the case.
    pub fn ok(&self, command: &str) {
        let ended = self.run(&words(command), false);
        assert_eq!(ended.code(), Some(0), "{command}: {}", ended.errors());
    }

    fn run(&self, args: &[String], json: bool) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardmill"));
        command
            .current_dir(self.path())
            .env_remove("RUST_BACKTRACE")
            .envs(&*self.env.lock().unwrap())
            .args(["--progress", "none"]);
        if json {
            command.arg("--json");
        }
        process::run(command.args(args), MAX_WALL).unwrap()
    }
}

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

type Make = Box<dyn Fn(&TestDir, usize) + Send + Sync>;

/// An invalid input, and the expected results of commands.
pub struct Case {
    name: String,
    /// The number of variants, each created in a separate directory.
    variants: usize,
    make: Make,
    expected: Vec<Expected>,
}

/// A command, and the failure that is expected.
struct Expected {
    args: Vec<String>,
    exit: i32,
    /// Whether it may also succeed, because no checksum covers the damage. Its output must then be valid.
    may_succeed: bool,
    /// The ids that may be reported; a single one if the cause is unambiguous.
    ids: Vec<&'static str>,
    /// What the error line must name: a file, a column, a row, an option.
    says: Vec<&'static str>,
}

/// Creates a case with one variant.
pub fn case(name: &str, make: impl Fn(&TestDir) + Send + Sync + 'static) -> Case {
    Case {
        name: name.to_owned(),
        variants: 1,
        make: Box::new(move |dir, _| make(dir)),
        expected: Vec::new(),
    }
}

/// Creates a case with several variants, distinguished by their number.
pub fn sweep(
    name: &str,
    variants: usize,
    make: impl Fn(&TestDir, usize) + Send + Sync + 'static,
) -> Case {
    Case {
        name: name.to_owned(),
        variants,
        make: Box::new(make),
        expected: Vec::new(),
    }
}

impl Case {
    /// Expects a command, given as words, to fail. `ids` are separated by `|`.
    pub fn fails(self, command: &str, exit: i32, ids: &'static str, says: &[&'static str]) -> Self {
        let args = words(command);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.fails_with(&args, exit, ids, says)
    }

    /// As [`Case::fails`], for arguments that contain spaces.
    pub fn fails_with(
        mut self,
        args: &[&str],
        exit: i32,
        ids: &'static str,
        says: &[&'static str],
    ) -> Self {
        self.expected.push(Expected {
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            exit,
            may_succeed: false,
            ids: ids.split('|').collect(),
            says: says.to_vec(),
        });
        self
    }

    /// Expects a command to fail with exit code 3, or to succeed if the damage cannot be detected.
    pub fn survives(self, command: &str, ids: &'static str) -> Self {
        let mut case = self.fails(command, 3, ids, &[]);
        if let Some(last) = case.expected.last_mut() {
            last.may_succeed = true;
        }
        case
    }

    /// Expects every command that reads the dataset `shards` to fail in the same way.
    pub fn unreadable(self, exit: i32, ids: &'static str, says: &[&'static str]) -> Self {
        [
            "inspect --shards shards",
            "inspect shards",
            "cat shards ..",
            "verify shards",
        ]
        .iter()
        .fold(self, |case, command| case.fails(command, exit, ids, says))
    }

    /// Expects `convert in out`, with these options, to fail.
    pub fn unconvertible(
        self,
        options: &str,
        exit: i32,
        ids: &'static str,
        says: &[&'static str],
    ) -> Self {
        self.fails(&format!("convert in out {options}"), exit, ids, says)
    }

    /// Returns the entry in the catalogue, one line for each command.
    fn lines(&self) -> String {
        let variants = if self.variants == 1 {
            String::new()
        } else {
            format!(" (x{})", self.variants)
        };
        let mut text = format!("{}{variants}\n", self.name);
        for expected in &self.expected {
            let args: Vec<String> = expected
                .args
                .iter()
                .map(|arg| {
                    if arg.contains(' ') {
                        format!("'{arg}'")
                    } else {
                        arg.clone()
                    }
                })
                .collect();
            let args = args.join(" ").escape_debug().to_string();
            let exit = if expected.may_succeed {
                format!("0 or {}", expected.exit)
            } else {
                expected.exit.to_string()
            };
            writeln!(text, "    {exit} {}: {args}", expected.ids.join("|")).unwrap();
        }
        text
    }

    /// Runs the commands over one variant, and returns the problems, one on each line.
    fn check(&self, variant: usize) -> Vec<String> {
        let dir = TestDir::new();
        (self.make)(&dir, variant);
        // Commands may change their cache freely.
        let observe = || {
            let all = Snapshot::of(dir.path()).unwrap();
            all.without("cache").without(".cache.shardmill")
        };
        let before = observe();
        let mut wrong = Vec::new();
        for expected in &self.expected {
            for json in [false, true] {
                let ended = dir.run(&expected.args, json);
                let mut problems = expected.check(&ended, json);
                if expected.may_succeed && ended.code() == Some(0) && dir.at("out").exists() {
                    let verified = dir.run(&words("verify out --deep"), false);
                    if verified.code() != Some(0) {
                        problems.push(format!("what it wrote is not sound: {}", verified.errors()));
                    }
                    fs::remove_dir_all(dir.at("out")).unwrap();
                }
                let after = observe();
                problems.extend(
                    before
                        .differences(&after)
                        .into_iter()
                        .map(|line| format!("the command left a change: {line}")),
                );
                if problems.is_empty() {
                    continue;
                }
                let variant = if self.variants == 1 {
                    String::new()
                } else {
                    format!(" (variant {variant})")
                };
                let said = ended.errors();
                let said: String = said
                    .lines()
                    .take(4)
                    .map(|line| {
                        format!("\n        | {}", line.chars().take(300).collect::<String>())
                    })
                    .collect();
                let command = format!(
                    "shardmill {}{}",
                    if json { "--json " } else { "" },
                    expected.args.join(" ").escape_debug()
                );
                wrong.push(format!(
                    "{}{variant}: {command}\n      {}{said}",
                    self.name,
                    problems.join("\n      ")
                ));
                break;
            }
        }
        wrong
    }
}

impl Expected {
    fn check(&self, ended: &Ended, json: bool) -> Vec<String> {
        let mut problems = Vec::new();
        let errors = ended.errors();
        if ended.timed_out {
            problems.push(format!("still running after {MAX_WALL:?}"));
        }
        let succeeded = self.may_succeed && ended.code() == Some(0);
        if ended.code() != Some(self.exit) && !succeeded {
            problems.push(format!(
                "ended with {}, not with exit code {}",
                ended.status, self.exit
            ));
        }
        if errors.contains("panicked") || errors.contains("RUST_BACKTRACE") {
            problems.push("it panicked".to_owned());
        }
        if ended.cpu > MAX_CPU {
            problems.push(format!("took {:?} of processor time", ended.cpu));
        }
        if ended.peak_bytes > MAX_MEMORY {
            problems.push(format!("took {} MiB of memory", ended.peak_bytes >> 20));
        }
        match json {
            _ if succeeded => {}
            true => self.check_json(ended, &mut problems),
            false => self.check_lines(&errors, &mut problems),
        }
        problems
    }

    /// Checks that each line is an error: `error[id]: object: message; hint`.
    fn check_lines(&self, errors: &str, problems: &mut Vec<String>) {
        let mut found = 0;
        for line in errors.lines() {
            if line.starts_with("warning[") {
                continue;
            }
            let Some((id, rest)) = line
                .strip_prefix("error[")
                .and_then(|line| line.split_once("]: "))
            else {
                problems.push(format!("not an error line: {line}"));
                continue;
            };
            found += 1;
            if !self.ids.contains(&id) {
                problems.push(format!("error[{id}], not error[{}]", self.ids.join("|")));
            }
            if rest.chars().any(char::is_control) {
                problems.push("a control character is printed as it is".to_owned());
            }
        }
        if found == 0 {
            problems.push("no error line".to_owned());
        } else if found > 1 && self.args.first().is_none_or(|verb| verb != "verify") {
            problems.push(format!("{found} error lines"));
        }
        // `verify` may report several errors; one of them must name it.
        let lines = || errors.lines().filter(|line| line.starts_with("error["));
        for word in &self.says {
            if !lines().any(|line| line.contains(word)) {
                problems.push(format!("does not name `{word}`"));
            }
        }
    }

    /// Checks the errors as JSON: one object on each line of standard error, or the report of `verify` on standard
    /// output.
    fn check_json(&self, ended: &Ended, problems: &mut Vec<String>) {
        let mut found = Vec::new();
        for line in ended.errors().lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(value) if value.get("error").is_some() => {
                    let error = &value["error"];
                    if error["exit_code"] != self.exit {
                        problems.push(format!(
                            "the exit code in the JSON is {}",
                            error["exit_code"]
                        ));
                    }
                    found.push(error["id"].as_str().unwrap_or_default().to_owned());
                }
                Ok(value) if value.get("warning").is_some() => {}
                _ => problems.push(format!("not a JSON error: {line}")),
            }
        }
        if self.args.first().is_some_and(|verb| verb == "verify") {
            for line in ended.output().lines() {
                let report: Value = serde_json::from_str(line).unwrap_or_default();
                let listed = report["problems"].as_array().cloned().unwrap_or_default();
                found.extend(
                    listed
                        .iter()
                        .map(|problem| problem["id"].as_str().unwrap_or_default().to_owned()),
                );
                if report["ok"] != false {
                    problems.push("the report does not say that there are problems".to_owned());
                }
            }
        }
        if found.is_empty() {
            problems.push("no error as JSON".to_owned());
        }
        for id in found.iter().filter(|id| !self.ids.contains(&id.as_str())) {
            problems.push(format!(
                "the id in the JSON is {id}, not {}",
                self.ids.join("|")
            ));
        }
    }
}

/// Returns the catalogue of a group.
pub fn catalogue(group: &str, cases: &[Case]) -> String {
    let mut text = format!("== {group}\n");
    for case in cases {
        text.push_str(&case.lines());
    }
    text
}

/// Runs all cases of a group, and reports all failures instead of only the first.
pub fn run(group: &str, cases: &[Case]) {
    let only = std::env::var("SHARDMILL_CASE").ok();
    let picked: Vec<(&Case, usize)> = cases
        .iter()
        .filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only)))
        .flat_map(|case| (0..case.variants).map(move |variant| (case, variant)))
        .collect();
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some((case, variant)) = picked.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        case.check(*variant)
                    }));
                    let problems = result.unwrap_or_else(|_| {
                        vec![format!("{}: cannot be made (see above)", case.name)]
                    });
                    wrong.lock().unwrap().extend(problems);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    println!(
        "{group}: {} cases, {} variants, {} wrong, {:.1} s",
        cases.len(),
        picked.len(),
        wrong.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(
        wrong.is_empty(),
        "{} of the {group} cases are wrong:\n\n{}\n",
        wrong.len(),
        wrong.join("\n\n")
    );
}
