//! The conformance suite of indexes, on a transactional map of each index.

use std::sync::Arc;

use pando_index::RangeIndex;
use pando_index::conformance::Subject;
use pando_pmem::Domain;
use pando_tc::TransactionalMap;
use pando_tree::maps::IndexKind;

use crate::common::{Component, Killed, TwoMaps, anonymous, check};

/// Each operation is a commit, and the suite's races are made for indexes.
const SCALE: f64 = 0.1;

struct One<D: Domain, K: IndexKind> {
    map: TransactionalMap<D, TwoMaps<D, K>>,
    component: Arc<Component<D, K>>,
}

fn fresh<D: Domain, K: IndexKind>() -> One<D, K> {
    let component = Arc::new(anonymous::<D, K>());
    let index = component.maps().shared(1);
    let map = TransactionalMap::new(component.clone(), 1, index).expect("a map");
    One { map, component }
}

impl<D: Domain, K: IndexKind> Subject for One<D, K> {
    fn index(&self) -> &dyn RangeIndex {
        &self.map
    }

    fn check(&self) {
        check(&self.component);
    }

    fn scale(&self) -> f64 {
        SCALE
    }
}

mod bztree {
    use super::*;
    pando_index::conformance_suite!(fresh::<Killed, pando_bztree::BzTrees>);
}

mod bwtree {
    use super::*;
    pando_index::conformance_suite!(fresh::<Killed, pando_bwtree::BwTrees>);
}

mod nbtree {
    use super::*;
    pando_index::conformance_suite!(fresh::<Killed, pando_nbtree::NbTrees>);
}

mod wbtree {
    use super::*;
    pando_index::conformance_suite!(fresh::<Killed, pando_wbtree::WbTrees>);
}

mod skiplist {
    use super::*;
    pando_index::conformance_suite!(fresh::<Killed, pando_skiplist::SkipLists>);
}
