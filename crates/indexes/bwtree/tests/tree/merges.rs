//! Which pages are merged.

use pando_bwtree::{BwTrees, CasBwTrees, Options};
use pando_index::RangeIndex;
use pando_pmem::Process;
use pando_tree::maps::{IndexKind, Tree};

use crate::common::watchdog::within_bounds;
use crate::common::{Fixture, check, dump, key, small, small_plain, value};

/// The order of the removes.
#[derive(Clone, Copy, Debug)]
enum Removal {
    Ascending,
    Descending,
    Random,
    /// By four threads, each a quarter of the keys, while a fifth thread writes and removes keys of
    /// its own.
    Together,
}

/// Bw-tree: merges that are disabled because they are broken, or that stop halfway. When all
/// records are removed, in any order, one leaf remains, at the root, and no block except that
/// leaf's and the mapping table's.
#[test]
fn an_emptied_tree_is_one_leaf() {
    fn empty<K: IndexKind<Options = Options>>(options: Options, removal: Removal) {
        const KEYS: u64 = 1_200;
        let fixture = Fixture::<Process, K>::anonymous(options);
        let name = |number: u64| {
            let tail = [&b""[..], b"odd", b"", &[b'k'; 32], b"", &[b'l'; 80], b""];
            [&key(number), tail[(number * 2 % 7) as usize]].concat()
        };
        let insert = |number: u64| {
            fixture.index.upsert(&name(number), &value(number)).expect("writes");
        };
        let remove = |number: u64| {
            assert!(fixture.index.remove(&name(number)).expect("removes"), "key {number}");
        };
        (0..KEYS).for_each(|place| insert(place * 89 % KEYS));
        let shape = || fixture.index.audit().expect("audits").stat;
        let full = shape();
        assert!(full.height > 2 && full.leaves > 40, "{full:?}");
        match removal {
            Removal::Ascending => (0..KEYS).for_each(remove),
            Removal::Descending => (0..KEYS).rev().for_each(remove),
            Removal::Random => (0..KEYS).for_each(|place| remove(place * 7919 % KEYS)),
            Removal::Together => std::thread::scope(|scope| {
                let (remove, insert) = (&remove, &insert);
                for thread in 0..4 {
                    scope.spawn(move || {
                        // Two threads meet in each leaf.
                        for place in 0..KEYS / 4 {
                            let place = if thread < 2 { place } else { KEYS / 4 - 1 - place };
                            remove(place * 4 + thread);
                        }
                    });
                }
                scope.spawn(move || {
                    for round in 0..200 {
                        let own = KEYS + round % 3 * 50;
                        (own..own + 20).for_each(insert);
                        (own..own + 20).for_each(remove);
                    }
                });
            }),
        }
        let left = shape();
        assert_eq!(
            (left.height, left.leaves, left.inner_nodes),
            (1, 1, 0),
            "{full:?}, then {left:?}"
        );
        check(&fixture);
        // The anchor, segments, the leaf.
        let blocks = fixture.index.audit().expect("audits").blocks;
        let others = blocks.iter().filter(|block| block.bytes != 4096).count();
        assert!(others <= 3, "{blocks:?}");
        insert(7);
        assert_eq!(dump(&fixture.index).len(), 1);
    }
    let few_children = Options { inner_bytes: 128, ..small() };
    let blocks = Options { chain_deltas: 2, delta_bytes: 0, ..few_children };
    // Smaller than the header of every page, so that only bare pages are merged.
    let only_bare = Options { merge_bytes: 1, ..small() };
    for removal in [Removal::Ascending, Removal::Descending, Removal::Random, Removal::Together] {
        within_bounds("small", move || empty::<BwTrees>(small(), removal));
        within_bounds("few children", move || empty::<BwTrees>(few_children, removal));
        within_bounds("only bare", move || empty::<BwTrees>(only_bare, removal));
        within_bounds("plain", move || empty::<BwTrees>(small_plain(), removal));
        within_bounds("blocks", move || empty::<BwTrees>(blocks, removal));
        within_bounds("CAS", move || empty::<CasBwTrees>(small(), removal));
        within_bounds("CAS, few children", move || empty::<CasBwTrees>(few_children, removal));
        within_bounds("CAS, blocks", move || empty::<CasBwTrees>(blocks, removal));
    }
}
