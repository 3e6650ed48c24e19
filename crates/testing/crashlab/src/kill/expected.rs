//! The expected content of a pool, from the messages of the processes that wrote to it.
//!
//! [`Expected`] is the content at the last look, and the writes [`Since`] then. A writer's part
//! must be the result of its operations up to the last acknowledged one, or up to one of the
//! operations in flight. The number of those is one, or the number of operations per
//! acknowledgement; it is more if acknowledgements can be lost.
//!
//! The recorded transactions of all processes since the pool was created must have an order that
//! explains what each has read, and the content at each look ([`pando_tc::testing`]).

use std::collections::BTreeSet;

use pando_tc::testing::{History, versions};

use super::child::Args;
use super::filled;
use super::load::{LoadEnd, Loaded};
use super::supervise::Heard;
use super::workload::{FILLED, LOADED, Profile, RECORDED, Records, State, Style, Writer, part};

/// The expected content of a pool.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Most acknowledgements of a writer that may be lost.
    lost: u64,
    /// Whether the pool must exist.
    is_there: bool,
    /// Whether the store was filled beyond its memory.
    is_filled: bool,
    /// The content at the last look.
    state: State,
    since: Since,
    /// The recorded transactions.
    history: History,
}

/// The writes to a pool since the last look.
#[derive(Clone, Debug, Default)]
enum Since {
    /// None.
    #[default]
    Nothing,
    /// Writers with this seed have written. `acknowledged` counts the acknowledged operations.
    Written { style: Style, seed: u64, acknowledged: Vec<u64>, ahead: u64 },
    /// `pando load` has written a file.
    Loaded(Loaded),
}

impl Expected {
    /// A pool that does not exist yet.
    pub fn new(lost: u64) -> Self {
        let history = History::default();
        let (is_there, is_filled) = (false, false);
        Self { lost, is_there, is_filled, state: State::new(), since: Since::Nothing, history }
    }

    /// Evaluates the messages of a process with these orders. An error is a fault.
    pub fn hear(&mut self, args: &Args, heard: &Heard) -> Result<(), String> {
        if let Some(failed) = &heard.failed {
            return Err(failed.clone());
        }
        if !heard.problems.is_empty() {
            return Err(heard.problems.join("; "));
        }
        if heard.is_refused {
            return Err("the pool is refused as not trusted".to_owned());
        }
        if let Some(opened) = &heard.opened {
            if opened.created && self.is_there {
                return Err("the pool is lost: its file does not exist".to_owned());
            }
            self.is_there = true;
        }
        if let Some(found) = &heard.looked {
            self.verify(args.writers, found)?;
            self.verify_history(found)?;
            self.state.clone_from(found);
            self.since = Since::Nothing;
        }
        self.is_filled |= heard.is_writing && args.created.store;
        for (recorded, outcome) in heard.transactions.values() {
            self.history.add(recorded.clone(), *outcome);
        }
        if let (true, Some(profile)) = (heard.is_writing, args.write)
            && profile != Profile::Transactions
        {
            self.since = Since::Written {
                style: Style { profile, is_transactional: args.created.transactional },
                seed: args.seed,
                acknowledged: heard.acknowledged.clone(),
                ahead: args.every * (1 + self.lost),
            };
        }
        Ok(())
    }

    /// Evaluates the load of a file, or of a part of it.
    pub fn load(&mut self, loaded: Loaded) -> Result<(), String> {
        if let LoadEnd::Failed(what) = loaded.end {
            return Err(what);
        }
        self.since = Since::Loaded(loaded);
        Ok(())
    }

    /// Checks the history up to `found`. No acknowledged transaction may be lost.
    fn verify_history(&mut self, found: &State) -> Result<(), String> {
        let maps = RECORDED.iter().zip(0..).filter_map(|(map, number)| {
            let records = found.get(map)?.iter();
            Some(records.map(move |(&key, &version)| ((number, key), version)))
        });
        self.history.reopened(versions(maps.flatten()), u64::MAX);
        let checked = self.history.check().map_err(|what| format!("transactions: {what}"));
        checked.map(drop)
    }

