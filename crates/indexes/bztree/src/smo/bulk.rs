//! Runs of records behind all records of a leaf. A leaf of each run is built, and several are
//! linked at once, as a load in the order of keys needs it.
//!
//! | step | deciding word | a crash leaves |
//! | --- | --- | --- |
//! | look: the first run lies behind the records of its leaf and within its range; so do some runs behind it | | nothing |
//! | close the leaf: its records are final | the closing word | an open leaf, or a closed one |
//! | look again, at the final records | | the same |
//! | install a leaf of the old records and of the first run, if they fit one, else a copy of the leaf, or two halves; and a leaf of each other run | the words of a consolidation, or of a split | the same, or all records of the runs |
//!
//! The keys of the runs are absent from the closing to the installation, since they are in the
//! range of a closed leaf and behind its records. So each record is inserted at the installation.
//! If anything else is found, the leaf is opened again, unless it is a range leaf, and the records
//! are written one by one. They also are in a pool that was full, where a closed leaf may not be
//! replaced. A leaf that is to be split becomes two leaves in the same installation.

use pando_index::{Error, Record, Result};
use pando_inner::{MOST_MORE, Path, Progress};
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::NewBlock;
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
use crate::smo::split::{Other, middle_of, separator_bytes_of};
use crate::tree::BzTree;

/// Shorter runs are written one by one.
const LEAST_RUN: usize = 8;
/// Runs that are linked at once. The leaf before them and the parent are copied once for them all.
const MOST_RUNS: usize = MOST_MORE;
/// The longest separator that is not shortened.
const MOST_WHOLE_BYTES: usize = 64;
/// How often a run is tried: an attempt may split the parent first.
const ATTEMPTS: u32 = 4;

