//! Provides the sources, the settings, and the expected results of undisturbed runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rustix::process::Signal;
use shardmill_testing::draw::Draw;
use shardmill_testing::files::Snapshot;
use shardmill_testing::process::{self, Ended, Running};
use tempfile::TempDir;

/// The time after which a command counts as hanging.
pub const HANGS: Duration = Duration::from_secs(120);

/// How a source is converted.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Shown if it fails.
    pub name: &'static str,
    /// The source's name in the lab.
    pub source: &'static str,
    pub options: &'static [&'static str],
    /// The directories that get an index; `""` for the destination itself.
    pub folders: &'static [&'static str],
}

/// About thirty shards each, in a second or less.
pub const SETTINGS: [Setting; 9] = [
    Setting {
        name: "not compressed",
        source: "table",
        options: &["--compression", "none", "--size-limit", "200kb"],
        folders: &[""],
    },
    Setting {
        name: "zstd:3",
        source: "table",
        options: &[
            "--compression",
            "zstd:3",
            "--size-limit",
            "200kb",
            "--hashes",
            "sha256,xxh64",
        ],
        folders: &[""],
    },
    Setting {
        name: "splits",
        source: "table",
        options: &[
            "--size-limit",
            "200kb",
            "--split",
            "train=0.8,val=0.2",
            "--split-key",
            "id",
        ],
        folders: &["train", "val"],
    },
    Setting {
        name: "rows with nulls dropped",
        source: "holes",
        options: &["--size-limit", "150kb", "--nulls", "drop"],
        folders: &[""],
    },
    Setting {
        name: "JSON lines",
        source: "lines",
        options: &["--size-limit", "120kb", "--compression", "gz:1"],
        folders: &[""],
    },
    Setting {
        name: "a tree",
        source: "tree",
        options: &["--samples-per-shard", "20", "--hashes", "none"],
        folders: &[""],
    },
    Setting {
        name: "tar files of numbered samples",
        source: "table",
        options: &["--to", "webdataset", "--size-limit", "800kb"],
        folders: &[""],
    },
    Setting {
        name: "compressed tar files with keys from a column",
        source: "table",
        options: &[
            "--to",
            "webdataset",
            "--key-column",
            "id",
            "--compression",
            "zstd:1",
            "--size-limit",
            "1mb",
        ],
        folders: &[""],
    },
    Setting {
        name: "tar files of a tree, for every reader",
        source: "tree",
        options: &[
            "--to",
            "webdataset",
            "--samples-per-shard",
            "20",
            "--index-for",
            "wids,dali,open_clip",
        ],
        folders: &[""],
    },
];

/// A conversion that is slow enough to be interrupted in the middle: one thread and a slow compression.
pub const SLOW: Setting = Setting {
    name: "slow",
    source: "table",
    options: &[
        "--compression",
        "zstd:17",
        "--size-limit",
        "200kb",
        "--jobs",
        "1",
    ],
    folders: &[""],
};

/// A directory with the sources, in which commands run.
pub struct Lab {
    dir: TempDir,
}

/// The result of an undisturbed conversion, and how long it took.
pub struct Golden {
    pub setting: Setting,
    pub files: Snapshot,
    pub wall: Duration,
}

impl Golden {
    /// Returns the name of the undisturbed dataset in the lab.
    pub fn dest(&self) -> String {
        format!("golden {}", self.setting.name)
    }

    /// Returns the paths of the indexes in the dataset.
    pub fn indexes(&self) -> impl Iterator<Item = String> {
        let is_table = self.setting.options.contains(&"parquet");
        let name = if is_table {
            ".index.json"
        } else {
            "index.json"
        };
        self.setting
            .folders
            .iter()
            .map(move |folder| match *folder {
                "" => name.to_owned(),
                folder => format!("{folder}/{name}"),
            })
    }
}

