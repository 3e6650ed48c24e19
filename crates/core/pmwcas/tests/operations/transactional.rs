//! All of it by hardware transactions, where the processor has them.

use std::io::Write;

use pando_pmem::rtm;
use pando_pmwcas::Algorithm;

const ALGORITHM: Algorithm = Algorithm::Transactional;

/// Says whether the tests of this module are of transactions or of the way beside them, which an
/// operation takes where the processor commits none. With `PANDO_REQUIRE` set it fails there.
#[test]
fn the_processor_commits_transactions() {
    if !rtm::is_available() {
        assert!(std::env::var_os("PANDO_REQUIRE").is_none(), "this processor commits none");
        // Past the harness, which shows nothing of a test that passes.
        let note = "note: this processor commits no hardware transaction; transactional:: tests the way beside them";
        writeln!(std::io::stderr(), "{note}").expect("standard error");
    }
}

include!("modules.rs");
