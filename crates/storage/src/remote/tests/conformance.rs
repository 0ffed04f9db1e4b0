//! One list of promises, tested on a directory and on every kind of store.
//!
//! The stores are stubs. With `SHARDMILL_STORES` the same list is tested on real stores: entries are separated by `;`,
//! and each is a name, a URL and settings, separated by spaces. `make test-stores` starts servers and sets it.

use crate::{RetryOptions, UploadOptions};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use shardmill_testing::s3::Flavor;

use super::super::payload::Payload;
use super::super::put::put_whole;
use super::*;
use crate::error::StorageError;
use crate::{Dir, FileHandle, PublishMode};

const MAX_BYTES: u64 = Remote::MAX_LISTED;

/// A directory or a store, with independent access to its contents.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of them in each test"
)]
enum TestStore {
    Folder(Dir),
    Store {
        remote: Remote,
        location: RemoteLocation,
        options: RemoteOptions,
        /// The stub, if it is one.
        server: Option<S3Server>,
    },
}

/// The result of testing a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Yes,
    /// The store does not support it, and the error says so.
    Named,
    /// It cannot be tested here.
    Untried,
}

use Kept::{Named, Untried, Yes};

/// Collects the names below a folder, sorted.
fn walk(dir: &Dir, prefix: &str, into: &mut Vec<(String, u64)>) {
    for name in dir.list().unwrap() {
        let shown = format!("{prefix}{name}");
        match dir.open_dir(&name) {
            Ok(below) => walk(&below, &format!("{shown}/"), into),
            Err(_) => into.push((shown, dir.open_file(&name).unwrap().len())),
        }
    }
}