/// Removes the numbers of generations from the names and the texts of files, and what depends on the names: the hash of
/// their order.
pub fn without_generations(
    files: impl IntoIterator<Item = (String, Vec<u8>)>,
    how: &str,
) -> BTreeMap<String, Vec<u8>> {
    let mut plain = BTreeMap::new();
    for (real, bytes) in files {
        let name = String::from_utf8(without_generation(real.as_bytes())).unwrap();
        let bytes = match name.rsplit('/').next() {
            Some("index.provenance" | ".index.provenance") => {
                let text = String::from_utf8(bytes).unwrap();
                let lines = text.lines().filter(|line| !line.contains("\"order\""));
                lines.collect::<Vec<_>>().join("\n").into_bytes()
            }
            _ => without_generation(&bytes),
        };
        assert!(
            plain.insert(name.clone(), bytes).is_none(),
            "{how}: {real} and {name} of another generation"
        );
    }
    plain
}

fn bytes_contain(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

fn without_generation(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        plain.push(*first);
        rest = after;
        let is_number = |rest: &[u8]| {
            rest.len() > 6
                && rest[..5].iter().all(u8::is_ascii_digit)
                && rest[5] == b'-'
                && rest[6].is_ascii_digit()
        };
        if (plain.ends_with(b"shard.") || plain.ends_with(b"shard-")) && is_number(rest) {
            rest = &rest[6..];
        }
    }
    plain
}

impl Lab {
    /// Creates a lab with the sources that these settings need.
    pub fn new(settings: &[Setting]) -> Self {
        let lab = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for name in settings.iter().map(|setting| setting.source) {
            if lab.at(name).exists() {
                continue;
            }
            match name {
                "table" => lab.table("table", None),
                "holes" => lab.table("holes", Some(97)),
                "lines" => lab.lines(),
                "tree" => lab.tree("tree", 600),
                "small tree" => lab.tree("small tree", 40),
                other => panic!("no source {other}"),
            }
        }
        lab
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes two Parquet files of several row groups; every `hole`th text is null.
    fn table(&self, name: &str, hole: Option<usize>) {
        let mut draw = Draw::new(1);
        fs::create_dir(self.at(name)).unwrap();
        for file in 0..2_usize {
            let first = file * 9000;
            let texts = (first..first + 9000).map(|row| {
                let length = 100 + draw.below(300) as usize;
                let text = draw.text(length);
                hole.is_none_or(|hole| row % hole != 1).then_some(text)
            });
            let columns: [ArrayRef; 3] = [
                Arc::new(BinaryArray::from_iter_values(
                    (first..first + 9000).map(|row| Draw::new(row as u64).bytes(40)),
                )),
                Arc::new(Int64Array::from_iter_values(
                    (first..first + 9000).map(|row| row as i64),
                )),
                Arc::new(StringArray::from_iter(texts)),
            ];
            let fields = vec![
                Field::new("blob", DataType::Binary, false),
                Field::new("id", DataType::Int64, false),
                Field::new("text", DataType::Utf8, hole.is_some()),
            ];
            let batch =
                RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.to_vec()).unwrap();
            write_parquet(
                &self.at(&format!("{name}/part-{file}.parquet")),
                &batch,
                2000,
            );
        }
    }

    fn lines(&self) {
        let mut draw = Draw::new(2);
        let mut text = String::new();
        for row in 0..12_000 {
            let length = 100 + draw.below(200) as usize;
            writeln!(
                text,
                "{{\"id\": {row}, \"score\": {}.5, \"text\": \"{}\"}}",
                row * 7 % 1000,
                draw.text(length)
            )
            .unwrap();
        }
        fs::create_dir(self.at("lines")).unwrap();
        fs::write(self.at("lines/rows.jsonl"), text).unwrap();
    }

    fn tree(&self, name: &str, samples: usize) {
        let mut draw = Draw::new(3);
        for sample in 0..samples {
            let folder = self.at(&format!("{name}/{:02}", sample % 17));
            fs::create_dir_all(&folder).unwrap();
            let length = 50 + draw.below(4000) as usize;
            fs::write(folder.join(format!("{sample:04}.txt")), draw.text(length)).unwrap();
            fs::write(folder.join(format!("{sample:04}.bin")), draw.bytes(length)).unwrap();
        }
    }

