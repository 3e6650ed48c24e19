//! All tests by the paper's algorithm.

use pando_pmwcas::Algorithm;

const ALGORITHM: Algorithm = Algorithm::Rdcss;

include!("modules.rs");
