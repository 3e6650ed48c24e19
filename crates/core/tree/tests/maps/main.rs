//! The catalog of named maps, by each of the algorithms of PMwCAS.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod in_use;

mod direct {
    const ALGORITHM: Algorithm = Algorithm::Direct;
    include!("catalog.rs");
}

mod rdcss {
    const ALGORITHM: Algorithm = Algorithm::Rdcss;
    include!("catalog.rs");
}

mod transactional {
    const ALGORITHM: Algorithm = Algorithm::Transactional;
    include!("catalog.rs");
}