    /// Returns the command of the program, run in this lab.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardmill"));
        command
            .current_dir(self.path())
            .env_remove("RUST_BACKTRACE")
            .args(["--progress", "none"]);
        command
    }

    /// Returns the command of a conversion.
    pub fn convert(&self, setting: &Setting, dest: &str) -> Command {
        let mut command = self.command();
        command
            .args(["convert", setting.source, dest])
            .args(setting.options);
        command
    }

    pub fn run(&self, command: &mut Command) -> Ended {
        let ended = process::run(command, HANGS).unwrap();
        assert!(!ended.timed_out, "{command:?} does not end");
        assert!(
            !ended.errors().contains("panicked"),
            "{command:?}: {}",
            ended.errors()
        );
        ended
    }

    /// Runs a conversion that must succeed.
    pub fn ok(&self, setting: &Setting, dest: &str, more: &[&str]) -> Ended {
        let ended = self.run(self.convert(setting, dest).args(more));
        assert_eq!(
            ended.code(),
            Some(0),
            "{setting:?} {more:?}: {}",
            ended.errors()
        );
        ended
    }

    /// Runs a conversion that must fail with this exit code and this error.
    pub fn fails(
        &self,
        setting: &Setting,
        dest: &str,
        more: &[&str],
        code: i32,
        id: &str,
    ) -> String {
        let ended = self.run(self.convert(setting, dest).args(more));
        expect(&ended, code, id);
        ended.errors()
    }

    pub fn start(&self, command: &mut Command) -> Running {
        Running::start(command).unwrap()
    }

    /// Kills a command some time after its start, and returns whether it was still running. If it was not, it must have
    /// succeeded.
    pub fn kill_after(&self, command: &mut Command, after: Duration) -> bool {
        let mut running = self.start(command);
        running.until(after, || false).unwrap();
        running.signal(Signal::KILL).unwrap();
        let ended = running.end(HANGS).unwrap();
        let code = ended.code();
        assert!(
            matches!(code, None | Some(0)),
            "{command:?} after {after:?}: {}",
            ended.errors()
        );
        code.is_none()
    }

    pub fn snapshot(&self, dest: &str) -> Snapshot {
        Snapshot::of(&self.at(dest)).unwrap()
    }

    /// Returns the result of an undisturbed run of a setting.
    pub fn golden(&self, setting: &Setting) -> Golden {
        let dest = format!("golden {}", setting.name);
        let ended = self.ok(setting, &dest, &[]);
        let files = self.snapshot(&dest);
        let shards = files
            .files()
            .filter(|name| name.to_string_lossy().contains("shard"))
            .count();
        assert!(
            shards >= 20,
            "{}: only {shards} files of shards",
            setting.name
        );
        assert!(!files.has(".shardmill"));
        for folder in setting.folders {
            self.verify(&format!("{dest}/{folder}"));
        }
        Golden {
            setting: *setting,
            files,
            wall: ended.wall,
        }
    }

    /// Returns the result of an undisturbed run of a setting with few shards.
    pub fn golden_of_few(&self, setting: &Setting) -> Golden {
        let dest = format!("golden {}", setting.name);
        let ended = self.ok(setting, &dest, &[]);
        Golden {
            setting: *setting,
            files: self.snapshot(&dest),
            wall: ended.wall,
        }
    }

    /// Verifies a dataset that must be valid.
    pub fn verify(&self, dataset: &str) {
        let ended = self.run(self.command().args(["verify", "--deep", dataset]));
        assert_eq!(
            ended.code(),
            Some(0),
            "verify {dataset}: {}{}",
            ended.output(),
            ended.errors()
        );
    }

    /// Checks the state after an interrupted conversion: each index is complete, and every file that it names exists.
    pub fn check_interrupted(&self, golden: &Golden, dest: &str, how: &str) {
        let left = self.snapshot(dest);
        for folder in golden.setting.folders {
            let index = if folder.is_empty() {
                "index.json".to_owned()
            } else {
                format!("{folder}/index.json")
            };
            if !left.has(&index) {
                continue;
            }
            self.verify(&format!("{dest}/{folder}"));
            let missing: Vec<String> = golden
                .files
                .differences(&left)
                .into_iter()
                .filter(|line| folder.is_empty() || line.starts_with(folder))
                .filter(|line| !line.contains(" is new: "))
                .collect();
            assert!(
                missing.is_empty(),
                "{}, {how}: there is an index, but {missing:?}",
                golden.setting.name
            );
        }
        if !left.has("index.json") && left.has("shard.00000.mds") {
            let ended = self.run(self.command().args(["inspect", "--shards", dest]));
            expect(&ended, 2, "index-missing");
        }
    }

    /// Runs a conversion to its end, and checks that the destination has exactly the expected files.
    pub fn finish(&self, golden: &Golden, dest: &str, more: &[&str], how: &str) -> Ended {
        let ended = self.run(self.convert(&golden.setting, dest).args(more));
        assert_eq!(
            ended.code(),
            Some(0),
            "{}, {how}: {}",
            golden.setting.name,
            ended.errors()
        );
        match more.contains(&"--overwrite") {
            true => self.check_replaced(golden, dest, how),
            false => self.check_golden(golden, dest, how),
        }
        ended
    }

    /// Checks that the destination has exactly the expected files, apart from the generation in their names.
    pub fn check_replaced(&self, golden: &Golden, dest: &str, how: &str) {
        let [found, wanted] =
            [dest, &golden.dest()].map(|dest| without_generations(self.files(dest), how));
        let differs = |name: &&String| found.get(*name) != wanted.get(*name);
        let differing: Vec<&String> = found.keys().chain(wanted.keys()).filter(differs).collect();
        assert!(
            differing.is_empty(),
            "{}, {how}: not what an undisturbed run makes: {differing:?}",
            golden.setting.name
        );
    }

    /// Returns the files of a dataset.
    fn files(&self, dest: &str) -> BTreeMap<String, Vec<u8>> {
        let names = self.snapshot(dest);
        let names = names.files().map(|name| name.to_str().unwrap());
        let files = names.map(|name| {
            let bytes = fs::read(self.at(dest).join(name)).unwrap();
            (name.to_owned(), bytes)
        });
        files.collect()
    }

    /// Checks that the destination has the old or the new dataset, whole. Splits are replaced one after the other.
    pub fn check_old_or_new(&self, old: &Golden, new: &Golden, dest: &str, how: &str) {
        for folder in self.check_files(&self.files(dest), old, new, how) {
            self.verify(&format!("{dest}/{folder}"));
        }
    }

    /// Checks that these files are those of the old or the new dataset, and returns the folders of the indexes.
    pub fn check_files(
        &self,
        found: &BTreeMap<String, Vec<u8>>,
        old: &Golden,
        new: &Golden,
        how: &str,
    ) -> Vec<String> {
        let mut folders = Vec::new();
        let goldens = [old, new].map(|golden| without_generations(self.files(&golden.dest()), how));
        let is_of = |files: &BTreeMap<String, Vec<u8>>, index: &String| {
            let found = found.get(index).map(|bytes| without_generation(bytes));
            found.is_some() && found.as_ref() == files.get(index)
        };
        let indexes: BTreeSet<String> = old.indexes().chain(new.indexes()).collect();
        for index in indexes {
            let Some(text) = found.get(&index) else {
                continue;
            };
            let golden = goldens.iter().find(|golden| is_of(golden, &index));
            let golden = golden.unwrap_or_else(|| panic!("{how}: {index} is of neither dataset"));
            let folder = index.rsplit_once('/').map_or("", |(folder, _)| folder);
            for (name, bytes) in golden {
                let (of, base) = name.rsplit_once('/').unwrap_or(("", name));
                if of != folder || !bytes_contain(&golden[&index], base) {
                    continue;
                }
                let is_there = found.iter().any(|(real, found)| {
                    let base = real.rsplit('/').next().unwrap();
                    without_generation(real.as_bytes()) == name.as_bytes()
                        && bytes_contain(text, base)
                        && found == bytes
                });
                assert!(is_there, "{how}: {name} is missing or differs");
            }
            folders.push(folder.to_owned());
        }
        let [is_old, is_new] = [(old, &goldens[0]), (new, &goldens[1])]
            .map(|(golden, files)| golden.indexes().all(|index| is_of(files, &index)));
        let are_split = [old, new]
            .iter()
            .all(|golden| golden.setting.folders.len() > 1)
            && old.indexes().all(|index| found.contains_key(&index));
        assert!(
            is_old || is_new || are_split,
            "{how}: neither the old nor the new dataset is there, but {:?}",
            found.keys()
        );
        folders
    }

    /// Copies the result of an undisturbed run.
    pub fn restore(&self, golden: &Golden, dest: &str) {
        self.remove(dest);
        for name in golden.files.files() {
            let to = self.at(dest).join(name);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(self.at(&golden.dest()).join(name), to).unwrap();
        }
    }

    pub fn check_golden(&self, golden: &Golden, dest: &str, how: &str) {
        let differences = golden.files.differences(&self.snapshot(dest));
        assert!(
            differences.is_empty(),
            "{}, {how}: not what an undisturbed run makes:\n{}",
            golden.setting.name,
            differences.join("\n")
        );
    }

    pub fn remove(&self, dest: &str) {
        match fs::remove_dir_all(self.at(dest)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{dest}: {error}"),
            _ => {}
        }
    }

    /// Starts a slow conversion, and waits until it has published `shards` shards. It is then still running.
    pub fn in_the_middle(&self, setting: &Setting, dest: &str, shards: usize) -> Running {
        let mut running = self.start(&mut self.convert(setting, dest));
        let there = || {
            fs::read_dir(self.at(dest)).map_or(0, |names| {
                names
                    .flatten()
                    .filter(|name| name.file_name().to_string_lossy().starts_with("shard."))
                    .count()
            })
        };
        assert!(
            running.until(HANGS, || there() >= shards).unwrap(),
            "it ended before {shards} shards were there"
        );
        running
    }
}

