//! A new log for a pool whose log is not used any more, and power cuts while it is written.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io;
use std::sync::{Arc, Mutex};

use pando_bztree::BzTrees;
use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Operation};
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_log::{Error as LogError, Log, LogOptions, recover};
use pando_pmem::{CreateOptions, Pool, Process, layout};
use pando_tc::{Error, ListedMap, MapList, Maps, Rebuild, TransactionComponent, replay, value_of};

use crate::common::{Component, anonymous, commit, open_over};

/// The only map of a component, number 1.
struct One(Arc<dyn RangeIndex>);

impl Maps for One {
    type Lent<'maps> = &'maps dyn RangeIndex;

    fn map(&self, number: u64) -> Option<&dyn RangeIndex> {
        (number == 1).then_some(&*self.0)
    }
}

impl Rebuild for One {
    fn relist(&mut self, _: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(())
    }

    fn index(&self, number: u64) -> Option<Arc<dyn RangeIndex>> {
        (number == 1).then(|| self.0.clone())
    }
}

fn list() -> MapList {
    let (name, kind, options, number) = ("second".to_owned(), 1, [0; 4], 1);
    let maps = vec![ListedMap { name, kind, options, number }];
    MapList { version: 0, max_bytes: 1 << 26, maps }
}

/// The values of a map by key.
fn records(index: &dyn RangeIndex) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = BTreeMap::new();
    let mut cursor = index.scan(KeyRange::all(), Order::Ascending).expect("a cursor");
    while let Some((key, value)) = cursor.next().expect("read") {
        records.extend(value_of(value).map(|value| (key.to_vec(), value.to_vec())));
    }
    records
}

/// The records of the map that is built anew from a directory.
fn rebuilt(directory: &dyn Directory) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut one = One(anonymous::<Process, BzTrees>().maps().shared(1));
    replay(directory, &mut one).expect("a log");
    records(&*one.0)
}

#[test]
fn a_power_cut_while_a_new_log_is_written_lets_it_be_written_again() {
    let mut random = Random::new(5);
    let former = Simulated::new();
    let create = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
    let pool = Pool::<Process>::anonymous(&create).expect("memory");
    let component = open_over::<Process, BzTrees>(pool.clone(), |pool| {
        let (directory, options) = (Arc::new(former.clone()), LogOptions::default());
        Log::create(pool, layout::LOG_OFF, directory, (42, 0), options)
    });
    for (key, value) in [(&b"ash"[..], "1"), (b"elm", "2"), (b"oak", "3"), (b"elm", "4")] {
        let lsn = commit(&component, &[(1, key, Some(value.as_bytes()))]).expect("commits");
        if value == "2" {
            component.sync(lsn).expect("synced");
        }
    }
    commit(&component, &[(1, b"ash", None)]).expect("commits");

    let tail = Log::open_tail(pool, layout::LOG_OFF, LogOptions::default()).expect("a tail");
    let tail = TransactionComponent::over_tail(tail, One(component.maps().shared(1)));
    let tail = tail.expect("settles");
    let new = Simulated::new();
    let (cuts, watched) = (Arc::new(Mutex::new(Vec::new())), new.clone());
    let (noted, cut_random) = (cuts.clone(), Mutex::new(Random::new(7)));
    new.on_operation(move |operation, _| {
        if ![Operation::Open, Operation::List, Operation::Read].contains(&operation) {
            let mut random = cut_random.lock().expect("a lock");
            for kept in [Kept::Nothing, Kept::Some, Kept::All] {
                noted.lock().expect("a lock").push(watched.cut_power(kept, &mut random));
            }
        }
        Ok::<(), io::Error>(())
    });
    let write = |directory: &Simulated| {
        let directory: Arc<dyn Directory> = Arc::new(directory.clone());
        tail.write_new_log(&directory, 43, &list())
    };
    write(&new).expect("a new log");
    new.on_operation(|_, _| Ok(()));
    let expected = |component: &Component<Process, BzTrees>| records(&*component.maps().shared(1));
    let before = expected(&component);
    assert_eq!(before.len(), 2);
    for kept in [Kept::Nothing, Kept::Some, Kept::All] {
        assert_eq!(rebuilt(&new.cut_power(kept, &mut random)), before, "{kept:?}");
    }
    let cuts = std::mem::take(&mut *cuts.lock().expect("a lock"));
    assert!(cuts.len() > 20, "{} power cuts", cuts.len());
    for (number, cut) in cuts.iter().enumerate() {
        if number % 8 == 7 {
            // The former log goes on meanwhile.
            let value: &[u8] = if number % 16 == 7 { b"5" } else { b"a longer one" };
            commit(&component, &[(1, b"fir", Some(value))]).expect("commits");
        }
        write(cut).expect("written again");
        let after = cut.cut_power(Kept::Nothing, &mut random);
        assert_eq!(rebuilt(&after), expected(&component), "power cut {number}");
    }
    // Nothing was done to the former log.
    let newest = component.newest_lsn().expect("a slot");
    component.sync(newest).expect("synced");
    let read = recover(&former, 0, &mut |_, _| Ok(())).expect("a log");
    assert_eq!(read.end_lsn(), newest);
    // And nothing of another log is replaced.
    for (name, id) in [("image-0000000000000009", 44), ("manifest", 45)] {
        let directory = Simulated::new();
        match name {
            "manifest" => {
                let options = LogOptions::default();
                pando_log::create_files(&directory, 0, (id - 1, 0), options).expect("created");
            }
            name => drop(directory.create(name).expect("created")),
        }
        let shared: Arc<dyn Directory> = Arc::new(directory.clone());
        let refused = tail.write_new_log(&shared, id, &list()).expect_err("another log");
        assert!(matches!(refused, Error::Log(LogError::NotEmpty { .. })), "{refused}");
        assert!(directory.names().expect("listed").contains(&name.to_owned()));
    }
}
