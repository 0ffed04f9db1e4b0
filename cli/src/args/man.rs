use clap::Args;

/// Print the manual pages
///
/// Without --out, all pages one after the other on standard output.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ManArgs {
    /// Write one file a page into this directory: shardmill.1, shardmill-convert.1, ...
    #[arg(long, value_name = "DIR")]
    pub out: Option<String>,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Read it:
    shardmill man | man -l -

  Install the pages:
    shardmill man --out ~/.local/share/man/man1";
