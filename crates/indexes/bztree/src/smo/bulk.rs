//! Runs of records behind all records of a leaf: a leaf of them is built and linked at once, as a
//! load in the order of keys needs it.
//!
//! | step | deciding word | a crash leaves |
//! | --- | --- | --- |
//! | look: the run lies behind the records of its leaf, and within its range | | nothing |
//! | close the leaf: its records are final | the closing word | an open leaf, or a closed one |
//! | look again, at the final records | | the same |
//! | install a leaf of all records, if they fit one; else a copy of the leaf, and a leaf of the run | the words of a consolidation, or of a split | the same, or all records of the run |
//!
//! The keys of the run are absent from the closing to the installation, since they are in the range
//! of a closed leaf and behind its records. So each record is inserted at the installation. If
//! anything else is found, the leaf is opened again, and the records are written one by one. They
//! also are if the leaf is to be split first, and in a pool that was full, where a closed leaf may
//! not be replaced.

use pando_index::{Error, Record, Result};
use pando_inner::{Outcome, Path, Progress};
use pando_pmem::{Domain, mutant};
use pando_tree::checked::undamaged;
use pando_tree::context::Context;

use crate::build::Wanted;
use crate::candidate::LiveRecord;
use crate::closing::Closing;
use crate::content::{Content, separator_before};
use crate::layout::{LIMITS, SLICED_BYTES, padded};
use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::node::Probe;
use crate::tree::BzTree;

/// Shorter runs are written one by one.
const LEAST_RUN: usize = 8;
/// How often a run is tried: an attempt may split the parent first.
const ATTEMPTS: u32 = 4;

