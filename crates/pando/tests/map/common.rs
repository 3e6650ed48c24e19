//! Maps of every kind.

use pando::{Acknowledge, Map, MapOptions, Pool, PoolOptions, Store};

/// An empty map, and what it needs.
pub struct Kept {
    pub name: String,
    pub map: Map,
    pub pool: Pool,
    _folder: tempfile::TempDir,
}

/// A kind of map, and a function that makes an empty one.
pub fn kinds() -> Vec<Box<dyn Fn() -> Kept>> {
    let mut kinds: Vec<Box<dyn Fn() -> Kept>> = Vec::new();
    for index in pando::indexes() {
        for transactional in [false, true] {
            kinds.push(Box::new(move || {
                let pool = Pool::volatile(&PoolOptions::new()).expect("memory");
                let options = MapOptions::new().index(index.name).transactional(transactional);
                let map = pool.map_with("map", &options).expect("a map");
                let name = format!("{}, transactional: {transactional}", index.name);
                Kept { name, map, pool, _folder: folder() }
            }));
        }
    }
    kinds.push(Box::new(|| {
        let folder = folder();
        let log = PoolOptions::new().log(folder.path().join("log"));
        let options = log.acknowledge(Acknowledge::Synced);
        let pool = Pool::create(folder.path().join("pool"), &options).expect("creates");
        let options = MapOptions::new().transactional(true);
        let map = pool.map_with("map", &options).expect("a map");
        Kept { name: "with a log, synced".to_owned(), map, pool, _folder: folder }
    }));
    kinds.push(Box::new(|| {
        let folder = folder();
        let store = Store::open(folder.path().join("store"), 16 << 20).expect("opens");
        let map = store.map("map").expect("a map");
        let pool = store.into_pool();
        Kept { name: "of a store".to_owned(), map, pool, _folder: folder }
    }));
    kinds
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}
