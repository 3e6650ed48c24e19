//! A history of transactions over crashes: is there an order of all of them that explains what each
//! has read, and what each crash has left?
//!
//! Each value names the transaction that wrote it, and each transaction reads what it replaces. So
//! the versions of a key form a chain. With the chains all dependencies between transactions are
//! known, and the transactions are serializable if no cycle leads through them (as Elle finds it):
//!
//! | from | to | allowed in a cycle |
//! | --- | --- | --- |
//! | the writer of a version | one that has read it | no |
//! | the writer of a version | the one that replaced it | no |
//! | one that has read a version | the one that replaced it | if it has snapshot isolation, and the dependency before it in the cycle is of this kind too |
//! | one of a round | all of later rounds | no |
//!
//! # Rounds
//!
//! A round ends when the pool is opened again and all its keys are read, after a kill, a power cut
//! or nothing. What is found decides which transactions took place for those that come later:
//!
//! * They are those that wrote the version of a key that was found, or one before it in its chain.
//! * Each of them is there with all of its writes.
//! * A transaction that was acknowledged is there if its LSN is at most the last one that the
//!   crash left, and not if it is above. That one is the last LSN of the log that was recovered.
//!   After a kill it is [`u64::MAX`].
//! * None of those that are there, and none that only read up to that LSN, has read a version that
//!   is not there.
//! * A transaction has a higher LSN than those whose versions it replaced, also over a crash.
//! * A transaction without an outcome, in flight at the crash, took place if its versions were
//!   found, or if one that was acknowledged has read them before they were lost.
//!
//! What was lost had taken place too, for the rest of its round. So it is in the order, but before
//! nothing of the rounds that follow.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Graph, Node};
use super::recorded::{Id, NONE, Place, Recorded, State};

/// What is known about the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: it was in flight at the crash.
    Unknown,
    /// It has failed, and nothing of it may be seen.
    Failed,
    /// It was acknowledged, with this LSN.
    Committed {
        /// That of its commit; of one that only reads, one up to which its reads are there.
        lsn: u64,
    },
}

/// A transaction and its end.
type Ended = (Recorded, Outcome);

/// The transactions between two openings, and what the second one found.
#[derive(Clone, Debug)]
struct Round {
    transactions: BTreeMap<Id, Ended>,
    found: State,
    last_lsn: u64,
}

/// Transactions of many rounds over the same keys, which are absent at first.
#[derive(Clone, Debug, Default)]
pub struct History {
    rounds: Vec<Round>,
    /// Those since the last opening.
    transactions: BTreeMap<Id, Ended>,
}

/// Counts of a history that is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Rounds.
    pub rounds: usize,
    /// Transactions that took place.
    pub committed: usize,
    /// Those of them without an outcome.
    pub in_flight: usize,
    /// Those of them with writes that a crash has undone.
    pub lost: usize,
}

/// The versions that are there at some time.
#[derive(Debug, Default)]
struct Versions {
    now: State,
    /// All that have been there, also those that were replaced.
    ever: BTreeSet<(Place, Id)>,
    /// What has replaced each of them.
    replaced: BTreeMap<(Place, Id), Id>,
    /// The LSNs of those that were acknowledged.
    lsns: BTreeMap<Id, u64>,
}

impl History {
    /// Adds a transaction of the present round.
    pub fn add(&mut self, recorded: Recorded, outcome: Outcome) {
        self.transactions.insert(recorded.id, (recorded, outcome));
    }

    /// Ends the round: the pool was opened again, up to this LSN, and has these versions.
    pub fn reopened(&mut self, found: State, last_lsn: u64) {
        let transactions = std::mem::take(&mut self.transactions);
        self.rounds.push(Round { transactions, found, last_lsn });
    }

