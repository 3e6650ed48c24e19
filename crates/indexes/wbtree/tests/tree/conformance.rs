//! The conformance suite, over persistence domains and the three trees of the paper's table 2.

use crate::common::{Planted, small_nodes};
use pando_pmem::{Adr, Process};
use pando_wbtree::{NodeKind, Options};

pando_index::conformance_suite! {
    defaults => || Planted::<Process>::anonymous(Options::default());
    process_bitmap_only => || Planted::<Process>::in_file(small_nodes(NodeKind::BitmapOnly));
    adr_slot_only => || Planted::<Adr>::in_file(small_nodes(NodeKind::SlotOnly));
    adr => || Planted::<Adr>::in_file(small_nodes(NodeKind::SlotBitmap));
}
