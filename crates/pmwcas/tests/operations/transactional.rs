//! All of it by hardware transactions, where the processor has them.

use pando_pmwcas::Algorithm;

const ALGORITHM: Algorithm = Algorithm::Transactional;

include!("modules.rs");
