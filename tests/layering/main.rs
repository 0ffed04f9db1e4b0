//! Checks the layers of the workspace with `cargo metadata`. Dependencies point only to lower layers, and heavy
//! dependencies stay in their crates. The Arrow family is linked once, and `deny.toml` holds for everything that is
//! linked.
//!
//! The table of crates in `docs/architecture.md` is generated ([`architecture`]).
//!
//! Four checks read the sources. Files of a crate form no import cycle ([`modules`]), structs have few fields
//! ([`shape`]), error ids keep their kinds ([`errors`]), and words that have a plain replacement do not spread
//! ([`glossary`]). The reference pages of the manual are compared with the sources ([`reference`]).
//!
//! The expectations are tables in [`rooms`]. The checks of `deny.toml` are in [`deny`].

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests"
)]

mod architecture;
mod deny;
mod errors;
mod modules;
mod reference;
mod rooms;
mod size;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use rooms::{BUDGETS, Floor, HEAVY, NEVER_INSIDE, ONE_VERSION, ROOMS, Room, TESTING};

/// Metadata for this machine's target only, so that crates of other platforms need not be downloaded.
static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8(version.stdout).expect("rustc speaks UTF-8");
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("rustc names its host");
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .other_options(["--locked", "--filter-platform", host].map(String::from))
        .exec()
        .expect("cargo metadata runs")
});

fn find(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// Returns whether `package` is `family` itself or one of `family-*`.
fn belongs(package: &str, family: &str) -> bool {
    package
        .strip_prefix(family)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Iterates over the names in `package`'s normal and build dependencies.
fn declared(package: &Package) -> impl Iterator<Item = &str> {
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .map(|dependency| dependency.name.as_str())
}

/// Returns everything that is linked into `root` or built for it, without development dependencies, with one path to
/// each.
fn inside(root: &PackageId) -> BTreeMap<&'static PackageId, Vec<String>> {
    let graph = METADATA.resolve.as_ref().expect("metadata has a graph");
    let nodes: BTreeMap<_, _> = graph.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut seen: BTreeMap<&PackageId, Vec<String>> = BTreeMap::new();
    let mut todo = vec![(root, Vec::new())];
    while let Some((id, path)) = todo.pop() {
        for dependency in &nodes[id].deps {
            let linked = dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind != DependencyKind::Development);
            if linked && !seen.contains_key(&dependency.pkg) {
                let mut path = path.clone();
                path.push(METADATA[&dependency.pkg].name.to_string());
                seen.insert(&dependency.pkg, path.clone());
                todo.push((&dependency.pkg, path));
            }
        }
    }
    seen
}

#[test]
fn every_crate_is_in_the_layer_table() {
    let homeless: Vec<_> = METADATA
        .workspace_packages()
        .iter()
        .map(|package| package.name.as_str())
        .filter(|name| find(name).is_none())
        .collect();
    assert_eq!(
        homeless,
        Vec::<&str>::new(),
        "add these crates to tests/layering/rooms.rs"
    );
}

#[test]
fn layer_table_only_allows_lower_layers() {
    let mut wrong = Vec::new();
    for room in ROOMS.iter().filter(|room| room.floor < Floor::Suite) {
        for used in room.uses {
            let below = find(used).expect("tables name rooms");
            if below.floor >= room.floor || *used == TESTING {
                wrong.push(format!(
                    "{} ({:?}) -> {} ({:?})",
                    room.name, room.floor, used, below.floor
                ));
            }
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "arrows lead down, never sideways"
    );
}

#[test]
fn crates_depend_only_on_allowed_lower_layers() {
    let mut wrong = Vec::new();
    for package in METADATA.workspace_packages() {
        let Some(room) = find(&package.name) else {
            continue;
        };
        for used in declared(package).filter(|name| find(name).is_some()) {
            if !room.uses.contains(&used) {
                wrong.push(format!("{} -> {used}", package.name));
            }
        }
        // Tests inside a crate may use the test helpers, and any crate that the crate itself may use.
        for dependency in package
            .dependencies
            .iter()
            .filter(|found| found.kind == DependencyKind::Development)
        {
            let used = dependency.name.as_str();
            if find(used).is_some() && used != TESTING && !room.uses.contains(&used) {
                wrong.push(format!("{} -> {used} (in tests)", package.name));
            }
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "these arrows are not in tests/layering/rooms.rs"
    );
}

#[test]
fn error_ids_and_kinds_match_the_recorded_list() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = errors::read(folder.parent().expect("the repository"));
    let list = folder.join("layering/errors.txt");
    if std::env::var_os("UPDATE_ERRORS").is_some() {
        let text: String = found.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&list, text).expect("errors.txt is writable");
    }
    let text = std::fs::read_to_string(&list).expect("errors.txt is readable");
    let known: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(found.len() > 200, "the ids were found");
    assert!(
        new.is_empty() && gone.is_empty(),
        "error ids or kinds changed; new: {new:?}, gone: {gone:?}; if that is meant, set UPDATE_ERRORS=1 and document them"
    );
}

