//! Quick look.
use std::sync::Arc;
use pando_bztree::{BzTree, Options};
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::catalog::MapHeader;
use pando_pmem::{CreateOptions, Domain, Pool, Volatile};
use pando_pmwcas::Pmwcas;

fn tree<D: Domain>(options: Options) -> BzTree<D> {
    let pool = Pool::<D>::anonymous(&CreateOptions::default()).unwrap();
    let pmwcas = Arc::new(Pmwcas::open(pool, &[]).unwrap());
    let guard = pmwcas.pool().pin().unwrap();
    let header = MapHeader { name: "t".into(), kind: 1, options: options.encode() };
    let entry = pmwcas
        .find_or_create_map(&guard, &header, &|| BzTree::first_leaf(&pmwcas, &guard, &options))
        .unwrap();
    let root = entry.root_off();
    drop(guard);
    BzTree::open(pmwcas, root, options)
}

#[test]
fn many() {
    let tree = tree::<Volatile>(Options::default());
    let n = 200_000u64;
    let key = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    for i in 0..n {
        tree.insert(&key(i), &i.to_le_bytes()).unwrap();
    }
    for i in 0..n {
        assert_eq!(tree.get(&key(i)).unwrap(), Some(i.to_le_bytes().to_vec()));
    }
    let audit = tree.audit().unwrap();
    println!("{:?} {:?}", audit.stat, audit.problems);
    let mut cursor = tree.scan(KeyRange::all(), Order::Descending).unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() { count += 1; }
    assert_eq!(count, n);
    for i in 0..n {
        assert!(tree.remove(&key(i)).unwrap());
    }
    let audit = tree.audit().unwrap();
    println!("{:?} {:?} {:?}", audit.stat, audit.problems, tree.pmwcas().pool().usage());
}
