//! Tells the program which commit it was built from, for the conditions that stand beside figures;
//! outside a repository it says nothing. And compiles the few C functions of the BerkeleyDB
//! adapter, when that peer is asked for.

use std::process::Command;

/// Where Debian's libdb5.3-dev puts the header.
#[cfg(feature = "berkeleydb")]
const HEADER: &str = "/usr/include/db.h";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/systems/berkeleydb.c");
    commit();
    #[cfg(feature = "berkeleydb")]
    berkeleydb();
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn commit() {
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=PANDO_BENCH_COMMIT={commit}");
    }
}

#[cfg(feature = "berkeleydb")]
fn berkeleydb() {
    if !std::path::Path::new(HEADER).exists() {
        println!("cargo::error=the feature berkeleydb needs {HEADER}: install libdb5.3-dev");
        return;
    }
    cc::Build::new().file("src/systems/berkeleydb.c").compile("pando_bdb");
    println!("cargo::rustc-link-lib=db-5.3");
}
