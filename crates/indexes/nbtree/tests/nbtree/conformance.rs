//! The conformance suite, with small leaves and with large ones, with write-backs and without.

use pando_pmem::{Adr, Process};

use crate::common::{Fixture, Options, small_nodes};

pando_index::conformance_suite! {
    defaults => || Fixture::<Process>::anonymous(Options::default());
    process => || Fixture::<Process>::in_file(small_nodes());
    adr => || Fixture::<Adr>::in_file(small_nodes());
}