    fn verify(&self, writers: u64, found: &State) -> Result<(), String> {
        if let Since::Written { style, seed, acknowledged, ahead } = &self.since {
            let all = Writer::all(&self.state, writers, *style, *seed);
            for (writer, acknowledged) in all.into_iter().zip(acknowledged) {
                let own = part(found, writers, writer.number);
                verify_writer(writer, *acknowledged, *ahead, &own)?;
            }
        } else {
            for number in 0..writers {
                let parts = (part(&self.state, writers, number), part(found, writers, number));
                if parts.0 != parts.1 {
                    return Err(changed("no writer was active", &parts.0, &parts.1));
                }
            }
        }
        filled::verify(found.get(&FILLED), self.is_filled)?;
        let (before, now) = (self.state.get(&LOADED), found.get(&LOADED));
        match &self.since {
            Since::Loaded(loaded) => loaded.verify(before, now),
            _ if before == now => Ok(()),
            _ => Err("nothing was loaded, and the loaded map has changed".to_owned()),
        }
    }
}

/// Checks that `own` is the result of the operations of `writer` up to the last acknowledged one,
/// or up to one of the next `ahead`.
fn verify_writer(
    mut writer: Writer,
    acknowledged: u64,
    ahead: u64,
    own: &State,
) -> Result<(), String> {
    while writer.count < acknowledged {
        writer.step();
    }
    let least = writer.state.clone();
    let mut in_flight = Vec::new();
    while *own != writer.state {
        if in_flight.len() as u64 == ahead {
            let what = format!(
                "writer {}, {acknowledged} operations acknowledged, perhaps in flight: {:?}",
                writer.number,
                in_flight.first()
            );
            return Err(changed(&what, &least, own));
        }
        in_flight.push(writer.step().0);
    }
    Ok(())
}

/// Lists the differences of `found` from `expected`.
fn changed(what: &str, expected: &State, found: &State) -> String {
    let maps: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let mut lines = vec![what.to_owned()];
    for map in maps {
        let (Some(expected), Some(found)) = (expected.get(map), found.get(map)) else {
            lines.push(format!(
                "map {map}: expected it to be {}, it is {}",
                there(expected.get(map)),
                there(found.get(map))
            ));
            continue;
        };
        let keys: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
        for key in keys.into_iter().filter(|key| expected.get(key) != found.get(key)) {
            let (expected, found) = (expected.get(key), found.get(key));
            lines.push(format!("map {map}, key {key}: expected {expected:x?}, found {found:x?}"));
        }
    }
    lines.join("\n  ")
}

fn there(records: Option<&Records>) -> String {
    records
        .map_or("absent".to_owned(), |records| format!("present, with {} records", records.len()))
}

#[cfg(test)]
mod tests {
    use pando_tc::testing::{NONE, Outcome, Recorded};

    use super::*;
    use crate::kill::workload::{MAIN, Op};

    const WRITERS: u64 = 2;

    fn args() -> Args {
        let (pool, write) = ("pool".into(), Some(Profile::Catalog));
        let created = crate::kill::created::Created::default();
        let (writers, look) = (WRITERS, false);
        Args { pool, look, write, writers, seed: 7, every: 1, queue: 0, write_ms: 1, created }
    }

    fn written(acknowledged: u64) -> Heard {
        let acknowledged = vec![acknowledged; WRITERS as usize];
        Heard { is_writing: true, acknowledged, ..Heard::default() }
    }

    fn looked(state: State) -> Heard {
        Heard { looked: Some(state), ..Heard::default() }
    }

