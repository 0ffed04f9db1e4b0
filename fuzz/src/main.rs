//! Runs the target that `FUZZ` names with libFuzzer. With `FUZZ_SEEDS=FOLDER` it writes the seeds of each target to a
//! folder below that one and exits.

#![no_main]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use shardmill_fuzz::{TARGETS, Target, seeds};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| fail(&format!("FUZZ={name}: no such target")))
});

fn fail(message: &str) -> ! {
    #[expect(clippy::print_stderr, reason = "a tool for developers")]
    {
        eprintln!("fuzz: {message}");
    }
    std::process::exit(2)
}

fn write_seeds(folder: &Path) -> std::io::Result<()> {
    for target in TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder)?;
        for (number, bytes) in seeds(target)?.iter().enumerate() {
            fs::write(folder.join(number.to_string()), bytes)?;
        }
    }
    Ok(())
}

libfuzzer_sys::fuzz_target!(
    init: {
        if let Some(folder) = std::env::var_os("FUZZ_SEEDS") {
            match write_seeds(Path::new(&folder)) {
                Ok(()) => std::process::exit(0),
                Err(error) => fail(&error.to_string()),
            }
        }
    },
    |bytes: &[u8]| (TARGET.run)(bytes)
);
