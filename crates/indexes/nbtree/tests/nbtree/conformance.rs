//! The conformance suite, with small leaves and with large ones, with write-backs and without.

use pando_pmem::{Adr, Process};

use crate::common::{Options, Planted, small_nodes};

pando_index::conformance_suite! {
    defaults => || Planted::<Process>::anonymous(Options::default());
    process => || Planted::<Process>::in_file(small_nodes());
    adr => || Planted::<Adr>::in_file(small_nodes());
}
