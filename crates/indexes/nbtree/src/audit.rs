//! The walk of a tree for `check`, `stat` and salvage. It follows the chain of blocks, checks each
//! block before it uses its content, and compares the blocks with the layers in process memory.

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard};
use pando_tree::key::{Probe, slice_of};
use pando_tree::maps::{Audit, ProblemClass};

use crate::layout::{
    Content, MARK_AT, NEXT_AT, RECORD, REPLACED, block_bytes, class_of, classes_at, content,
    is_pending, join_value, key_at, mark, value_at,
};
use crate::tree::NbTree;
use crate::volatile::leaf::slots;
use crate::volatile::node::Kind;
use crate::volatile::nodes::Inner;

/// A block's bytes, copied.
struct Bytes(Vec<u8>);

impl Bytes {
    fn word(&self, at: u64) -> u64 {
        let word = self.0.get(at as usize..).and_then(|rest| rest.first_chunk::<8>());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }
}

/// Walks the whole tree; exact while no thread writes.
pub(crate) fn walk<D: Domain>(
    tree: &NbTree<D>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Audit> {
    // Also if the tree refuses operations.
    let guard = tree.catalog.pool().pin().map_err(Error::storage)?;
    let mut audit = Audit::default();
    let mut chain = Vec::new();
    let mut highest: Option<Vec<u8>> = None;
    let mut lender = Lender { held: Vec::new(), last: None, visit };
    let mut off = tree.catalog.read(&guard, tree.root_off);
    let bytes = block_bytes(tree.slots());
    while off != 0 {
        let Some(allocated) = audit.block(guard.pool(), off, bytes, "a leaf") else { break };
        chain.push(off);
        audit.stat.leaves += 1;
        audit.stat.leaf_bytes += allocated;
        let leaf = Bytes(guard.pool().load_bytes(off, bytes));
        if leaf.word(MARK_AT) != mark(tree.slots()) {
            let what = "the leaf is not marked as one of this tree";
            audit.problem(ProblemClass::Structure, off, what);
            break;
        }
        walk_leaf(tree, &guard, off, &leaf, &mut highest, &mut audit, &mut lender);
        let next = tree.catalog.read(&guard, off + NEXT_AT);
        if next & REPLACED != 0 {
            audit.problem(ProblemClass::Structure, off, "the leaf is replaced, and still linked");
            break;
        }
        off = next;
    }
    lender.flush();
    if let Some(damage) = &tree.layers.damage {
        audit.problem(ProblemClass::Structure, damage.off, damage.what);
    } else {
        walk_layers(tree, &guard, &chain, &mut audit);
    }
    audit.stat.height += 1;
    Ok(audit)
}

/// The records of one leaf.
fn walk_leaf<D: Domain>(
    tree: &NbTree<D>,
    guard: &Guard<'_, D>,
    off: u64,
    leaf: &Bytes,
    highest: &mut Option<Vec<u8>>,
    audit: &mut Audit,
    lender: &mut Lender<'_>,
) {
    let mut records: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let problems = audit.problems.len();
    for slot in 0..tree.slots() {
        let (slice, word) = (leaf.word(key_at(slot)), leaf.word(value_at(slot)));
        if is_pending(word) {
            continue;
        }
        match content(word) {
            Content::Empty => {}
            Content::Deleted => audit.stat.deleted_bytes += 16,
            Content::Damaged => {
                let what = format!("the value word of slot {slot} is none: {word:#x}");
                audit.problem(ProblemClass::Count, off, what);
            }
            Content::Value => {
                let class = class_of(leaf.word(classes_at(slot)), slot);
                let value = join_value(class, word).to_le_bytes();
                records.push((slice.to_be_bytes().to_vec(), value.to_vec()));
                audit.stat.live_bytes += 16;
            }
            Content::Record(at) => {
                let Some((bytes, key, value)) = audit.record_block(guard.pool(), at, RECORD) else {
                    continue;
                };
                if slice_of(&key) != slice {
                    let what = "the record's key is not that of its slot";
                    audit.problem(ProblemClass::Order, at, what);
                    continue;
                }
                audit.stat.value_blocks += 1;
                audit.stat.value_block_bytes += bytes;
                audit.stat.live_bytes += 16;
                records.push((key, value));
            }
        }
    }
    records.sort_unstable();
    audit.stat.records += records.len() as u64;
    if records.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        audit.problem(ProblemClass::Order, off, "a key is there twice");
    }
    let is_whole = audit.problems.len() == problems;
    if let (Some(highest), Some(first)) = (&highest, records.first())
        && *highest >= first.0
    {
        audit.problem(ProblemClass::Order, off, "a key is not above those of the leaf before");
    }
    if let Some((last, _)) = records.last() {
        *highest = Some(last.clone());
    }
    if is_whole {
        lender.leaf(records);
    }
}

