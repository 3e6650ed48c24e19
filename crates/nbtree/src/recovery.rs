//! Recovery: the layers in process memory, rebuilt from the chain of blocks (paper 3.2, "crash consistency").
//!
//! When a tree is opened, PMwCAS has settled what was linked and what was not, and the pool which records' blocks
//! belong to a value word. So the chain holds each record once, and this only has to look:
//!
//! 1. Walk the chain, block to block.
//! 2. Survey the blocks: which slots are live, their fingerprints, the lowest and the highest key. In several
//!    threads, if there are many.
//! 3. Take out leaves without a live slot, but for the first; open value words that were closed, and clear counts of
//!    changing threads. Build the inner
//!    nodes, level by level, from the lowest keys.
//!
//! 3 takes leaves out by the PMwCAS that drops them at other times, and opens words by stores that no recovery needs
//! to find; so it may be cut short anywhere, and begun again. Slots that were claimed stay lost until their leaf
//! is replaced. It reads each line of the tree once: time is linear in the records, and no other
//! index of ours takes that long to open. A leaf's block that cannot be one makes the tree refuse every operation,
//! with an error that says so; `walk` shows what can be read.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Pool};
use pando_pmwcas::{Pmwcas, Policy};

use crate::layout::{
    CHANGING_MASK, Content, MARK_AT, MAX_SLOTS, NEXT_AT, REPLACED, block_bytes, class_of,
    classes_at, content, is_closed, is_pending, key_at, mark, plain, value_at,
};
use crate::options::Options;
use crate::record;
use crate::separator::{Separator, eight_fingerprint, fingerprint_of, shortest_between};
use crate::tree::{Damaged, Layers};
use crate::volatile::inner::Inner;
use crate::volatile::leaf::{Control, FREE, LOST, Leaf};
use crate::volatile::node::{Node, Root};

/// Blocks that one thread surveys before another one helps.
const SURVEYED_ALONE: usize = 4096;

/// What the slots of a block hold.
#[derive(Debug)]
pub(crate) struct Survey {
    off: u64,
    bitmap: u64,
    fingerprints: [u8; MAX_SLOTS],
    lowest: Option<Key>,
    highest: Option<Key>,
    /// Whether a value word is closed, or a line is said to be changing.
    is_unsettled: bool,
}

/// A key: the first eight bytes as a number, and all, if it has a block of its own.
type Key = (u64, Option<Box<[u8]>>);

fn bytes_of(key: &Key) -> Vec<u8> {
    match &key.1 {
        Some(long) => long.to_vec(),
        None => key.0.to_be_bytes().to_vec(),
    }
}

/// As in [`Key`], lent.
type LentKey<'guard> = (u64, Option<&'guard [u8]>);

#[inline(always)]
fn is_below(left: &LentKey<'_>, right: &LentKey<'_>) -> bool {
    if left.0 != right.0 || (left.1.is_none() && right.1.is_none()) {
        return left.0 < right.0;
    }
    let bytes = |key: &LentKey<'_>| bytes_of(&(key.0, key.1.map(Box::from)));
    bytes(left) < bytes(right)
}

fn lend(key: &Key) -> LentKey<'_> {
    (key.0, key.1.as_deref())
}

impl Survey {
    /// The lowest key.
    pub fn lowest(&self) -> Option<Vec<u8>> {
        self.lowest.as_ref().map(bytes_of)
    }

    /// The highest key.
    pub fn highest(&self) -> Option<Vec<u8>> {
        self.highest.as_ref().map(bytes_of)
    }

    /// The leaf.
    pub fn into_leaf<D: Domain>(self, low: Separator) -> Box<Leaf> {
        let control = Control::new(self.bitmap);
        Box::new(Leaf::new::<D>(self.off, low, control, &self.fingerprints))
    }
}

