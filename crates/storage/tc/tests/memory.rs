//! The memory that a replay takes. This is a test of its own, since its allocator counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pando_device::simulated::Simulated;
use pando_index::conformance::Reference;
use pando_index::{Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Record, Upserted};
use pando_log::{Log, LogOptions};
use pando_pmem::{CreateOptions, Pool, Process, layout};
use pando_tc::{ListedMap, MapList, Maps, Rebuild, TransactionComponent, replay};

const ORDER: Ordering = Ordering::Relaxed;

/// Bytes that are allocated now, and the most so far.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The allocator of the system, with a count of its bytes.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn add(bytes: usize) {
    MOST.fetch_max(NOW.fetch_add(bytes, ORDER) + bytes, ORDER);
}

// SAFETY: each call goes to the allocator of the system, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the rules of this function, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), ORDER);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Large blocks are not copied, but move to other addresses.
        add(bytes);
        NOW.fetch_sub(layout.size(), ORDER);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

/// The number of the only map.
const MAP: u64 = 1;
const RECORDS: u64 = 150_000;
const WRITES: u64 = 500;
const SORT_BYTES: usize = 8 << 20;

/// One map in process memory.
struct OneMap(Reference);

impl Maps for OneMap {
    type Lent<'maps> = &'maps dyn RangeIndex;

    fn map(&self, number: u64) -> Option<&dyn RangeIndex> {
        (number == MAP).then_some(&self.0)
    }
}

/// An index that only counts the records that it gets.
#[derive(Default)]
struct Sink(AtomicU64);

impl RangeIndex for Sink {
    fn limits(&self) -> Limits {
        Reference::default().limits()
    }

    fn upsert_many(&self, records: &[Record<'_>]) -> Result<(), Error> {
        self.0.fetch_add(records.len() as u64, ORDER);
        Ok(())
    }

    fn write(&self, _: &[u8], _: &[u8], _: Intent<'_>) -> Result<Upserted, Error> {
        unreachable!("records come in batches")
    }

    fn read(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        unreachable!("a replay reads nothing")
    }

    fn remove(&self, _: &[u8]) -> Result<bool, Error> {
        unreachable!("nothing was removed")
    }

    fn compare_remove(&self, _: &[u8], _: &[u8]) -> Result<(), Error> {
        unreachable!("nothing was removed")
    }

    fn scan<'index>(
        &'index self,
        _: KeyRange,
        _: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        unreachable!("a replay reads nothing")
    }

    fn len(&self) -> Result<u64, Error> {
        Ok(self.0.load(ORDER))
    }
}

/// A pool whose only map is the sink.
struct Rebuilt(Arc<Sink>);

impl Rebuild for Rebuilt {
    fn relist(&mut self, _: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(())
    }

    fn index(&self, number: u64) -> Option<Arc<dyn RangeIndex>> {
        (number == MAP).then(|| self.0.clone() as Arc<dyn RangeIndex>)
    }

    fn sort_bytes(&self) -> usize {
        SORT_BYTES
    }
}

/// A log with records of 8 bytes.
fn written() -> Simulated {
    let directory = Simulated::new();
    let create = CreateOptions { max_bytes: 1 << 28, ..CreateOptions::default() };
    let pool = Pool::<Process>::anonymous(&create).expect("memory");
    let files = Arc::new(directory.clone());
    let log = Log::create(pool, layout::LOG_OFF, files, (42, 0), LogOptions::default());
    let maps = OneMap(Reference::default());
    let component = TransactionComponent::open(log.expect("a log"), maps).expect("opens");
    let map = ListedMap { name: "map".to_owned(), kind: 1, options: [0; 4], number: MAP };
    let list = MapList { version: 1, max_bytes: create.max_bytes, maps: vec![map] };
    component.log_maps(&list).expect("logged");
    for from in (0..RECORDS).step_by(WRITES as usize) {
        let mut transaction = component.begin();
        for number in from..from + WRITES {
            // In an order that is none.
            let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            transaction.put(MAP, &key, &number.to_be_bytes()).expect("fits");
        }
        component.sync(transaction.commit().expect("commits")).expect("synced");
    }
    directory
}

/// A write takes more than the bytes of its key and value. All of it counts, so small records do
/// not take a multiple of the limit.
#[test]
fn a_replay_of_small_records_keeps_to_its_memory() {
    let directory = written();
    let sink = Arc::new(Sink::default());
    let before = NOW.load(ORDER);
    MOST.store(before, ORDER);
    let (_, replayed) = replay(&directory, &mut Rebuilt(sink.clone())).expect("replayed");
    let taken = MOST.load(ORDER) - before;
    assert_eq!(replayed.commits, RECORDS / WRITES);
    assert_eq!(sink.len().expect("counted"), RECORDS);
    // One half is applied, while the other one is read.
    assert!((SORT_BYTES / 2..=SORT_BYTES * 2).contains(&taken), "{taken} of {SORT_BYTES} bytes");
}
