//! The same as `operations`, without hardware transactions.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use pando_pmwcas::Algorithm;

const ALGORITHM: Algorithm = Algorithm::Direct;

include!("operations/modules.rs");