/// Expects an exit code and an error. `id` may be several ids separated by `|`.
pub fn expect(ended: &Ended, code: i32, id: &str) {
    // A warning that a lease is awaited may come first.
    let errors = ended.errors();
    let errors: Vec<&str> = errors
        .lines()
        .filter(|line| !line.starts_with("warning[lease-wait]: "))
        .collect();
    let errors = errors.join("\n");
    assert_eq!(
        ended.code(),
        Some(code),
        "{}, not {code} with {id}: {errors}",
        ended.status
    );
    assert!(
        id.split('|')
            .any(|id| errors.starts_with(&format!("error[{id}]: "))),
        "not {id}: {errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

pub fn write_parquet(path: &Path, batch: &RecordBatch, rows: usize) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows))
        .build();
    let mut writer = ArrowWriter::try_new(
        File::create(path).unwrap(),
        batch.schema(),
        Some(properties),
    )
    .unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Returns how many kills, stops or faults a campaign draws.
pub fn rounds() -> usize {
    std::env::var("SHARDMILL_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(25)
}

/// Returns the random numbers of a campaign. Prints the seed, which is thus shown with a failure.
pub fn draw(campaign: &str) -> Draw {
    let seed = Draw::seed_from("SHARDMILL_SEED");
    println!("{campaign}: SHARDMILL_SEED={seed}");
    Draw::new(seed)
}

/// Returns a random time between zero and `most`.
pub fn moment(draw: &mut Draw, max: Duration) -> Duration {
    Duration::from_micros(draw.below(max.as_micros() as u64 + 1))
}
