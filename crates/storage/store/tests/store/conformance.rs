//! The conformance suite of indexes, while another thread empties the cache all the time.

use crate::common::Emptied;

pando_index::conformance_suite!(Emptied::new);
