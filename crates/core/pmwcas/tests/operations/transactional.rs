//! All tests by hardware transactions, where the processor has them.

use std::io::Write;

use pando_pmem::rtm;
use pando_pmwcas::Algorithm;

const ALGORITHM: Algorithm = Algorithm::Transactional;

/// Notes if the processor commits no transaction. Then the tests of this module run the direct
/// algorithm. With `PANDO_REQUIRE` set, the test fails instead.
#[test]
fn the_processor_commits_transactions() {
    if !rtm::is_available() {
        assert!(std::env::var_os("PANDO_REQUIRE").is_none(), "this processor commits none");
        // Written to standard error directly: the harness shows no output of a test that passes.
        let note = "note: this processor commits no hardware transaction; transactional:: tests the way beside them";
        writeln!(std::io::stderr(), "{note}").expect("standard error");
    }
}

include!("modules.rs");