    /// Checks all rounds that have ended.
    ///
    /// # Errors
    ///
    /// What no order of the transactions explains.
    pub fn check(&self) -> Result<Checked, String> {
        let (mut versions, mut graph) = (Versions::default(), Graph::default());
        let mut checked = Checked::default();
        for (number, round) in self.rounds.iter().enumerate() {
            let counts = round.check(number, &mut versions, &mut graph);
            let counts = counts.map_err(|what| format!("round {number}: {what}"))?;
            checked.rounds += 1;
            checked.committed += counts.committed;
            checked.in_flight += counts.in_flight;
            checked.lost += counts.lost;
        }
        match graph.cycle() {
            None => Ok(checked),
            Some(cycle) => {
                let lines = cycle.iter().map(|node| self.described(*node));
                Err(format!("a cycle:\n  {}", lines.collect::<Vec<_>>().join("\n  ")))
            }
        }
    }

    fn described(&self, node: Node) -> String {
        let Node::Transaction(id) = node else { return format!("{node:?}") };
        let found = self.rounds.iter().find_map(|round| round.transactions.get(&id));
        found.map_or_else(|| id.to_string(), |ended| format!("{ended:?}"))
    }
}

/// The version of a key.
fn version(state: &State, place: Place) -> Id {
    state.get(&place).copied().unwrap_or(NONE)
}

/// The versions of others that a transaction has read, also of the keys that it wrote.
fn all_reads(recorded: &Recorded) -> impl Iterator<Item = (Place, Id)> {
    let replaced = recorded.writes.iter().map(|(&place, &id)| (place, id));
    recorded.reads.iter().copied().chain(replaced).filter(|(_, id)| *id != NONE)
}

impl Round {
    /// Checks the round behind others that have left `versions`, and adds it to these and to the
    /// order.
    fn check(
        &self,
        number: usize,
        versions: &mut Versions,
        graph: &mut Graph,
    ) -> Result<Checked, String> {
        let there = self.there(&versions.now)?;
        let survivors: BTreeSet<_> = there.iter().map(|(_, id)| *id).collect();
        for ended in self.transactions.values() {
            self.check_atomic(ended, &there, &survivors)?;
            self.check_reads(ended, &versions.ever)?;
        }
        versions.ever.extend(&there);
        let committed = self.committed(&survivors);
        versions.lsns.extend(committed.iter().filter_map(|(recorded, end)| match end {
            Outcome::Committed { lsn } => Some((recorded.id, *lsn)),
            _ => None,
        }));
        let mut counts = Checked::default();
        let mut lost = Vec::new();
        for (recorded, outcome) in &committed {
            let node = Node::Transaction(recorded.id);
            if recorded.is_over_snapshot && !recorded.writes.is_empty() {
                graph.set_over_snapshot(node);
            }
            if let Some(before) = number.checked_sub(1) {
                graph.add(Node::Reopened(before), node);
            }
            all_reads(recorded).for_each(|(_, id)| graph.add(Node::Transaction(id), node));
            for (&place, &old) in &recorded.writes {
                if let Some(other) = versions.replaced.insert((place, old), recorded.id) {
                    let id = recorded.id;
                    return Err(format!("{id} and {other} have replaced {old} at {place:?}"));
                }
                let [new_lsn, old_lsn] = [recorded.id, old].map(|id| versions.lsns.get(&id));
                if new_lsn.is_some_and(|lsn| old_lsn >= Some(lsn)) {
                    return Err(format!(
                        "{recorded:?}, {outcome:?}, has replaced {old} of LSN {old_lsn:?}"
                    ));
                }
            }
            if survivors.contains(&recorded.id) || self.is_up_to_last(*outcome) {
                let missing = all_reads(recorded).find(|read| !versions.ever.contains(read));
                if let Some((place, id)) = missing {
                    return Err(format!(
                        "{recorded:?} is there, and {id}, of which it has read {place:?}, is not"
                    ));
                }
                graph.add(node, Node::Reopened(number));
            } else if !recorded.writes.is_empty() {
                lost.push(recorded);
            }
            counts.committed += 1;
            counts.in_flight += usize::from(*outcome == Outcome::Unknown);
        }
        for (recorded, _) in &committed {
            let others = recorded.reads.iter().filter_map(|read| versions.replaced.get(read));
            for &other in others.filter(|other| **other != recorded.id) {
                graph.add_anti(Node::Transaction(recorded.id), Node::Transaction(other));
            }
        }
        for recorded in &lost {
            recorded.writes.iter().for_each(|(&place, &old)| {
                versions.replaced.remove(&(place, old));
            });
        }
        if let Some(before) = number.checked_sub(1) {
            graph.add(Node::Reopened(before), Node::Reopened(number));
        }
        versions.now.clone_from(&self.found);
        counts.lost = lost.len();
        Ok(counts)
    }