impl<D: Domain> BzTree<D> {
    /// Upserts the records, in their order.
    pub(crate) fn write_many(&self, records: &[Record<'_>]) -> Result<()> {
        let mut behind = 0;
        // The first record that is not written.
        let mut first = 0;
        while behind < records.len() {
            let start = behind;
            let run = self.run_of(&records[start..]).max(1);
            behind += run;
            if run < LEAST_RUN {
                continue;
            }
            self.put_many(&records[first..start])?;
            first = start + self.append(&records[start..], run)?;
            behind = behind.max(first);
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

    /// The run of the first `run` records, and the runs behind it that lie below `high`; at most
    /// `most`.
    fn runs_of<'call, 'key>(
        &self,
        records: &'call [Record<'key>],
        run: usize,
        high: Option<&[u8]>,
        most: usize,
    ) -> Vec<&'call [Record<'key>]> {
        let (first, mut rest) = records.split_at(run);
        let mut runs = vec![first];
        while let (Some((last, _)), Some((next, _))) = (runs[runs.len() - 1].last(), rest.first())
            && runs.len() < most
            && last < next
        {
            let (run, behind) = rest.split_at(self.run_of(rest));
            let is_within = run.last().is_some_and(|(last, _)| is_below(last, high))
                || mutant!("runs-beyond-leaf");
            if run.len() < LEAST_RUN || !is_within {
                break;
            }
            runs.push(run);
            rest = behind;
        }
        runs
    }

    /// Inserts the first `run` records, which are a run, and runs behind it. Returns the number of
    /// records that were inserted; none if they are to be written one by one.
    fn append(&self, records: &[Record<'_>], run: usize) -> Result<usize> {
        let mut most = MOST_RUNS;
        for _ in 0..ATTEMPTS {
            let guard = self.pin()?;
            let context = self.context(&guard);
            let appended = guard.without_reserve(|| self.try_append(context, records, (run, most)));
            undamaged(&guard)?;
            match appended {
                Ok(Some(appended)) => return Ok(appended),
                Ok(None) => {}
                // A full pool: one run may still fit, or single records.
                Err(_) if most > 1 => most = 1,
                Err(_) => return Ok(0),
            }
        }
        Ok(0)
    }

    /// One attempt. `None` means: search again from the root.
    fn try_append(
        &self,
        context: Context<'_, D>,
        records: &[Record<'_>],
        (run, most): (usize, usize),
    ) -> Result<Option<usize>> {
        let (first, last) = (records[0].0, records[run - 1].0);
        let path = self.find_path(context, Probe::new(first));
        let leaf = Leaf::new(path.leaf);
        let high = path.high(context);
        // First, without a look at records: in a load of scattered keys no run is within a leaf.
        if !is_below(last, high) || self.sweep.was_full() {
            return Ok(Some(0));
        }
        let content = self.content(context, &leaf);
        if !content.is_before(context, first) || self.is_one_too_long(&content) {
            return Ok(Some(0));
        }
        let runs = self.runs_of(records, run, high, most);
        let staged: Vec<_> =
            runs.iter().map(|run| self.stage(context, run)).collect::<Result<_>>()?;
        let contents: Vec<_> = staged.iter().map(|(content, _)| content).collect();
        // Before the leaf is closed: a refusal must leave no trace in it.
        let leaf_bytes = u64::from(self.options.leaf_bytes);
        let room = (0..=runs.len() + 1).map(|_| context.reserve(leaf_bytes));
        room.collect::<Result<Vec<_>>>().map(drop)?;
        let (closing, content) = self.close(context, &leaf)?;
        let installed = self.append_to_closed(context, &path, closing, (content, &contents, first));
        match installed {
            Ok((Progress::Replaced, installed)) => {
                Ok(Some(runs[..installed].iter().map(|run| run.len()).sum()))
            }
            Ok((Progress::Raced, _)) => {
                closing.reopen(context);
                Ok(None)
            }
            other => {
                closing.reopen(context);
                other.map(|_| Some(0))
            }
        }
    }

    /// Whether a leaf has too much, and cannot be halved.
    fn is_one_too_long(&self, content: &Content) -> bool {
        content.len() == 1 && self.is_too_much(content, content.bytes(), Wanted::NONE)
    }

    /// Writes the records of a run into a block, which is kept until they are copied.
    fn stage<'op>(
        &self,
        context: Context<'op, D>,
        run: &[Record<'_>],
    ) -> Result<(Content, NewBlock<'op, D>)> {
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
        Ok((self.content_of(context, records), block))
    }

    /// Installs the records of runs behind those of a closed leaf. Returns the number of runs that
    /// were installed. *Raced* means: search again.
    fn append_to_closed(
        &self,
        context: Context<'_, D>,
        path: &Path,
        closing: Closing,
        (content, runs, first): (Content, &[&Content], &[u8]),
    ) -> Result<(Progress, usize)> {
        if !content.is_before(context, first) && !mutant!("run-amid-records") {
            return Ok((Progress::Nothing, 0));
        }
        let room = self.room(Wanted::NONE);
        let (together, _blocks) = content.join(context, runs[0])?;
        let is_joined = !self.is_too_much(&together, together.bytes(), Wanted::NONE);
        // As before: it may have got a record until it was closed.
        if !is_joined && (content.len() == 0 || self.is_one_too_long(&content)) {
            return Ok((Progress::Nothing, 0));
        }
        // A copy of a leaf with too much would have the usual room again, and so grow without end.
        let is_halved = !is_joined && self.is_too_much(&content, content.bytes(), Wanted::NONE);
        let middle = if is_halved { middle_of(&content) } else { content.len() };
        let (left, right) = content.split_at(middle);
        let (leaf, runs) = if is_joined { (&together, &runs[1..]) } else { (&left, runs) };
        let parts: Vec<&Content> =
            is_halved.then_some(&right).into_iter().chain(runs.iter().copied()).collect();
        let first_run = (!is_joined).then_some(usize::from(is_halved));
        let others = self.others_of(context, leaf, &parts, first_run);
        let installed = usize::from(is_joined) + others.len() - usize::from(is_halved);
        if others.is_empty() {
            return Ok((self.consolidate(context, path, closing, leaf, room)?, installed));
        }
        let parent = match self.parent_with_room(context, path, &others)? {
            Ok(parent) => parent,
            Err(_) => return Ok((Progress::Raced, 0)),
        };
        let leaves = (leaf, &others[..]);
        Ok((self.install_leaves(context, path, closing, parent, leaves, room)?, installed))
    }

    /// The first of `parts`, and as many others as take a quarter of an inner node, each with the
    /// separator before it. A parent may have to be split for them; its halves have room.
    ///
    /// Other threads may load keys between the leaf and `first`, the first part that is a run
    /// behind it. They are to go into leaves of their own, so the separator is the whole first key.
    fn others_of<'op, 'call>(
        &self,
        context: Context<'op, D>,
        mut left: &'call Content,
        parts: &[&'call Content],
        first: Option<usize>,
    ) -> Vec<Other<'op, 'call>> {
        let (mut others, mut more_bytes) = (Vec::with_capacity(parts.len()), 0);
        for (at, &part) in parts.iter().take(MOST_MORE).enumerate() {
            let whole = match part {
                Content::Records(records) if first == Some(at) => records.first(),
                _ => None,
            };
            let whole = whole.map(|first| first.key(context));
            let whole = whole.filter(|key| key.len() <= MOST_WHOLE_BYTES);
            let other = (whole.or_else(|| separator_before(context, left, part)), part);
            more_bytes += separator_bytes_of(&other);
            if !others.is_empty() && more_bytes > u64::from(self.options.inner_bytes) / 4 {
                break;
            }
            others.push(other);
            left = part;
        }
        others
    }
}

/// Whether a key is below the upper end of a range.
fn is_below(key: &[u8], high: Option<&[u8]>) -> bool {
    high.is_none_or(|high| key < high)
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

    /// As after a batch whose last records were too few for a run.
    #[test]
    fn a_leaf_with_too_much_is_halved_before_runs() {
        for value_bytes in [8, 30] {
            let tree = Fixture::<Process, BzTrees>::anonymous(Options::default()).index;
            let records: Vec<_> =
                (0..1_000_u64).map(|number| (number.to_be_bytes(), vec![1; value_bytes])).collect();
            let lent: Vec<Record<'_>> =
                records.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let run = tree.run_of(&lent);
            assert_eq!(tree.append(&lent[..run], run).expect("room"), run);
            tree.put_many(&lent[run..run + 1]).expect("room");
            let appended = tree.append(&lent[run + 1..], run).expect("room");
            assert_eq!(appended, run * (MOST_RUNS - 1), "values of {value_bytes} bytes");
            let (audit, there) = (tree.audit().expect("audits"), run + 1 + appended);
            assert_eq!((audit.stat.records as usize, audit.problems), (there, vec![]));
            assert_eq!(audit.stat.leaves as usize, 2 + MOST_RUNS - 1);
        }
    }

    /// A record that has a leaf of its own, because no other one fits beside it.
    #[test]
    fn a_run_behind_a_long_record_is_written() {
        for long in [1_200, 2_000, 30_000] {
            let tree = Fixture::<Process, BzTrees>::anonymous(Options::default()).index;
            let long = vec![b'a'; long];
            let short: Vec<_> =
                (0..100).map(|number| format!("b{number:03}").into_bytes()).collect();
            let behind = short.iter().map(|key| (&key[..], &b"1"[..]));
            let lent: Vec<Record<'_>> =
                [(&long[..], &b"1"[..])].into_iter().chain(behind).collect();
            tree.upsert_many(&lent).expect("room");
            let audit = tree.audit().expect("audits");
            assert_eq!((audit.stat.records, audit.problems), (101, vec![]));
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

    /// Runs are linked together as far as they lie below the next leaf's keys; fewer of them, if
    /// their separators are long.
    #[test]
    fn runs_are_linked_together_up_to_the_next_leaf() {
        let shapes = [
            (8_usize, 8, 4096, MOST_RUNS),
            (8, 30, 4096, MOST_RUNS),
            (9, 30, 4096, MOST_RUNS),
            // The parent has a parent.
            (8, 100, 512, MOST_RUNS),
            (80, 30, 1024, 2),
        ];
        for (key_bytes, value_bytes, inner_bytes, most) in shapes {
            let label = format!("keys of {key_bytes}, values of {value_bytes}");
            let options = Options { inner_bytes, ..Options::default() };
            let tree = Fixture::<Process, BzTrees>::anonymous(options).index;
            let of_number = |number: u64| {
                let key = [vec![0; key_bytes - 8], number.to_be_bytes().to_vec()].concat();
                (key, vec![1; value_bytes])
            };
            let records: Vec<_> = (0..3_000).map(of_number).collect();
            let lent: Vec<Record<'_>> =
                records.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            tree.upsert_many(&lent[..10]).expect("room");
            tree.upsert_many(&lent[2_500..]).expect("room");
            let leaves = || tree.audit().expect("audits").stat.leaves as usize;
            let (before, run) = (leaves(), tree.run_of(&lent[10..]));
            let appended = tree.append(&lent[10..], run).expect("room");
            assert_eq!((appended, leaves() - before), (run * most, most), "{label}");

            // Up to the records of another load, which lie behind.
            let mut at = 10 + appended;
            while let run = tree.run_of(&lent[at..])
                && at + run <= 2_500
                && key_bytes <= MOST_WHOLE_BYTES
            {
                let appended = tree.append(&lent[at..], run).expect("room");
                assert!(appended >= run, "{label}: from {at} on");
                at += appended;
            }
            tree.upsert_many(&lent[at..]).expect("room");
            let audit = tree.audit().expect("audits");
            assert_eq!((tree.len().expect("counted"), audit.problems), (3_000, vec![]), "{label}");
        }
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
