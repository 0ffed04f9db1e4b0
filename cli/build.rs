//! Leaves debug information out of the program, but for the names of functions: with that of the query engine
//! it would be ten times the size. The libraries keep theirs, for tests and profilers.

fn main() {
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-debug");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
