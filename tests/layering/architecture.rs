//! Writes the table of crates of `docs/architecture.md` from [`ROOMS`](crate::rooms::ROOMS) and the manifests.
//!
//! The manifest of a crate says what the crate does (`description`); the table of rooms says on which floor it is and
//! which crates it uses.

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
