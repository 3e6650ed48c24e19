//! The conformance suite of indexes, on a transactional map of each index.

use std::sync::Arc;

use pando_index::RangeIndex;
use pando_index::conformance::Subject;
use pando_pmem::Domain;
use pando_tc::TransactionalMap;

use crate::common::{Killed, Kind, Stopped, anonymous, check};

/// Each operation is a commit, and the suite's races are made for indexes.
const SCALE: f64 = 0.1;

struct One {
    map: Box<dyn RangeIndex>,
    check: Box<dyn Fn() + Send + Sync>,
}

fn fresh<D: Domain>(kind: Kind<D>) -> One {
    let component = Arc::new(anonymous(kind));
    let index = component.maps().shared(1);
    let map = TransactionalMap::new(component.clone(), 1, index).expect("a map");
    One { map: Box::new(map), check: Box::new(move || check(&component)) }
}

impl Subject for One {
    fn index(&self) -> &dyn RangeIndex {
        &*self.map
    }

    fn check(&self) {
        (self.check)();
    }

    fn scale(&self) -> f64 {
        SCALE
    }
}

mod bztree {
    use super::*;
    pando_index::conformance_suite!(|| fresh(Kind::<Killed>::of::<pando_bztree::BzTrees>()));
}

mod bwtree {
    use super::*;
    pando_index::conformance_suite!(|| fresh(Kind::<Stopped>::of::<pando_bwtree::BwTrees>()));
}

mod nbtree {
    use super::*;
    pando_index::conformance_suite!(|| fresh(Kind::<Stopped>::of::<pando_nbtree::NbTrees>()));
}

mod wbtree {
    use super::*;
    pando_index::conformance_suite!(|| fresh(Kind::<Stopped>::of::<pando_wbtree::WbTrees>()));
}

mod skiplist {
    use super::*;
    pando_index::conformance_suite!(|| fresh(Kind::<Stopped>::of::<pando_skiplist::SkipLists>()));
}
