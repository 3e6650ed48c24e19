//! The same as `operations`, by the paper's algorithm.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use pando_pmwcas::Algorithm;

const ALGORITHM: Algorithm = Algorithm::Rdcss;

include!("operations/modules.rs");
