//! The conformance suite, over persistence domains and the three trees of the paper's table 2.

use crate::common::{Planted, small_nodes};
use pando_pmem::{Adr, Process};
use pando_wbtree::{NodeKind, Options};

mod defaults {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Process>::anonymous(Options::default()));
}

mod process_bitmap_only {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Process>::in_file(small_nodes(
        NodeKind::BitmapOnly
    )));
}

mod adr_slot_only {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Adr>::in_file(small_nodes(NodeKind::SlotOnly)));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| Planted::<Adr>::in_file(small_nodes(NodeKind::SlotBitmap)));
}
