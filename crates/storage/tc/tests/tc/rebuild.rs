//! Pools so large that several threads rebuild them.

use pando_device::simulated::Simulated;
use pando_device::{Directory, File};
use pando_index::random::Random;
use pando_tc::{copy, verify};

use crate::common::{Killed, bztree};
use crate::power::{create, dump, rebuild, write_image};

/// A directory of which files are only read: on a file system that cannot be written.
#[derive(Debug)]
struct ReadOnly(Simulated);

impl Directory for ReadOnly {
    fn path(&self) -> String {
        self.0.path()
    }

    fn names(&self) -> pando_device::Result<Vec<String>> {
        self.0.names()
    }

    fn open(&self, name: &str) -> pando_device::Result<Box<dyn File>> {
        panic!("{name} is opened to be written");
    }

    fn open_read_only(&self, name: &str) -> pando_device::Result<Box<dyn File>> {
        self.0.open_read_only(name)
    }

    fn create(&self, name: &str) -> pando_device::Result<Box<dyn File>> {
        panic!("{name} is created");
    }

    fn rename(&self, name: &str, _: &str) -> pando_device::Result<()> {
        panic!("{name} is renamed");
    }

    fn replace(&self, name: &str, _: &str) -> pando_device::Result<()> {
        panic!("{name} is renamed");
    }

    fn remove(&self, name: &str) -> pando_device::Result<()> {
        panic!("{name} is removed");
    }

    fn sync(&self) -> pando_device::Result<()> {
        panic!("names are synced");
    }
}

/// A replay reads as `verify` does.
#[test]
fn a_log_is_verified_and_copied_without_a_change() {
    let directory = Simulated::new();
    let component = create(bztree::<Killed>(), &directory);
    component.maps().add(1);
    component.log_maps(&component.maps().list()).expect("logged");
    let put = |key: &[u8]| {
        let mut transaction = component.begin();
        transaction.put(1, key, &[7; 300]).expect("fits");
        transaction.commit().expect("commits")
    };
    put(b"ash");
    write_image(&component).expect("an image");
    // More than a segment.
    let newest = (0..400_u32).fold(0, |_, number| put(&number.to_be_bytes()));
    component.sync(newest).expect("synced");
    drop(component);
    let read_only = ReadOnly(directory);
    let (recovered, replayed) = verify(&read_only).expect("whole");
    assert_eq!((recovered.end_lsn(), replayed.image_records), (newest, 1));
    let to = Simulated::new();
    assert_eq!(copy(&read_only, &to).expect("copied"), newest);
    assert_eq!(verify(&to).expect("whole").1.image_records, 1);
}

/// Keys of each map.
const KEYS: u64 = 4_000;
/// Writes of each commit.
const WRITES: u64 = 40;

/// Image and log both have more than any thread gets at once, and the log writes each key often.
#[test]
fn the_last_version_of_each_key_is_there_after_a_rebuild_by_several_threads() {
    let directory = Simulated::new();
    let component = create(bztree::<Killed>(), &directory);
    (1..=2).for_each(|number| component.maps().add(number));
    component.log_maps(&component.maps().list()).expect("logged");
    let key = |number: u64| format!("key {number:06}").into_bytes();
    let commit = |writes: &mut dyn Iterator<Item = (u64, u64, Option<u8>)>| {
        let mut transaction = component.begin();
        for (map, number, value) in writes {
            match value {
                Some(value) => transaction.put(map, &key(number), &[value; 300]),
                None => transaction.remove(map, &key(number)),
            }
            .expect("fits");
        }
        transaction.commit().expect("commits")
    };
    for from in (0..KEYS).step_by(WRITES as usize) {
        commit(&mut (from..from + WRITES).map(|number| (1 + number % 2, number, Some(0))));
    }
    write_image(&component).expect("an image");
    let mut random = Random::new(7);
    let mut newest = 0;
    for round in 0..200 {
        newest = commit(&mut (0..WRITES).map(|_| {
            let number = random.below(KEYS / 4);
            (1 + number % 2, number, (!random.one_in(4)).then_some(round))
        }));
    }
    component.sync(newest).expect("synced");
    let expected = dump(&component);
    drop(component);
    let (rebuilt, _, replayed) = rebuild(bztree::<Killed>(), &directory).expect("rebuilt");
    assert_eq!(replayed.image_records, KEYS);
    assert!(replayed.commits >= 200, "{replayed:?}");
    assert!(dump(&rebuilt) == expected, "it has other records");
}