impl<D: Domain> BzTree<D> {
    /// Upserts the records, in their order.
    pub(crate) fn write_many(&self, records: &[Record<'_>]) -> Result<()> {
        let mut behind = 0;
        // The first record that is not written.
        let mut first = 0;
        while behind < records.len() {
            let run = behind..behind + self.run_of(&records[behind..]).max(1);
            behind = run.end;
            if run.len() < LEAST_RUN {
                continue;
            }
            self.put_many(&records[first..run.start])?;
            first = if self.append(&records[run.clone()])? { run.end } else { run.start };
        }
        self.put_many(&records[first..])
    }

    /// How many records from the first one on ascend and fit a leaf together.
    fn run_of(&self, records: &[Record<'_>]) -> usize {
        let (mut storage_bytes, mut is_uniform) = (0, true);
        for (count, (key, value)) in records.iter().enumerate() {
            is_uniform &= key.len() == 8 && value.len() == records[0].1.len();
            let is_pairs = self.has_ranges() && is_uniform && value.len() == 8;
            storage_bytes += padded((key.len() + value.len()) as u64);
            let metadata_bytes = if is_uniform { 0 } else { (count as u64 + 1) * SLICED_BYTES };
            let is_allowed = LIMITS.check_key(key).is_ok() && LIMITS.check_value(value).is_ok();
            if !is_allowed
                || self.wants_block(key, value)
                || (count > 0 && records[count - 1].0 >= *key)
                || self.is_to_split(storage_bytes + metadata_bytes)
                || (is_pairs && count as u64 >= self.capacity())
            {
                return count;
            }
        }
        records.len()
    }

    /// Inserts the run; false if it is to be written one by one.
    fn append(&self, run: &[Record<'_>]) -> Result<bool> {
        for _ in 0..ATTEMPTS {
            let guard = self.pin()?;
            let context = self.context(&guard);
            let appended = guard.without_reserve(|| self.try_append(context, run));
            undamaged(&guard)?;
            match appended {
                Ok(Some(is_done)) => return Ok(is_done),
                Ok(None) => {}
                // A full pool: single records may still fit.
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    /// One attempt. `None` means: search again from the root.
    fn try_append(&self, context: Context<'_, D>, run: &[Record<'_>]) -> Result<Option<bool>> {
        let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else {
            return Ok(Some(false));
        };
        let path = self.find_path(context, Probe::new(first));
        let leaf = Leaf::new(path.leaf);
        let is_within = path.high(context).is_none_or(|high| *last < high);
        // First, without a look at records: in a load of scattered keys no run is within a leaf.
        if !is_within || self.sweep.was_full() {
            return Ok(Some(false));
        }
        let content = self.content(context, &leaf);
        if !content.is_before(context, first)
            // A copy would have the usual room again, and so grow without end.
            || self.is_too_much(&content, content.bytes(), Wanted::NONE)
        {
            return Ok(Some(false));
        }
        // The room of the records until they are copied.
        let bytes = run.iter().map(|(key, value)| padded((key.len() + value.len()) as u64)).sum();
        let mut block = context.guard.reserve(bytes).map_err(Error::storage)?;
        let (mut at, mut records) = (0, Vec::with_capacity(run.len()));
        for (key, value) in run {
            let [key_bytes, record_bytes] =
                [key.len(), key.len() + value.len()].map(|len| len as u64);
            block.write(at, key);
            block.write(at + key_bytes, value);
            block.zero(at + record_bytes, padded(record_bytes) - record_bytes);
            let meta = Meta::visible(at, 0, key_bytes, record_bytes, false);
            records.push(LiveRecord { meta, off: block.off() + at });
            at += padded(record_bytes);
        }
        let run = self.content_of(context, records);
        let (closing, content) = self.close(context, &leaf)?;
        let installed = self.append_to_closed(context, &path, closing, (content, run, first));
        match installed {
            Ok(Progress::Replaced) => Ok(Some(true)),
            Ok(Progress::Raced) => {
                closing.reopen(context);
                Ok(None)
            }
            other => {
                closing.reopen(context);
                other.map(|_| Some(false))
            }
        }
    }

    /// Installs the records, which are a run, behind those of a closed leaf. *Raced* means: search
    /// again.
    fn append_to_closed(
        &self,
        context: Context<'_, D>,
        path: &Path,
        closing: Closing,
        (content, run, first): (Content, Content, &[u8]),
    ) -> Outcome {
        if !content.is_before(context, first) && !mutant!("run-amid-records") {
            return Ok(Progress::Nothing);
        }
        let room = self.room(Wanted::NONE);
        let (together, _blocks) = content.join(context, &run)?;
        if !self.is_too_much(&together, together.bytes(), Wanted::NONE) {
            return self.consolidate(context, path, closing, &together, room);
        }
        // As before: it may have grown until it was closed.
        if self.is_too_much(&content, content.bytes(), Wanted::NONE) || content.len() == 0 {
            return Ok(Progress::Nothing);
        }
        let between = separator_before(context, &content, &run);
        let parent = match self.parent_with_room(context, path, between.unwrap_or(&[0; 8]))? {
            Ok(parent) => parent,
            Err(_) => return Ok(Progress::Raced),
        };
        self.install_halves(context, path, closing, parent, (&content, between, &run), room)
    }
}

#[cfg(test)]
mod tests {
    use pando_index::RangeIndex;
    use pando_pmem::Process;
    use pando_tree::maps::Tree;
    use pando_tree::testing::Fixture;

    use super::*;
    use crate::index::BzTrees;
    use crate::options::Options;

    #[test]
    fn a_load_in_the_order_of_keys_fills_its_leaves() {
        for value_bytes in [8, 30] {
            let tree = Fixture::<Process, BzTrees>::anonymous(Options::default()).index;
            let records: Vec<_> =
                (0..6_000_u64).map(|number| (number.to_be_bytes(), vec![1; value_bytes])).collect();
            let lent: Vec<Record<'_>> =
                records.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let of_leaf = tree.run_of(&lent);
            assert!(of_leaf >= 20, "a leaf has {of_leaf} records");
            let batches = lent.chunks(1_000);
            let most = batches.len() * 1_000_usize.div_ceil(of_leaf);
            batches.for_each(|batch| tree.upsert_many(batch).expect("room"));
            let audit = tree.audit().expect("audits");
            assert_eq!((tree.len().expect("counted"), audit.problems), (6_000, vec![]));
            assert!(audit.stat.leaves as usize <= most, "{} leaves, not {most}", audit.stat.leaves);
            // Again: these keys are there.
            tree.upsert_many(&lent).expect("room");
            assert_eq!(tree.len().expect("counted"), 6_000);
        }
    }

    /// Each run is behind a leaf that has got some records since the last one.
    #[test]
    fn a_leaf_before_runs_is_split() {
        let options = Options { leaf_bytes: 512, free_bytes: 128, ..Options::default() };
        let tree = Fixture::<Process, BzTrees>::anonymous(options).index;
        let mut largest = 0;
        for round in 0..300_u64 {
            for low in round * 5..round * 5 + 5 {
                tree.insert(&low.to_be_bytes(), &[1; 8]).expect("room");
            }
            let run: Vec<_> =
                (0..20).map(|at| (1_000_000 - round * 100 + at).to_be_bytes()).collect();
            let lent: Vec<Record<'_>> = run.iter().map(|key| (&key[..], &[1; 8][..])).collect();
            tree.upsert_many(&lent).expect("room");
            let guard = tree.pin().expect("a slot");
            let low = tree.find_leaf(tree.context(&guard), Probe::new(&(round * 5).to_be_bytes()));
            largest = largest.max(low.node.header().node_bytes);
        }
        assert_eq!(tree.len().expect("counted"), 300 * 25);
        assert!(largest <= 1_024, "a leaf has {largest} bytes");
    }

    /// Short runs share leaves.
    #[test]
    fn short_runs_leave_no_small_leaves() {
        let tree = Fixture::<Process, BzTrees>::anonymous(Options::default()).index;
        for from in (0..4_000_u64).step_by(8) {
            let run: Vec<_> = (from..from + 8).map(u64::to_be_bytes).collect();
            let lent: Vec<Record<'_>> = run.iter().map(|key| (&key[..], &[1; 8][..])).collect();
            tree.upsert_many(&lent).expect("room");
        }
        let stat = tree.audit().expect("audits").stat;
        assert!(stat.records / stat.leaves >= 30, "{stat:?}");
    }
}
