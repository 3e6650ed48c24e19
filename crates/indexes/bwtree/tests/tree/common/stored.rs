//! The kit of tests of a tree whose pages are in a store: a store in process memory, and steps that
//! write, evict and check pages.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pando_bwtree::{
    BwTree, Options, PageSource, PageState, PageWrite, Pictured, SourceError, Stored,
    StoredBwTrees, StoredPage, check_images,
};
use pando_index::RangeIndex;
use pando_pmem::testing::CutShort;

use super::{Fixture, Records, key};

pub type Hook = Box<dyn FnOnce() + Send>;

/// A place in the order of groups: `None` if it was abandoned.
type Place = Arc<OnceLock<Option<Vec<PageWrite>>>>;

/// Pages by their numbers: their parts, oldest first.
pub type Images = BTreeMap<u32, Vec<Vec<u8>>>;

/// A page has at most so many parts.
pub const MAX_PARTS: usize = 3;

/// Pages in process memory.
#[derive(Default)]
pub struct Kept {
    images: Mutex<Images>,
    /// Places of groups in their order.
    queue: Mutex<Vec<Place>>,
    /// Called once, after an image was read and before it is returned.
    pub after_read: Mutex<Option<Hook>>,
    /// A group has so many bytes at most, if it is set.
    pub most_group_bytes: OnceLock<usize>,
    /// Reads of pages so far.
    pub reads: AtomicU64,
    /// This page cannot be read, if it is set.
    pub unreadable: OnceLock<u32>,
    /// Called once, after a version was read and before it is returned, if it is not the first.
    pub after_second_version: Mutex<Option<Hook>>,
    versions: AtomicU64,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("pages in memory")
    }
}