    /// The result of the writers' operations up to `count`, and the next operation of writer 0.
    fn after(count: u64) -> (State, Op) {
        let style = Style { profile: Profile::Catalog, is_transactional: false };
        let mut writers = Writer::all(&State::new(), WRITERS, style, 7);
        let mut state = State::new();
        for writer in &mut writers {
            while writer.count < count {
                writer.step();
            }
            for (map, records) in &writer.state {
                state.entry(*map).or_default().extend(records);
            }
        }
        let (next, _) = writers[0].step();
        (state, next)
    }

    fn verdict(acknowledged: u64, found: State) -> Result<(), String> {
        let mut expected = Expected::new(0);
        expected.hear(&args(), &written(acknowledged)).unwrap();
        expected.hear(&args(), &looked(found))
    }

    #[test]
    fn what_is_acknowledged_must_be_there_and_one_more_may() {
        assert_eq!(verdict(100, after(100).0), Ok(()));
        assert_eq!(verdict(99, after(100).0), Ok(()));
        assert!(verdict(300, after(280).0).is_err());
        assert!(verdict(280, after(300).0).is_err());
        let mut foreign = after(100).0;
        foreign.entry(MAIN).or_default().insert(1_000_000, 1);
        assert!(verdict(100, foreign).is_err());
    }

    #[test]
    fn a_drop_in_flight_leaves_all_records_or_none() {
        let is_full = |state: &State, op: &Op| {
            op.dropped_map().is_some_and(|map| state.get(&map).is_some_and(|map| map.len() > 1))
        };
        let dropping = (1..1000).find(|&count| {
            let (state, next) = after(count);
            is_full(&state, &next)
        });
        let count = dropping.unwrap();
        let (mut state, next) = after(count);
        let map = next.dropped_map().unwrap();
        assert_eq!(verdict(count, state.clone()), Ok(()));
        state.get_mut(&map).unwrap().pop_first();
        assert!(verdict(count, state.clone()).is_err());
        state.remove(&map);
        assert_eq!(verdict(count, state), Ok(()));
    }

    #[test]
    fn a_recorded_transaction_is_there_as_a_whole() {
        let mut recorded = Recorded::new(5, false);
        recorded.writes = [((0, 3), NONE), ((1, 4), NONE)].into();
        let verdict = |outcome, found: [u64; 2]| {
            let args = Args { write: Some(Profile::Transactions), ..args() };
            let transactions = [(5, (recorded.clone(), outcome))].into();
            let mut expected = Expected::new(0);
            expected.hear(&args, &Heard { transactions, ..written(0) }).unwrap();
            let maps = RECORDED.iter().zip([3, 4]).zip(found);
            let records = |((&map, key), version)| (map, Records::from([(key, version)]));
            let present = maps.filter(|(_, version)| *version != NONE).map(records);
            expected.hear(&args, &looked(present.collect()))
        };
        let acknowledged = Outcome::Committed { lsn: 1 };
        assert_eq!(verdict(acknowledged, [5, 5]), Ok(()));
        assert_eq!(verdict(Outcome::Unknown, [5, 5]), Ok(()));
        assert_eq!(verdict(Outcome::Unknown, [NONE, NONE]), Ok(()));
        assert!(verdict(acknowledged, [NONE, NONE]).is_err());
        assert!(verdict(Outcome::Unknown, [5, NONE]).is_err());
        assert!(verdict(Outcome::Unknown, [7, 7]).is_err());
        assert!(verdict(Outcome::Failed, [5, 5]).is_err());
    }

    #[test]
    fn a_pool_that_was_there_must_stay() {
        let opened = crate::kill::message::Opened {
            created: true,
            was_clean: true,
            from_log: false,
            first_get_ns: 0,
            completed: 0,
            undone: 0,
            domain: String::new(),
            medium: String::new(),
            guarantee: String::new(),
        };
        let heard = Heard { opened: Some(opened), ..Heard::default() };
        let mut expected = Expected::new(0);
        expected.hear(&args(), &heard).unwrap();
        assert!(expected.hear(&args(), &heard).is_err());
    }
}
