//! Compiles the few C functions of the BerkeleyDB adapter, when that peer is asked for.

/// Where Debian's libdb5.3-dev puts the header.
#[cfg(feature = "berkeleydb")]
const HEADER: &str = "/usr/include/db.h";

fn main() {
    println!("cargo::rerun-if-changed=src/sides/berkeleydb.c");
    #[cfg(feature = "berkeleydb")]
    berkeleydb();
}

#[cfg(feature = "berkeleydb")]
fn berkeleydb() {
    if !std::path::Path::new(HEADER).exists() {
        println!("cargo::error=the feature berkeleydb needs {HEADER}: install libdb5.3-dev");
        return;
    }
    cc::Build::new().file("src/sides/berkeleydb.c").compile("pando_bdb");
    println!("cargo::rustc-link-lib=db-5.3");
}