impl Kept {
    pub fn images(&self) -> MutexGuard<'_, Images> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self) -> Place {
        let place = Place::default();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(place.clone());
        place
    }

    /// Writes the groups in their order. Places that have none are abandoned.
    fn write_queue(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        for place in queue.drain(..) {
            if let Some(writes) = place.get_or_init(|| None) {
                self.write(writes.clone());
            }
        }
    }

    pub fn write(&self, writes: Vec<PageWrite>) {
        for write in writes {
            match write {
                PageWrite::Image(page, image) => drop(self.images().insert(page, vec![image])),
                PageWrite::Delta(page, delta) => {
                    let mut images = self.images();
                    let parts = images.get_mut(&page).expect("a page before its delta");
                    parts.push(delta);
                    assert!(parts.len() <= MAX_PARTS, "page {page}");
                }
                PageWrite::Free(page) => drop(self.images().remove(&page)),
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Source(pub Arc<Kept>);

impl PageSource for Source {
    fn most_group_bytes(&self) -> usize {
        *self.0.most_group_bytes.get().unwrap_or(&(64 << 20))
    }

    fn read(&self, page: u32) -> Result<Option<Vec<Vec<u8>>>, SourceError> {
        // Relaxed: only a count.
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        if self.0.unreadable.get() == Some(&page) {
            return Err("the device does not answer".into());
        }
        let image = self.0.images().get(&page).cloned();
        let hook = self.0.after_read.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hook) = hook {
            hook();
        }
        Ok(image)
    }

    fn stored(&self, page: u32) -> Option<StoredPage> {
        let parts = self.0.images().get(&page)?.clone();
        let bytes = parts.iter().map(Vec::len).sum();
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        let (takes_delta, version) = (parts.len() < MAX_PARTS, hasher.finish());
        let mut hook = self.0.after_second_version.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: only a count.
        if hook.is_some()
            && self.0.versions.fetch_add(1, Ordering::Relaxed) == 1
            && let Some(call) = hook.take()
        {
            drop(hook);
            call();
        }
        Some(StoredPage { bytes, takes_delta, version })
    }

    fn loaded(&self, _: &[u8], _: &[u8], _: Option<&[u8]>) -> Result<(), SourceError> {
        Ok(())
    }

    fn make_room(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn write_changes(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

pub type Domain = CutShort<true>;
pub type Tree = BwTree<Domain, Stored>;

/// A tree of 200 records in small pages, of which nothing is written.
pub fn tree() -> (Fixture<Domain, StoredBwTrees>, Source) {
    tree_of(200)
}

/// The same of so many records.
pub fn tree_of(records: u64) -> (Fixture<Domain, StoredBwTrees>, Source) {
    tree_with(256, records)
}

/// A tree of 200 records, of which all pages are written.
pub fn written() -> (Fixture<Domain, StoredBwTrees>, Source) {
    let (fixture, source) = tree();
    assert!(write_all(&fixture.index, &source));
    (fixture, source)
}

/// A tree of so many records in pages of so many bytes.
pub fn tree_with(leaf_bytes: u32, records: u64) -> (Fixture<Domain, StoredBwTrees>, Source) {
    let options = Options { leaf_bytes, inner_bytes: 256, merge_bytes: 112, ..Options::default() };
    let fixture = Fixture::<Domain, StoredBwTrees>::anonymous(options);
    let source = Source::default();
    fixture.index.connect(Box::new(source.clone())).expect("a tree in a store");
    (0..records).for_each(|number| put(&fixture.index, number, b"first"));
    (fixture, source)
}

pub fn put(tree: &Tree, number: u64, value: &[u8]) {
    tree.upsert(&key(number), value).expect("written");
}

pub fn remove(tree: &Tree, number: u64) {
    tree.remove(&key(number)).expect("removed");
}

pub fn get(tree: &Tree, number: u64) -> Option<Vec<u8>> {
    tree.get(&key(number)).expect("read")
}

/// An image has each record as the page has it.
pub fn as_it_is(_: &[u8], _: &[u8]) -> pando_index::Result<Pictured> {
    Ok(Pictured::AsItIs)
}

pub fn pages(tree: &Tree, state: PageState) -> Vec<u32> {
    let (seen, next) = tree.pages_from(0, 10_000).expect("a slot");
    assert_eq!(next, None);
    seen.iter().filter(|page| page.state == state).map(|page| page.number).collect()
}

/// Writes all pages; returns whether all could be marked.
pub fn write_all(tree: &Tree, source: &Source) -> bool {
    let changed = pages(tree, PageState::Changed);
    let append = |writes: &mut dyn FnMut() -> Option<Vec<PageWrite>>| {
        source.0.write(writes().expect("the last capture"));
    };
    let (captured, _) = tree.capture((&changed, false), &mut as_it_is, append).expect("a slot");
    assert!(captured.left.is_empty());
    tree.mark_written(&captured).expect("a slot");
    pages(tree, PageState::Changed).is_empty()
}

/// Writes pages until the store has all of them.
pub fn write_until_done(tree: &Tree, source: &Source) {
    for _ in 0..100 {
        let changed = pages(tree, PageState::Changed);
        let append = |writes: &mut dyn FnMut() -> Option<Vec<PageWrite>>| {
            let place = source.0.reserve();
            let writes = writes();
            let is_there = writes.is_some();
            place.set(writes).is_ok() && is_there
        };
        let (captured, is_filled) =
            tree.capture((&changed, false), &mut as_it_is, append).expect("a slot");
        source.0.write_queue();
        if is_filled != Some(false) {
            tree.mark_written(&captured).expect("a slot");
            return;
        }
    }
    panic!("each capture was in vain");
}

/// Evicts leaves; inner pages stay.
pub fn evict_leaves(tree: &Tree) {
    let (seen, _) = tree.pages_from(0, 10_000).expect("a slot");
    for page in seen.iter().filter(|page| page.state == PageState::Written && !page.is_inner) {
        tree.evict(page.number).expect("a slot");
    }
}

pub fn evict_all(tree: &Tree) {
    for page in pages(tree, PageState::Written) {
        tree.evict(page).expect("a slot");
    }
}

pub fn check(source: &Source) {
    let images = source.0.images().clone();
    let mut read = |page| images.get(&page).cloned().ok_or_else(|| "it is not there".to_owned());
    assert_eq!(check_images(images.keys().copied(), &mut read), Vec::<String>::new());
}

/// A tree whose page of 77 was just split, and is not split again soon.
pub fn tree_with_short_page_of_77() -> (Fixture<Domain, StoredBwTrees>, Source) {
    let (fixture, source) = tree();
    put(&fixture.index, 77, b"again");
    (fixture, source)
}

/// Writes all pages and changes 77; the page that has changed.
pub fn change_77(tree: &Tree, source: &Source) -> Vec<u32> {
    assert!(write_all(tree, source));
    put(tree, 77, b"second");
    pages(tree, PageState::Changed)
}

/// The number of the page that has the record, and the parts that the store has of it.
pub fn parts_of(source: &Source, number: u64) -> (u32, Vec<Vec<u8>>) {
    let images = source.0.images();
    let mut having = images.iter().filter(|(_, parts)| {
        let is_leaf = parts[0][16] == 0;
        is_leaf && parts[0].windows(8).any(|window| window == &key(number)[..])
    });
    let (page, parts) = having.next_back().expect("it is written");
    (*page, parts.clone())
}

pub fn dump(tree: &Tree) -> Records {
    pando_tree::testing::dump(tree)
}

/// The records of another tree, which is opened with the pages that the store has.
pub fn reopened(source: &Source) -> Records {
    let other = Fixture::<Domain, StoredBwTrees>::anonymous(Options::default());
    other.index.connect(Box::new(source.clone())).expect("a tree in a store");
    let numbers: Vec<u32> = source.0.images().keys().copied().collect();
    other.index.restore(numbers).expect("it has the root");
    dump(&other.index)
}

pub fn put_blind(tree: &Tree, number: u64, value: &[u8]) {
    RangeIndex::put(tree, &key(number), value).expect("written");
}