    /// The versions of the round that were found or replaced, back to those of `before`.
    fn there(&self, before: &State) -> Result<BTreeSet<(Place, Id)>, String> {
        let mut there = BTreeSet::new();
        for &place in before.keys().chain(self.found.keys()) {
            let (first, last) = (version(before, place), version(&self.found, place));
            let mut id = last;
            while id != first && !there.contains(&(place, id)) {
                let writer = self.transactions.get(&id);
                let (recorded, _) =
                    writer.filter(|(_, outcome)| *outcome != Outcome::Failed).ok_or_else(|| {
                        format!("{place:?} has come from {first} to {last} over {id}: {writer:?}")
                    })?;
                let old = recorded.writes.get(&place);
                there.insert((place, id));
                id = *old.ok_or_else(|| format!("{place:?} was not written by {recorded:?}"))?;
            }
        }
        Ok(there)
    }

    /// Whether what has this outcome, and writes nothing that was lost, is there.
    fn is_up_to_last(&self, outcome: Outcome) -> bool {
        matches!(outcome, Outcome::Committed { lsn } if lsn <= self.last_lsn)
    }

    /// Checks that all of a transaction is there or nothing, and all if it was acknowledged.
    fn check_atomic(
        &self,
        (recorded, outcome): &Ended,
        there: &BTreeSet<(Place, Id)>,
        survivors: &BTreeSet<Id>,
    ) -> Result<(), String> {
        let is_there = survivors.contains(&recorded.id);
        let mut places = recorded.writes.keys();
        let missing = places.find(|place| !there.contains(&(**place, recorded.id)));
        match (missing, outcome) {
            (Some(place), _) if is_there => {
                Err(format!("{recorded:?} is there by half: not at {place:?}"))
            }
            (Some(place), _) if self.is_up_to_last(*outcome) => {
                Err(format!("{recorded:?}, {outcome:?}, is lost at {place:?}"))
            }
            (None, Outcome::Committed { lsn }) if is_there && *lsn > self.last_lsn => {
                Err(format!("{recorded:?}, {outcome:?}, is there, and the log was not"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the versions were there that a transaction has read, whatever became of it.
    fn check_reads(
        &self,
        (recorded, _): &Ended,
        ever: &BTreeSet<(Place, Id)>,
    ) -> Result<(), String> {
        for (place, id) in all_reads(recorded) {
            let is_written = self.transactions.get(&id).is_some_and(|(writer, outcome)| {
                *outcome != Outcome::Failed && writer.writes.contains_key(&place)
            });
            if !is_written && !ever.contains(&(place, id)) {
                return Err(format!("{recorded:?} has read a version that was never there"));
            }
        }
        Ok(())
    }

    /// The transactions that took place: those that were acknowledged, those that are there, and
    /// those whose versions one of them has read.
    fn committed(&self, survivors: &BTreeSet<Id>) -> Vec<&Ended> {
        let is_acknowledged = |outcome| matches!(outcome, Outcome::Committed { .. });
        let acknowledged = self.transactions.values().filter(|(_, end)| is_acknowledged(*end));
        let mut due: Vec<_> = acknowledged.map(|(recorded, _)| recorded.id).collect();
        due.extend(survivors);
        let mut committed = BTreeMap::new();
        while let Some(id) = due.pop() {
            if let Some(ended) = self.transactions.get(&id)
                && committed.insert(id, ended).is_none()
            {
                due.extend(all_reads(&ended.0).map(|(_, id)| id));
            }
        }
        committed.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = u64::MAX;

    /// A transaction that reads and writes keys of map 0.
    fn recorded(id: Id, reads: &[(u64, Id)], writes: &[(u64, Id)]) -> Recorded {
        let places = |list: &[(u64, Id)]| -> Vec<_> {
            list.iter().map(|&(key, id)| ((0, key), id)).collect()
        };
        let (reads, writes) = (places(reads), places(writes));
        let (reads, writes) = (reads.into_iter().collect(), writes.into_iter().collect());
        Recorded { reads, writes, ..Recorded::new(id, false) }
    }

    fn state(versions: &[(u64, Id)]) -> State {
        versions.iter().map(|&(key, id)| ((0, key), id)).collect()
    }

    /// A history of one round.
    fn of(ended: &[(Recorded, Outcome)], found: &[(u64, Id)], last_lsn: u64) -> History {
        let mut history = History::default();
        ended.iter().for_each(|(recorded, end)| history.add(recorded.clone(), *end));
        history.reopened(state(found), last_lsn);
        history
    }

    fn refusal(history: &History) -> String {
        history.check().expect_err("not serializable")
    }

    const fn at(lsn: u64) -> Outcome {
        Outcome::Committed { lsn }
    }

    #[test]
    fn what_was_acknowledged_is_there_and_what_was_in_flight_may_be() {
        let both = |outcome| {
            [
                (recorded(1, &[], &[(0, NONE), (1, NONE)]), at(1)),
                (recorded(2, &[], &[(0, 1), (1, 1)]), outcome),
            ]
        };
        let counts = |committed, in_flight, lost| Checked { rounds: 1, committed, in_flight, lost };
        let check = |outcome, found, last| of(&both(outcome), found, last).check();
        let (new, old) = (&[(0, 2), (1, 2)], &[(0, 1), (1, 1)]);
        assert_eq!(check(at(2), new, MAX), Ok(counts(2, 0, 0)));
        assert_eq!(check(Outcome::Unknown, new, MAX), Ok(counts(2, 1, 0)));
        assert_eq!(check(Outcome::Unknown, old, MAX), Ok(counts(1, 0, 0)));
        assert_eq!(check(Outcome::Failed, old, MAX), Ok(counts(1, 0, 0)));
        assert_eq!(check(at(2), old, 1), Ok(counts(2, 0, 1)));
        for (outcome, found, last_lsn, what) in [
            (at(2), old, MAX, "is lost"),
            (at(2), old, 2, "is lost"),
            (at(2), new, 1, "the log was not"),
            (Outcome::Unknown, &[(0, 2), (1, 1)], MAX, "by half"),
            (Outcome::Failed, new, MAX, "over 2"),
            (Outcome::Unknown, &[(0, 3), (1, 1)], MAX, "over 3: None"),
        ] {
            let said = refusal(&of(&both(outcome), found, last_lsn));
            assert!(said.contains(what), "{said}");
        }
    }

    #[test]
    fn nothing_that_is_there_has_read_what_is_lost() {
        let lost = (recorded(1, &[], &[(0, NONE)]), at(1));
        let reader = recorded(2, &[(0, 1)], &[(1, NONE)]);
        let after = |end| of(&[lost.clone(), (reader.clone(), end)], &[(1, 2)], 0);
        assert!(refusal(&after(Outcome::Unknown)).contains("of which it has read"));
        // It has not read it, and may be there.
        let other = (recorded(2, &[], &[(1, NONE)]), Outcome::Unknown);
        assert!(of(&[lost.clone(), other], &[(1, 2)], 0).check().is_ok());
        // One that only reads is acknowledged with what it has read, or not at all.
        let reader = recorded(2, &[(0, 1)], &[]);
        let after = |lsn| of(&[lost.clone(), (reader.clone(), at(lsn))], &[], 0);
        assert!(refusal(&after(0)).contains("of which it has read"));
        assert_eq!(after(1).check().map(|counts| counts.lost), Ok(1));
    }

    #[test]
    fn what_was_lost_was_in_the_order_of_its_round() {
        // In flight at the crash, and read by halves before it.
        let writer = (recorded(1, &[], &[(0, NONE), (1, NONE)]), Outcome::Unknown);
        let reader = (recorded(2, &[(0, 1), (1, NONE)], &[]), at(2));
        assert!(refusal(&of(&[writer, reader], &[], 0)).contains("a cycle"));
        // A later round replaces what it had replaced, and reads what it had not left.
        let mut history = of(&[(recorded(1, &[], &[(0, NONE)]), at(1))], &[], 0);
        history.add(recorded(2, &[(1, NONE)], &[(0, NONE)]), at(1));
        history.reopened(state(&[(0, 2)]), MAX);
        assert!(history.check().is_ok());
        // It has read what was lost.
        history.add(recorded(3, &[(0, 1)], &[]), at(1));
        history.reopened(state(&[(0, 2)]), MAX);
        assert!(refusal(&history).contains("never there"));
    }

    #[test]
    fn rounds_are_in_their_order() {
        let mut history = of(&[(recorded(1, &[], &[(0, NONE)]), at(1))], &[(0, 1)], MAX);
        history.add(recorded(2, &[(0, NONE)], &[]), at(1));
        history.reopened(state(&[(0, 1)]), MAX);
        assert!(refusal(&history).contains("a cycle"));
        // Nor does a snapshot of a later round miss it.
        let stale = Recorded { is_over_snapshot: true, ..recorded(2, &[(0, NONE)], &[]) };
        let mut history = of(&[(recorded(1, &[], &[(0, NONE)]), at(1))], &[(0, 1)], MAX);
        history.add(stale, at(1));
        history.reopened(state(&[(0, 1)]), MAX);
        assert!(refusal(&history).contains("a cycle"));
        // An LSN comes twice.
        let mut history = of(&[(recorded(1, &[], &[(0, NONE)]), at(7))], &[(0, 1)], MAX);
        history.add(recorded(2, &[], &[(0, 1)]), at(7));
        history.reopened(state(&[(0, 2)]), MAX);
        assert!(refusal(&history).contains("of LSN Some(7)"));
        // What was there goes back.
        let mut history = of(&[(recorded(1, &[], &[(0, NONE)]), at(1))], &[(0, 1)], MAX);
        history.reopened(state(&[]), MAX);
        assert!(refusal(&history).contains("from 1 to 0"));
    }

    #[test]
    fn a_version_is_replaced_once_and_a_failed_one_never_read() {
        let first = (recorded(1, &[], &[(0, NONE)]), at(1));
        let second = (recorded(2, &[], &[(0, NONE), (1, NONE)]), at(2));
        let said = refusal(&of(&[first.clone(), second], &[(0, 1)], 1));
        assert!(said.contains("have replaced 0"), "{said}");
        let failed = (recorded(1, &[], &[(0, NONE)]), Outcome::Failed);
        for end in [at(2), Outcome::Unknown, Outcome::Failed] {
            let reader = (recorded(2, &[(0, 1)], &[]), end);
            let said = refusal(&of(&[failed.clone(), reader], &[], MAX));
            assert!(said.contains("never there"), "{said}");
        }
        // Nor does it read a key that the writer has not written.
        let reader = (recorded(2, &[(1, 1)], &[]), at(2));
        assert!(refusal(&of(&[first, reader], &[(0, 1)], MAX)).contains("never there"));
    }

    #[test]
    fn write_skew_is_allowed_over_snapshots() {
        let skew = |is_over_snapshot| {
            let [first, second] = [(1, [(0, NONE)], [(1, NONE)]), (2, [(1, NONE)], [(0, NONE)])]
                .map(|(id, reads, writes)| recorded(id, &reads, &writes))
                .map(|recorded| (Recorded { is_over_snapshot, ..recorded }, at(1)));
            of(&[first, second], &[(0, 2), (1, 1)], MAX).check()
        };
        assert!(skew(true).is_ok());
        assert!(skew(false).is_err());
    }
}