/// Surveys the block at `off`; `None` if it is no leaf with so many slots, or one of its records is none.
pub(crate) fn survey<D: Domain>(guard: &Guard<'_, D>, off: u64, slots: usize) -> Option<Survey> {
    let words = guard.pool().words(off, block_bytes(slots) / 8);
    // Relaxed, here and below: nobody changes the block meanwhile, or what is found comes to nothing.
    let at = |at: u64| words.load(at / 8, Ordering::Relaxed);
    if at(MARK_AT) != mark(slots) {
        return None;
    }
    let (mut bitmap, mut is_unsettled) = (0, false);
    let mut fingerprints = [FREE; MAX_SLOTS];
    let mut lowest: Option<LentKey<'_>> = None;
    let mut highest: Option<LentKey<'_>> = None;
    for (slot, place) in fingerprints.iter_mut().enumerate().take(slots) {
        let (slice, word) = (at(key_at(slot)), at(value_at(slot)));
        let (content, classes) = (content(word), at(classes_at(slot)));
        is_unsettled |= classes & CHANGING_MASK != 0;
        if content != Content::Empty || class_of(classes, slot) != 0 {
            *place = LOST;
        }
        if is_pending(word) {
            continue;
        }
        let key = match content {
            Content::Value => {
                *place = eight_fingerprint(slice);
                (slice, None)
            }
            Content::Record(off) => {
                let key = record::checked_key(guard, off)?;
                *place = fingerprint_of(key);
                (slice, Some(key))
            }
            Content::Empty | Content::Deleted => continue,
            Content::Damaged => return None,
        };
        bitmap |= 1 << slot;
        is_unsettled |= is_closed(word);
        if lowest.as_ref().is_none_or(|lowest| is_below(&key, lowest)) {
            lowest = Some(key);
        }
        if highest.as_ref().is_none_or(|highest| is_below(highest, &key)) {
            highest = Some(key);
        }
    }
    let own = |key: LentKey<'_>| (key.0, key.1.map(Box::from));
    let (lowest, highest) = (lowest.map(own), highest.map(own));
    Some(Survey { off, bitmap, fingerprints, lowest, highest, is_unsettled })
}

/// Rebuilds the layers in process memory of the tree whose entry word is at `root_off`.
pub(crate) fn build<D: Domain>(pmwcas: &Pmwcas<D>, root_off: u64, options: &Options) -> Layers {
    let built = pmwcas
        .pool()
        .pin()
        .map_err(|_| Damaged { off: root_off, what: "no participant slot is free" });
    let built = built.and_then(|guard| build_pinned(pmwcas, &guard, root_off, options));
    match built {
        Ok(root) => Layers { root, damage: None },
        Err(damage) => {
            let leaf = Leaf::new::<D>(0, Separator::lowest(), Control::new(0), &[]);
            Layers { root: Root::new(Node::of_leaf(Box::new(leaf))), damage: Some(damage) }
        }
    }
}

fn build_pinned<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    root_off: u64,
    options: &Options,
) -> Result<Root, Damaged> {
    let slots = options.leaf_slots as usize;
    let chain = chain(pmwcas, guard, root_off, slots)?;
    let surveys = survey_all(pmwcas.pool(), guard, &chain, slots)?;
    let mut leaves: Vec<Box<Leaf>> = Vec::with_capacity(surveys.len());
    let mut highest: Option<Key> = None;
    for survey in surveys {
        let off = survey.off;
        if survey.is_unsettled {
            settle(guard, off, slots);
        }
        let low = match (leaves.last(), &survey.lowest) {
            (None, _) => Separator::lowest(),
            (Some(previous), None) => {
                if !drop_leaf(pmwcas, guard, previous.block_off, off) {
                    return Err(Damaged { off, what: "it is empty, and cannot be dropped" });
                }
                continue;
            }
            (Some(_), Some(lowest)) => match &highest {
                Some(highest) if !is_below(&lend(highest), &lend(lowest)) => {
                    return Err(Damaged {
                        off,
                        what: "its keys are not above those of the leaf before",
                    });
                }
                Some((_, None)) if lowest.1.is_none() => Separator::eight(lowest.0),
                Some(highest) => shortest_between(&bytes_of(highest), &bytes_of(lowest)),
                None => Separator::new(&bytes_of(lowest)),
            },
        };
        highest = survey.highest.clone().or(highest);
        leaves.push(survey.into_leaf::<D>(low));
    }
    Ok(Root::new(build_inner(leaves, options)))
}