impl TestStore {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
        match self {
            Self::Folder(dir) => publish(dir, name, bytes, PublishMode::Replace).map(|_| ()),
            Self::Store {
                remote,
                server: Some(server),
                ..
            } if !remote.location().kind().can_write() => {
                let key = remote.location().key(name);
                server.objects().put(&key, bytes.to_vec());
                Ok(())
            }
            Self::Store { remote, .. } => remote.put(name, bytes.to_vec(), &mut cancel),
        }
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, StorageError> {
        match self {
            Self::Folder(dir) => publish(dir, name, bytes, PublishMode::CreateNew),
            Self::Store { remote, .. } => remote.put_new(name, bytes.to_vec(), &mut cancel),
        }
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, StorageError> {
        match self {
            Self::Folder(dir) => dir.open_file(name)?.read_all(64 << 20),
            // A read-only remote never forgets a version, so a new one is opened.
            Self::Store {
                location, options, ..
            } if self.is_read_only() => {
                let fresh = Remote::new(location, options, true)?;
                fresh.read(name, 64 << 20)
            }
            Self::Store { remote, .. } => remote.read(name, 64 << 20),
        }
    }

    fn range(&self, name: &str, from: u64, to: u64) -> Result<Vec<u8>, StorageError> {
        match self {
            Self::Folder(dir) => dir.open_file(name)?.read_range(from, to - from),
            Self::Store { remote, .. } => remote.read_range(name, None, from..to),
        }
    }

    fn size(&self, name: &str) -> Result<Option<u64>, StorageError> {
        match self {
            Self::Folder(dir) => match dir.open_file(name) {
                Ok(file) => Ok(Some(file.len())),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            },
            Self::Store { remote, .. } => remote.size(name, &mut cancel),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StorageError> {
        match self {
            Self::Folder(dir) => {
                let mut found = Vec::new();
                walk(dir, "", &mut found);
                found.retain(|(name, _)| name.starts_with(prefix));
                found.sort();
                Ok(found)
            }
            Self::Store { remote, .. } => {
                let mut found: Vec<_> = remote
                    .list(prefix, MAX_BYTES, &mut cancel)?
                    .into_iter()
                    .map(|object| (object.name, object.bytes))
                    .collect();
                found.sort();
                Ok(found)
            }
        }
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        match self {
            Self::Folder(dir) => dir.remove(name).map(|_| ()),
            Self::Store { remote, .. } => remote.remove(name, &mut cancel),
        }
    }

    fn is_read_only(&self) -> bool {
        matches!(self, Self::Store { remote, .. } if !remote.location().kind().can_write())
    }
}

fn publish(dir: &Dir, name: &str, bytes: &[u8], mode: PublishMode) -> Result<bool, StorageError> {
    use std::io::Write as _;

    let folder = name.rsplit_once('/');
    if let Some((folder, _)) = folder {
        dir.make_dir(folder)?;
    }
    let mut temp = dir.temp_file(folder.map(|(folder, _)| folder))?;
    temp.write_all(bytes).unwrap();
    match temp.publish(name, mode) {
        Ok(()) => Ok(true),
        // Existing bytes are compared, as in a store.
        Err(StorageError::Exists { .. }) if dir.open_file(name)?.read_all(1 << 20)? == bytes => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

type Promise = fn(&TestStore) -> Kept;

/// The promises, with their names in the reference.
const PROMISES: [(&str, Promise); 14] = [
    ("put and get", put_and_get),
    ("ranges", ranges),
    ("head", head),
    ("list", list),
    ("pages", pages),
    ("delete", delete),
    ("create only", create_only),
    ("one of eight creates", one_of_eight),
    ("parts", parts),
    ("a changed object", changed),
    ("odd keys", odd_keys),
    ("keys that are no paths", no_paths),
    ("a missing object", missing),
    ("denied", denied),
];

fn put_and_get(store: &TestStore) -> Kept {
    for bytes in [0, 1, SMALL] {
        let sent = contents(bytes as u64, bytes);
        store.put("put/a", &sent).unwrap();
        assert!(store.get("put/a").unwrap() == sent);
    }
    if let (true, TestStore::Store { remote, .. }) = (store.is_read_only(), store) {
        let error = remote.put("put/a", Vec::new(), &mut cancel).unwrap_err();
        assert_eq!(error.id(), "store-unsupported");
        return Named;
    }
    Yes
}

fn ranges(store: &TestStore) -> Kept {
    let sent = contents(1, SMALL);
    store.put("range", &sent).unwrap();
    for (from, to) in [(0, 1), (10, 1000), (SMALL - 1, SMALL), (0, SMALL)] {
        let read = store.range("range", from as u64, to as u64).unwrap();
        assert!(read == sent[from..to]);
    }
    let past = store.range("range", SMALL as u64 - 1, SMALL as u64 + 1);
    assert!(["body-range", "file-range"].contains(&past.unwrap_err().id()));
    let behind = store.range("range", SMALL as u64, SMALL as u64 + 1);
    let behind = behind.unwrap_err();
    let ids = ["body-length", "body-range", "file-range"];
    assert!(ids.contains(&behind.id()), "{behind:?}");
    Yes
}

fn head(store: &TestStore) -> Kept {
    store.put("head/a", &contents(1, 1234)).unwrap();
    assert_eq!(store.size("head/a").unwrap(), Some(1234));
    assert_eq!(store.size("head/b").unwrap(), None);
    assert_eq!(store.size("hea").unwrap(), None);
    Yes
}

fn list(store: &TestStore) -> Kept {
    let names = ["list/a", "list/a-b", "list/a/b/c", "list/ab", "lisz"];
    for (at, name) in names.iter().enumerate().rev() {
        // A directory cannot have a file and a folder of the same name.
        if *name == "list/a" && matches!(store, TestStore::Folder(_)) {
            continue;
        }
        store.put(name, &contents(1, at)).unwrap();
    }
    let all = match store.list("list/") {
        Ok(all) => all,
        Err(error) => {
            assert_eq!(error.id(), "store-unsupported");
            return Named;
        }
    };
    let expected: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(at, name)| ((*name).to_owned(), at as u64))
        .filter(|(name, _)| name != "lisz")
        .filter(|(name, _)| name != "list/a" || !matches!(store, TestStore::Folder(_)))
        .collect();
    assert_eq!(all, expected);
    // A prefix is a text, not a folder.
    let some = store.list("list/a-").unwrap();
    assert_eq!(some, [("list/a-b".to_owned(), 1)]);
    assert_eq!(store.list("list/none").unwrap(), []);
    Yes
}

fn pages(store: &TestStore) -> Kept {
    let TestStore::Store { remote, server, .. } = store else {
        return Untried;
    };
    // The stubs have seven objects on a page.
    let count = if server.is_some() { 40 } else { 1010 };
    if !remote.can_list() {
        return Named;
    }
    std::thread::scope(|scope| {
        for worker in 0..8 {
            scope.spawn(move || {
                for at in (worker..count).step_by(8) {
                    store.put(&format!("pages/{at:05}"), b"").unwrap();
                }
            });
        }
    });
    let found = store.list("pages/").unwrap();
    let expected: Vec<_> = (0..count).map(|at| (format!("pages/{at:05}"), 0)).collect();
    assert_eq!(found, expected);
    Yes
}

fn delete(store: &TestStore) -> Kept {
    store.put("delete/a", b"1").unwrap();
    store.put("delete/b", b"2").unwrap();
    if store.is_read_only() {
        let error = store.remove("delete/a").unwrap_err();
        assert_eq!(error.id(), "store-unsupported");
        return Named;
    }
    store.remove("delete/a").unwrap();
    assert!(store.get("delete/a").unwrap_err().is_not_found());
    assert_eq!(store.get("delete/b").unwrap(), b"2");
    // Removing it again is not an error.
    store.remove("delete/a").unwrap();
    // The object can be created again.
    store.put("delete/a", b"3").unwrap();
    assert_eq!(store.get("delete/a").unwrap(), b"3");
    Yes
}

fn create_only(store: &TestStore) -> Kept {
    match store.put_new("new/a", b"first") {
        Ok(created) => assert!(created),
        Err(error) => {
            assert_eq!(error.id(), "store-unsupported");
            return Named;
        }
    }
    assert!(!store.put_new("new/a", b"first").unwrap());
    let error = store.put_new("new/a", b"other").unwrap_err();
    assert_eq!((error.id(), error.kind()), ("exists", ErrorKind::Conflict));
    assert_eq!(store.get("new/a").unwrap(), b"first");
    Yes
}

fn one_of_eight(store: &TestStore) -> Kept {
    if store.is_read_only() {
        return Named;
    }
    let results: Vec<_> = std::thread::scope(|scope| {
        let each = (0..8_u8).map(|at| scope.spawn(move || store.put_new("new/race", &[at; 100])));
        let each: Vec<_> = each.collect();
        each.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let winners: Vec<_> = (0..8_u8)
        .filter(|at| matches!(results[usize::from(*at)], Ok(true)))
        .collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    for result in &results {
        if let Err(error) = result {
            assert_eq!(error.id(), "exists");
        }
    }
    assert_eq!(store.get("new/race").unwrap(), [winners[0]; 100]);
    Yes
}

fn parts(store: &TestStore) -> Kept {
    let TestStore::Store { remote, .. } = store else {
        return Untried;
    };
    if !remote.location().kind().can_write() {
        return Named;
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    // Stores require parts of at least 5 MiB.
    let sent = contents(7, 12 << 20);
    std::fs::write(&path, &sent).unwrap();
    let file = FileHandle::open(&path).unwrap();
    remote.put_file("parts/a", &file, &mut cancel).unwrap();
    assert!(remote.read("parts/a", 64 << 20).unwrap() == sent);
    assert_eq!(remote.size("parts/a", &mut cancel).unwrap(), Some(12 << 20));
    Yes
}

fn changed(store: &TestStore) -> Kept {
    let TestStore::Store {
        location, options, ..
    } = store
    else {
        return Untried;
    };
    store.put("changed", &contents(1, 500)).unwrap();
    let reader = Remote::new(location, options, true).unwrap();
    reader.read("changed", 500).unwrap();
    // If only times distinguish versions, they have a resolution of seconds.
    if !matches!(
        store,
        TestStore::Store {
            server: Some(_),
            ..
        }
    ) && location.kind() == crate::StoreKind::Volumes
    {
        return Untried;
    }
    store.put("changed", &contents(2, 500)).unwrap();
    for result in [
        reader.read("changed", 500),
        reader.read_range("changed", None, 0..10),
    ] {
        assert_eq!(result.unwrap_err().id(), "remote-changed");
    }
    Yes
}

fn odd_keys(store: &TestStore) -> Kept {
    let names = [
        "odd/a b+c&d=e;f,g@h$i!j'k(l)m*n",
        "odd/100%25 [x] {y} ~z^`|\"<>",
        "odd/日本語/ключ/ü",
        "odd/#hash?query=1",
        "odd/.hidden",
        "odd/a...b",
    ];
    for (at, name) in names.iter().enumerate() {
        store.put(name, &[u8::try_from(at).unwrap()]).unwrap();
    }
    for (at, name) in names.iter().enumerate() {
        assert_eq!(
            store.get(name).unwrap(),
            [u8::try_from(at).unwrap()],
            "{name}"
        );
    }
    if store.is_read_only() {
        return Yes;
    }
    let mut expected: Vec<_> = names.iter().map(|name| ((*name).to_owned(), 1)).collect();
    expected.sort();
    assert_eq!(store.list("odd/").unwrap(), expected);
    Yes
}

/// Names with empty parts are refused. Existing objects with such names are listed unchanged.
fn no_paths(store: &TestStore) -> Kept {
    for name in ["a//b", "/a", "a/", "a/../b", "./a"] {
        let error = store.get(name).unwrap_err();
        assert!(error.id().starts_with("path-"), "{name} {error:?}");
    }
    let TestStore::Store { remote, .. } = store else {
        return Yes;
    };
    let kind = remote.location().kind();
    // A volume is a tree, which cannot have such names.
    if !remote.location().kind().can_write() || kind == crate::StoreKind::Volumes {
        return Yes;
    }
    for name in ["paths/a//b", "paths/folder/"] {
        let key = remote.location().key(name);
        let put = remote.wait_while(name, &mut cancel, |live, _| async move {
            let payload = Payload::new(live.signer.kind(), b"1".to_vec())?;
            put_whole(&live, &key, &payload, &Arc::default()).await
        });
        put.unwrap();
    }
    let expected = ["paths/a//b", "paths/folder/"].map(|name| (name.to_owned(), 1));
    assert_eq!(store.list("paths/").unwrap(), expected);
    Yes
}

fn missing(store: &TestStore) -> Kept {
    for result in [store.get("none"), store.range("none", 0, 1)] {
        let error = result.unwrap_err();
        assert!(error.is_not_found());
        assert_eq!(
            (error.id(), error.kind()),
            ("not-found", ErrorKind::NotFound)
        );
    }
    Yes
}

fn denied(store: &TestStore) -> Kept {
    let TestStore::Store {
        location,
        options,
        server,
        ..
    } = store
    else {
        return Untried;
    };
    store.put("denied", b"1").unwrap();
    let mut options = options.clone();
    match server {
        Some(server) => server.set(Settings {
            faults: Script::always(Fault::status(403)),
            page: Some(7),
            ..Settings::default()
        }),
        // Only one of the emulators checks keys.
        None if location.kind() == crate::StoreKind::Azure => {
            let name = "AZURE_STORAGE_ACCOUNT_KEY".to_owned();
            options.settings.insert(name, "c2VjcmV0".to_owned());
        }
        None => return Untried,
    }
    let reader = Remote::new(location, &options, true).unwrap();
    let error = reader.read("denied", 10).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("credentials", ErrorKind::Permission)
    );
    if let Some(server) = server {
        server.set(Settings {
            page: Some(7),
            ..Settings::default()
        });
    }
    Yes
}

fn options(settings: BTreeMap<String, String>) -> RemoteOptions {
    RemoteOptions {
        upload: UploadOptions {
            split_above: 6 << 20,
            part_bytes: 5 << 20,
            ..UploadOptions::default()
        },
        retry: RetryOptions {
            back_off: Duration::from_millis(1),
            ..RetryOptions::default()
        },
        settings,
        ..RemoteOptions::default()
    }
}

/// A stub store with seven objects on a page.
fn ours(flavor: Flavor) -> TestStore {
    let bucket = match flavor {
        Flavor::Files => "main/default/volume",
        _ => "bucket",
    };
    let settings = Settings {
        flavor,
        page: Some(7),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::memory(bucket, []), settings).unwrap();
    let options = options(server.environment());
    let location = remote_location(&format!("{}/some/where", server.url()));
    TestStore::Store {
        remote: Remote::new(&location, &options, true).unwrap(),
        location,
        options,
        server: Some(server),
    }
}

fn keeps(store: &TestStore, others: &[(&str, Kept)]) {
    for (name, promise) in PROMISES {
        let expected = others.iter().find(|(other, _)| *other == name);
        let expected = expected.map_or(Yes, |(_, kept)| *kept);
        assert_eq!(promise(store), expected, "{name}");
    }
}

#[test]
fn directory() {
    let root = tempfile::tempdir().unwrap();
    let store = TestStore::Folder(Dir::open(root.path()).unwrap());
    let untried = ["pages", "parts", "a changed object", "denied"];
    keeps(&store, &untried.map(|name| (name, Untried)));
}

#[test]
fn s3() {
    keeps(&ours(Flavor::S3), &[]);
}

#[test]
fn google() {
    keeps(&ours(Flavor::Google), &[]);
}

#[test]
fn google_with_hmac_key() {
    keeps(&ours(Flavor::GoogleXml), &[]);
}

#[test]
fn azure() {
    keeps(&ours(Flavor::Azure), &[]);
}

#[test]
fn volumes() {
    keeps(&ours(Flavor::Files), &[]);
}

#[test]
fn web_server() {
    let named = [
        "put and get",
        "list",
        "pages",
        "delete",
        "create only",
        "one of eight creates",
        "parts",
    ];
    keeps(&ours(Flavor::Web), &named.map(|name| (name, Named)));
}

/// Tests the promises on real stores. Prints a table with one line per store and promise.
#[test]
fn real_stores() {
    let Ok(list) = std::env::var("SHARDMILL_STORES") else {
        println!("SKIP SHARDMILL_STORES is not set; make test-stores starts servers and sets it");
        return;
    };
    let mut broken = Vec::new();
    for entry in list.split(';').filter(|entry| !entry.trim().is_empty()) {
        let mut words = entry.split_whitespace();
        let (name, url) = (words.next().unwrap(), words.next().unwrap());
        // Promises that the emulator does not support.
        let mut skipped = "";
        let settings = words
            .filter(|word| match word.strip_prefix("SKIP=") {
                Some(names) => {
                    skipped = names;
                    false
                }
                None => true,
            })
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = settings.collect();
        let options = options(settings);
        let location = remote_location(url).join(&format!("run-{:x}", crate::random_number()));
        let store = TestStore::Store {
            remote: Remote::new(&location, &options, true).unwrap(),
            location,
            options,
            server: None,
        };
        for (promise, run) in PROMISES {
            let began = Instant::now();
            let skip = skipped
                .split(',')
                .any(|name| name.replace('_', " ") == promise);
            let kept = match skip {
                true => Ok(Untried),
                false => catch_unwind(AssertUnwindSafe(|| run(&store))),
            };
            let shown = match kept {
                Ok(Yes) => "yes",
                Ok(Named) => "named error",
                Ok(Untried) => "not tried",
                Err(_) => {
                    broken.push(format!("{name}: {promise}"));
                    "NO"
                }
            };
            let took = began.elapsed().as_millis();
            println!("TABLE\t{name}\t{promise}\t{shown}\t{took} ms");
        }
    }
    assert_eq!(broken, [""; 0]);
}
