//! What a pool must hold, given all that was heard of the processes that wrote to it.
//!
//! [`Expected`] is what the pool held when it was last looked at, and what may have happened
//! [`Since`]. A writer's part must be what its operations up to the last acknowledged one made of
//! it, or up to one of those that could be in flight: one, or as many as it does to an
//! acknowledgement; more where acknowledgements can be lost on their way. Only a drop of a map
//! takes more than one step: one in flight may leave the map with some of its records.

use std::collections::BTreeSet;

use super::child::Args;
use super::load::{LoadEnd, Loaded};
use super::supervise::Heard;
use super::workload::{LOADED, Op, Profile, Records, State, Writer, part};

/// What is known of a pool.
#[derive(Clone, Debug)]
pub struct Expected {
    /// How many acknowledgements of a writer may be lost on their way.
    lost: u64,
    /// Whether it is there for certain.
    is_there: bool,
    /// What it held when it was last looked at.
    state: State,
    since: Since,
}

/// What may have happened to a pool since it was looked at.
#[derive(Clone, Debug, Default)]
enum Since {
    /// Nothing but opening and closing.
    #[default]
    Nothing,
    /// Writers of this seed have written, and so much was acknowledged.
    Written { profile: Profile, seed: u64, acknowledged: Vec<u64>, ahead: u64 },
    /// `pando load` has written a file.
    Loaded(Loaded),
}

impl Expected {
    /// A pool that is not there yet.
    pub fn new(lost: u64) -> Self {
        Self { lost, is_there: false, state: State::new(), since: Since::Nothing }
    }

    /// Takes in what was heard of a process with these orders; an error is what must not be.
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
                return Err("the pool is gone: its file is not there".to_owned());
            }
            self.is_there = true;
        }
        if let Some(found) = &heard.looked {
            self.verify(args.writers, found)?;
            self.state.clone_from(found);
            self.since = Since::Nothing;
        }
        if let (true, Some(profile)) = (heard.is_writing, args.write) {
            self.since = Since::Written {
                profile,
                seed: args.seed,
                acknowledged: heard.acknowledged.clone(),
                ahead: args.every * (1 + self.lost),
            };
        }
        Ok(())
    }

    /// Takes in that a file was loaded, or a part of it.
    pub fn load(&mut self, loaded: Loaded) -> Result<(), String> {
        if let LoadEnd::Failed(what) = loaded.end {
            return Err(what);
        }
        self.since = Since::Loaded(loaded);
        Ok(())
    }

    fn verify(&self, writers: u64, found: &State) -> Result<(), String> {
        if let Since::Written { profile, seed, acknowledged, ahead } = &self.since {
            let all = Writer::all(&self.state, writers, *profile, *seed);
            for (writer, acknowledged) in all.into_iter().zip(acknowledged) {
                let own = part(found, writers, writer.number);
                verify_writer(writer, *acknowledged, *ahead, &own)?;
            }
        } else {
            for number in 0..writers {
                let parts = (part(&self.state, writers, number), part(found, writers, number));
                if parts.0 != parts.1 {
                    return Err(changed("nobody has written", &parts.0, &parts.1));
                }
            }
        }
        let (before, now) = (self.state.get(&LOADED), found.get(&LOADED));
        match &self.since {
            Since::Loaded(loaded) => loaded.verify(before, now),
            _ if before == now => Ok(()),
            _ => Err("nobody has loaded, and the loaded map has changed".to_owned()),
        }
    }
}

/// Whether `own` is what the operations of `writer` come to, up to the last acknowledged one or up
/// to one of the next `ahead`.
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
        let before = writer.state.clone();
        let (next, _) = writer.step();
        if is_being_dropped(&next, &before, &writer.state, own) {
            break;
        }
        in_flight.push(next);
    }
    Ok(())
}

/// Whether `own` is in the middle of `op`, a drop, which leads from `before` to `after`.
fn is_being_dropped(op: &Op, before: &State, after: &State, own: &State) -> bool {
    let Some(map) = op.dropped_map() else { return false };
    let mut others = own.clone();
    let left = others.remove(&map).unwrap_or_default();
    let was = before.get(&map);
    others == *after
        && left.iter().all(|(key, version)| was.and_then(|was| was.get(key)) == Some(version))
}

/// Says where `found` differs from `expected`.
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
    records.map_or("absent".to_owned(), |records| format!("there, with {} records", records.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill::workload::MAIN;

    const WRITERS: u64 = 2;

    fn args() -> Args {
        let (pool, write) = ("pool".into(), Some(Profile::Catalog));
        let created = crate::kill::created::Created::default();
        let (writers, look) = (WRITERS, false);
        Args { pool, look, write, writers, seed: 7, every: 1, write_ms: 1, created }
    }

    fn written(acknowledged: u64) -> Heard {
        let acknowledged = vec![acknowledged; WRITERS as usize];
        Heard { is_writing: true, acknowledged, ..Heard::default() }
    }

    fn looked(state: State) -> Heard {
        Heard { looked: Some(state), ..Heard::default() }
    }

    /// What the writers' operations up to `count` come to, and what the next of writer 0 is.
    fn after(count: u64) -> (State, Op) {
        let mut writers = Writer::all(&State::new(), WRITERS, Profile::Catalog, 7);
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
    fn a_drop_in_flight_may_leave_some_records() {
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
        state.get_mut(&map).unwrap().pop_first();
        assert_eq!(verdict(count, state.clone()), Ok(()));
        state.get_mut(&map).unwrap().insert(0, 12345);
        assert!(verdict(count, state).is_err());
    }

    #[test]
    fn a_pool_that_was_there_must_stay() {
        let opened = crate::kill::message::Opened {
            created: true,
            was_clean: true,
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