/// The blocks of the chain, in order.
fn chain<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    root_off: u64,
    slots: usize,
) -> Result<Vec<u64>, Damaged> {
    let pool = guard.pool();
    // More leaves than that there is no room for: the chain goes in a circle.
    let most = pool.size_bytes() / block_bytes(slots);
    let mut chain = Vec::new();
    let mut off = pmwcas.read(guard, root_off);
    while off != 0 {
        let is_block = pool.active_block(off).is_some_and(|bytes| bytes >= block_bytes(slots));
        if !is_block {
            return Err(Damaged { off, what: "no block is allocated there" });
        }
        if chain.len() as u64 >= most {
            return Err(Damaged { off, what: "the chain of leaves has no end" });
        }
        chain.push(off);
        let next = pmwcas.read(guard, off + NEXT_AT);
        if next & REPLACED != 0 {
            return Err(Damaged { off, what: "it is replaced, and still linked" });
        }
        off = next;
    }
    if chain.is_empty() {
        // Also of a map that was dropped meanwhile.
        return Err(Damaged { off: root_off, what: "its entry names no leaf" });
    }
    Ok(chain)
}

/// Surveys all blocks of the chain, in several threads if there are many.
fn survey_all<D: Domain>(
    pool: &Pool<D>,
    guard: &Guard<'_, D>,
    chain: &[u64],
    slots: usize,
) -> Result<Vec<Survey>, Damaged> {
    let survey_part = |guard: &Guard<'_, D>, part: &[u64]| -> Result<Vec<Survey>, Damaged> {
        let what = "it is no leaf of this tree, or a record of it is lost";
        part.iter().map(|&off| survey(guard, off, slots).ok_or(Damaged { off, what })).collect()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(chain.len() / SURVEYED_ALONE).max(1);
    let mut parts = chain.chunks(chain.len().div_ceil(threads).max(1));
    let own = parts.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let work = |part| {
            let survey_part = &survey_part;
            // A thread without a participant slot leaves its part to this one.
            let run = move || pool.pin().ok().map(|guard| survey_part(&guard, part));
            (part, std::thread::Builder::new().spawn_scoped(scope, run).ok())
        };
        let others: Vec<_> = parts.map(work).collect();
        let mut surveys = survey_part(guard, own)?;
        for (part, thread) in others {
            let surveyed = thread.and_then(|thread| thread.join().ok()).flatten();
            surveys.extend(surveyed.unwrap_or_else(|| survey_part(guard, part))?);
        }
        Ok(surveys)
    })
}

/// Opens the value words of a block that a replacement had closed which came to nothing, and notes that nobody is
/// changing its lines.
fn settle<D: Domain>(guard: &Guard<'_, D>, off: u64, slots: usize) {
    for slot in 0..slots {
        let value = guard.pool().word(off + value_at(slot));
        let word = value.load(Ordering::Acquire);
        if is_closed(word) && content(word) != Content::Damaged {
            // Not written back: a recovery that finds it closed does the same.
            value.store(plain(word), Ordering::Release);
        }
        let classes = guard.pool().word(off + classes_at(slot));
        classes.fetch_and(!CHANGING_MASK);
    }
}

/// Takes the leaf at `off`, which holds nothing, out of the chain; whether it could be.
pub(crate) fn drop_leaf<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    previous: u64,
    off: u64,
) -> bool {
    let next = pmwcas.read(guard, off + NEXT_AT);
    let Ok(mut drop) = pmwcas.allocate(guard) else { return false };
    drop.add_word(previous + NEXT_AT, off, next).is_ok()
        && drop.add_word(off + NEXT_AT, next, next | REPLACED).is_ok()
        && drop.own_block(off, Policy::FreeOldOnSuccess).is_ok()
        && drop.execute()
}

/// The inner nodes over the leaves: the root.
#[expect(clippy::vec_box, reason = "a leaf stays where it is from the beginning")]
fn build_inner(leaves: Vec<Box<Leaf>>, options: &Options) -> Node<'static> {
    // Room in each for what comes.
    let most = (options.inner_children as usize * 3 / 4).max(2);
    let mut lows: Vec<Separator> = leaves.iter().map(|leaf| leaf.low.clone()).collect();
    let mut nodes: Vec<Node<'static>> = leaves.into_iter().map(Node::of_leaf).collect();
    let mut level = 1;
    while nodes.len() > 1 {
        let parts = nodes.chunks(most).zip(lows.chunks(most));
        let above = parts.map(|(children, lows)| {
            let inner = Inner::new(level, children, lows[1..].iter().cloned().collect());
            (Node::of_inner(inner), lows[0].clone())
        });
        (nodes, lows) = above.unzip();
        level += 1;
    }
    nodes[0]
}
