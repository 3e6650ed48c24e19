//! PMwCAS from outside: its calls, its policies, many threads, a crash at every write, threads
//! that stop for ever or come late.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use pando_pmwcas::Algorithm;

/// `tests/direct.rs` and `tests/rdcss.rs` run the same by the others.
const ALGORITHM: Algorithm = Algorithm::Transactional;

include!("modules.rs");