/// Lends the records that were found, in order and each key once. It holds back a leaf's records
/// until those of the next leaf are known: if two leaves overlap, the records of one beyond the
/// middle of the other are damaged.
struct Lender<'visit> {
    held: Vec<(Vec<u8>, Vec<u8>)>,
    last: Option<Vec<u8>>,
    visit: &'visit mut dyn FnMut(&[u8], &[u8]),
}

impl Lender<'_> {
    /// The records of the next leaf, sorted.
    fn leaf(&mut self, mut records: Vec<(Vec<u8>, Vec<u8>)>) {
        if records.is_empty() {
            return;
        }
        let middle = records[records.len() / 2].0.clone();
        if let Some((held, _)) = self.held.get(self.held.len() / 2) {
            records.retain(|(key, _)| key > held);
        }
        self.held.retain(|(key, _)| *key < middle);
        self.flush();
        self.held = records;
    }

    fn flush(&mut self) {
        for (key, value) in std::mem::take(&mut self.held) {
            if self.last.as_ref().is_none_or(|last| *last < key) {
                (self.visit)(&key, &value);
                self.last = Some(key);
            }
        }
    }
}

/// Compares the layers in process memory with the blocks of the chain.
fn walk_layers<D: Domain>(
    tree: &NbTree<D>,
    guard: &Guard<'_, D>,
    chain: &[u64],
    audit: &mut Audit,
) {
    let mut found = Vec::new();
    let mut lows = Vec::new();
    tree.visit_leaves(guard, &mut |leaf| {
        found.push(leaf.block_off);
        lows.push(leaf.low.clone());
        let live = slots(leaf.control::<D>().bitmap()).filter(|&slot| {
            let word = guard.pool().word(leaf.block_off + value_at(slot));
            is_pending(word.load(std::sync::atomic::Ordering::Acquire))
        });
        if live.count() > 0 {
            let what = "an insert was decided and not completed";
            audit.problem(ProblemClass::Structure, leaf.block_off, what);
        }
    });
    if found != chain {
        let off = chain.first().copied().unwrap_or_default();
        let what = format!("the leaves in memory are {found:#x?}, those of the chain {chain:#x?}");
        audit.problem(ProblemClass::Structure, off, what);
    }
    let ascend = lows.windows(2).all(|pair| {
        let mut room = [0; 8];
        let probe = Probe::new(pair[0].bytes(&mut room));
        pair[1].compare(&probe).is_lt()
    });
    if !ascend {
        let off = chain.first().copied().unwrap_or_default();
        audit.problem(ProblemClass::Separator, off, "the separators do not ascend");
    }
    let mut rest = vec![tree.layers.root.slot().load(guard)];
    while let Some(node) = rest.pop() {
        if let Kind::Inner(inner) = node.kind() {
            audit.stat.height = audit.stat.height.max(u64::from(inner.level));
            audit.stat.inner_nodes += 1;
            audit.stat.inner_bytes += size_of::<Inner>() as u64;
            rest.extend((0..inner.len()).map(|index| inner.slot(index).load(guard)));
        }
    }
}
