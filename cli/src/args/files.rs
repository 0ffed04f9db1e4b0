//! The options that select and group the files of a source.

use clap::Args;
use clap::builder::TypedValueParser;
use shardmill_source::{SourceOptions, TreeGroup};

use super::values;

// Which files of a source are read. No doc comment: it would become the text of the verb.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Files")]
pub struct FileArgs {
    /// Read only the files below a source folder that match this pattern, such as `*.jpg`; repeatable
    ///
    /// `*` and `?` match characters within a name, `**` any number of folders. A pattern without `/` is compared with the
    /// file's name, any other with its path relative to the source. The kind of a source is detected from all its files.
    #[arg(long, value_name = "GLOB", value_parser = values::not_empty)]
    include: Vec<String>,

    /// Ignore the files below a source folder that match this pattern, such as `drafts/**`; repeatable
    #[arg(long, value_name = "GLOB", value_parser = values::not_empty)]
    exclude: Vec<String>,

    /// In a tree of files: group files whose names are the same up to their last dot (`stem`) or up to their first dot,
    /// as in tar shards (`key`), or make each file a sample (`file`)
    #[arg(long, value_name = "HOW", default_value = "stem", value_parser = groups())]
    group: TreeGroup,

    /// In a tree of files: follow symbolic links
    #[arg(long)]
    follow_links: bool,
}

impl FileArgs {
    /// Sets the options of a source.
    pub fn apply(&self, source: &mut SourceOptions) {
        source.files.include.clone_from(&self.include);
        source.files.exclude.clone_from(&self.exclude);
        source.tree.group = self.group;
        source.tree.follow_links = self.follow_links;
    }
}

fn groups() -> impl TypedValueParser<Value = TreeGroup> {
    values::choice([
        ("stem", TreeGroup::Stem),
        ("key", TreeGroup::Key),
        ("file", TreeGroup::File),
    ])
}
