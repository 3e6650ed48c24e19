//! The conformance suite, over persistence domains and the three trees of the paper's table 2.

use crate::common::{Fixture, small_nodes};
use pando_pmem::{Adr, Process};
use pando_wbtree::{NodeKind, Options};

pando_index::conformance_suite! {
    defaults => || Fixture::<Process>::anonymous(Options::default());
    process_bitmap_only => || Fixture::<Process>::in_file(small_nodes(NodeKind::BitmapOnly));
    adr_slot_only => || Fixture::<Adr>::in_file(small_nodes(NodeKind::SlotOnly));
    adr => || Fixture::<Adr>::in_file(small_nodes(NodeKind::SlotBitmap));
}