#[test]
fn architecture_page_lists_all_crates() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/architecture.md");
    let found = std::fs::read_to_string(&page).expect("architecture.md is readable");
    let expected = architecture::with_table(&found, &METADATA).expect("the page has a table");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &expected).expect("architecture.md is writable");
    } else {
        assert!(
            found == expected,
            "docs/architecture.md is out of date: set UPDATE_DOCS=1"
        );
    }
}

#[test]
fn files_named_in_docs_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let missing = architecture::missing_files(&root, &root.join("docs"));
    assert_eq!(missing, Vec::<String>::new(), "files that do not exist");
}

#[test]
fn crate_files_have_no_import_cycles() {
    let mut wrong = Vec::new();
    for package in METADATA.workspace_packages() {
        let folder = package.manifest_path.parent().expect("a folder");
        let cycles = modules::cycles(&modules::arrows(folder.join("src").as_std_path()));
        if !cycles.is_empty() {
            wrong.push(format!("{}: {cycles:?}", package.name));
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "files that import one another; move what they share below them"
    );
}

#[test]
fn crates_keep_their_budgets_of_code_lines() {
    let mut wrong = Vec::new();
    for package in METADATA.workspace_packages() {
        let name = package.name.as_str();
        if find(name).is_none_or(|room| room.floor == Floor::Suite || name == TESTING) {
            continue;
        }
        let folder = package.manifest_path.parent().expect("a folder");
        let lines = size::code_lines(folder.join("src").as_std_path());
        let budget = BUDGETS.iter().find(|(known, _)| *known == name);
        match budget {
            Some((_, budget)) if lines <= *budget => {}
            Some((_, budget)) => wrong.push(format!("{name}: {lines} lines, {budget} allowed")),
            None => wrong.push(format!("{name}: {lines} lines, no budget")),
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "the budgets in tests/layering/rooms.rs: remove code, or move it to another crate and its budget with it"
    );
}

#[test]
fn heavy_dependencies_are_used_only_in_allowed_crates() {
    let mut wrong = Vec::new();
    for package in METADATA.workspace_packages() {
        let is_suite = find(&package.name).is_some_and(|room| room.floor == Floor::Suite);
        for name in declared(package) {
            for heavy in HEAVY.iter().filter(|heavy| belongs(name, heavy.family)) {
                if !is_suite && !heavy.homes.contains(&package.name.as_str()) {
                    wrong.push(format!(
                        "{} -> {name} (lives in {})",
                        package.name,
                        heavy.homes.join(", ")
                    ));
                }
            }
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "heavy dependencies outside their room"
    );
}

#[test]
fn light_crates_do_not_depend_on_heavy_crates() {
    let mut wrong = Vec::new();
    for (name, families) in NEVER_INSIDE {
        let Some(package) = METADATA
            .packages
            .iter()
            .find(|package| package.name.as_str() == *name)
        else {
            continue;
        };
        for (id, path) in inside(&package.id) {
            let found = METADATA[id].name.as_str();
            if families.iter().any(|family| belongs(found, family)) {
                wrong.push(format!("{name} -> {}", path.join(" -> ")));
            }
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "these crates must not reach these dependencies, even through others"
    );
}

#[test]
fn arrow_and_datafusion_crates_have_a_single_version() {
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in &METADATA.packages {
        let name = package.name.as_str();
        if ONE_VERSION.iter().any(|family| belongs(name, family)) {
            versions
                .entry(name)
                .or_default()
                .insert(package.version.to_string());
        }
    }
    assert!(
        versions.contains_key("arrow") && versions.contains_key("datafusion"),
        "the family is there: {versions:?}"
    );
    let twice: Vec<_> = versions
        .iter()
        .filter(|(_, found)| found.len() > 1)
        .collect();
    assert!(twice.is_empty(), "linked twice: {twice:?}");
    // The arrow crates are released together.
    let releases: BTreeSet<_> = versions
        .iter()
        .filter(|(name, _)| {
            (belongs(name, "arrow") || **name == "parquet") && **name != "arrow-avro"
        })
        .flat_map(|(_, found)| found)
        .collect();
    assert_eq!(
        releases.len(),
        1,
        "arrow and parquet move together: {releases:?}"
    );
}

#[test]
fn no_dependency_has_a_banned_version() {
    let bans = deny::bans().expect("deny.toml is readable");
    assert!(bans.len() >= 10, "the list of bans was found");
    let mut wrong = Vec::new();
    for package in &METADATA.packages {
        for ban in bans.iter().filter(|ban| {
            ban.name == package.name.as_str() && ban.versions.matches(&package.version)
        }) {
            wrong.push(format!(
                "{} {}: {}",
                package.name, package.version, ban.reason
            ));
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "banned in deny.toml");
}

#[test]
fn zstd_is_recent_or_has_no_legacy_decoder() {
    let graph = METADATA.resolve.as_ref().expect("metadata has a graph");
    let safe = cargo_metadata::semver::VersionReq::parse(">=8.2.0").expect("a version range");
    for node in &graph.nodes {
        let package = &METADATA[&node.id];
        if package.name.as_str() == "zstd-safe" && !safe.matches(&package.version) {
            let legacy = node.features.iter().any(|feature| **feature == *"legacy");
            assert!(
                !legacy,
                "zstd-safe {} with the feature `legacy`",
                package.version
            );
        }
    }
}

#[test]
fn every_licence_is_allowed() {
    let allowed = deny::licences().expect("deny.toml is readable");
    assert!(
        allowed.contains("Apache-2.0"),
        "the list of licences was found"
    );
    let mut wrong = Vec::new();
    for package in &METADATA.packages {
        let ours = METADATA.workspace_members.contains(&package.id);
        let holds = package
            .license
            .as_deref()
            .is_some_and(|expression| deny::allows(&allowed, expression));
        if !ours && !holds {
            wrong.push(format!(
                "{} {}: {:?}",
                package.name, package.version, package.license
            ));
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "licences that deny.toml does not allow"
    );
}

fn repository() -> &'static std::path::Path {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.parent().expect("the repository")
}

#[test]
fn every_error_id_is_documented() {
    let listed = include_str!("errors.txt");
    let ids: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect();
    let entries = reference::entries(repository());
    let none: Vec<_> = ids.difference(&entries).collect();
    assert!(none.is_empty(), "docs/reference/errors.md lacks {none:?}");
    assert_eq!(
        reference::ids_without_entry(repository()),
        Vec::<String>::new(),
        "docs/reference/errors.md lacks these"
    );
    let literals = reference::literals(repository());
    let stale: Vec<_> = entries
        .iter()
        .filter(|id| !literals.contains(*id) && !ids.contains(*id))
        .collect();
    assert!(stale.is_empty(), "entries without an id: {stale:?}");
}

#[test]
fn every_option_has_a_docs_anchor() {
    let none = reference::options_without_anchor(repository());
    assert_eq!(none, Vec::<String>::new(), "add <a id> under config-option");
}

#[test]
fn docs_list_all_limits_and_environment_variables() {
    let (shown, known) = reference::limits(repository());
    assert_eq!(shown, known, "docs/reference/limits.md");
    let (only_shown, only_used) = reference::variables(repository());
    assert_eq!(only_shown, Vec::<String>::new(), "not in the sources");
    assert_eq!(
        only_used,
        Vec::<String>::new(),
        "not in docs/reference/environment.md"
    );
}

#[test]
fn error_links_use_the_docs_site_url() {
    let config = std::fs::read_to_string(repository().join("mkdocs.yml")).expect("mkdocs.yml");
    let console = repository().join("cli/src/output/console.rs");
    let console = std::fs::read_to_string(console).expect("the console");
    let site = config
        .lines()
        .find_map(|line| line.strip_prefix("site_url: "))
        .expect("site_url");
    assert!(console.contains(&format!("DOCS_URL: &str = \"{site}\"")));
}

/// Returns the packages and features that a build needs, each as `cargo tree` prints it.
fn built(options: &[&str]) -> BTreeSet<String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--quiet",
            "--prefix",
            "none",
        ])
        .args(["--format", "{p} {f}"])
        .args(options)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("cargo speaks UTF-8");
    let lines = text.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// `make demo` builds the program alone, and a wheel has the module alone. What they build serves the tests and the lints too.
#[test]
fn binary_and_python_module_use_workspace_features() {
    let workspace = built(&["--workspace", "--edges", "normal,build,dev"]);
    for package in ["shardmill", "shardmill-python"] {
        let alone = built(&["--package", package, "--edges", "normal,build"]);
        assert!(alone.len() > 200, "{package}: {}", alone.len());
        let twice: Vec<_> = alone.difference(&workspace).collect();
        assert!(
            twice.is_empty(),
            "{package}: built twice, since the workspace has other features: {twice:#?}"
        );
    }
}
