//! All tests without hardware transactions.

use pando_pmwcas::Algorithm;

const ALGORITHM: Algorithm = Algorithm::Direct;

include!("modules.rs");
