//! The conformance suite, over persistence domains and the three trees of the paper's table 2.

use crate::common::{anonymous, in_file, small_nodes};
use pando_pmem::{Adr, Process, Volatile};
use pando_wbtree::{NodeKind, Options};

mod volatile_defaults {
    use super::*;
    pando_index::conformance_suite!(|| anonymous::<Volatile>(Options::default()));
}

mod process_bitmap_only {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Process>(small_nodes(NodeKind::BitmapOnly)));
}

mod adr_slot_only {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Adr>(small_nodes(NodeKind::SlotOnly)));
}

mod adr {
    use super::*;
    pando_index::conformance_suite!(|| in_file::<Adr>(small_nodes(NodeKind::SlotBitmap)));
}
