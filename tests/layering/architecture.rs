//! Writes the table of crates of `docs/architecture.md` from [`ROOMS`](crate::rooms::ROOMS) and the manifests, and
//! finds files that documents name although they do not exist.
//!
//! The manifest of a crate says what the crate does (`description`); the table of rooms says on which floor it is and
//! which crates it uses.

use std::path::Path;

use cargo_metadata::Metadata;

use crate::rooms::{Floor, ROOMS};

const START: &str = "<!-- The table is generated: UPDATE_DOCS=1 cargo test --test layering -->\n\n";
const END: &str = "\n<!-- End of the generated table. -->";

/// Returns `page` with the table of crates as it has to be; `None` if `page` lacks the markers.
pub fn with_table(page: &str, metadata: &Metadata) -> Option<String> {
    let (before, rest) = page.split_once(START)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{START}{}{END}{after}", table(metadata)))
}

fn table(metadata: &Metadata) -> String {
    let root = metadata.workspace_root.as_path();
    let mut lines = vec![
        "| floor | crate | what it does | uses |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    let mut rooms: Vec<_> = ROOMS.iter().collect();
    rooms.sort_by_key(|room| std::cmp::Reverse(room.floor));
    for room in rooms {
        let Some(package) = metadata
            .packages
            .iter()
            .find(|package| package.name.as_str() == room.name)
        else {
            continue;
        };
        let folder = package
            .manifest_path
            .parent()
            .and_then(|folder| folder.strip_prefix(root).ok())
            .map_or_else(String::new, ToString::to_string);
        let uses = match room.floor {
            Floor::Suite => "everything".to_owned(),
            _ => {
                let used: Vec<_> = room.uses.iter().map(|used| short(used)).collect();
                used.join(", ")
            }
        };
        lines.push(format!(
            "| {} | `{folder}` | {} | {uses} |",
            floor(room.floor),
            package.description.as_deref().unwrap_or_default(),
        ));
    }
    lines.join("\n") + "\n"
}

fn short(name: &str) -> &str {
    match name.strip_prefix("shardmill-") {
        Some(short) => short,
        None => "cli",
    }
}

fn floor(floor: Floor) -> String {
    format!("{floor:?}").to_lowercase()
}

/// Returns the source files that the documents below `folder` name and that are missing below `root`.
///
/// A source file is named by its path from the root, in backticks. Decisions describe the tree of their date.
pub fn missing_files(root: &Path, folder: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("decisions") {
            missing.extend(missing_files(root, &path));
        } else if path.extension().is_some_and(|ending| ending == "md") {
            let text = std::fs::read_to_string(&path).expect("documents are readable");
            missing.extend(
                text.split('`')
                    .filter(|quoted| is_source(quoted) && !root.join(quoted).exists())
                    .map(|quoted| format!("{}: {quoted}", path.display())),
            );
        }
    }
    missing
}

fn is_source(quoted: &str) -> bool {
    const FOLDERS: [&str; 5] = [
        "cli/",
        "crates/",
        "formats/",
        "python/src/",
        "python/shardmill/",
    ];
    FOLDERS.iter().any(|folder| quoted.starts_with(folder)) && !quoted.contains(['{', '*', ' '])
}
