//! Operations of a thread on a transaction component, over whichever maps. `steps.rs` has the
//! model.

use std::error::Error as StdError;
use std::ops::ControlFlow;

use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::Domain;
use pando_tc::{Error, Maps, Snapshot, SnapshotOptions, Transaction, TransactionComponent};

use super::Session;
use super::steps::{Answer, KEYS, Key, MAPS, Op, Seen, State, Step, TransactionsModel, Way};

/// What a thread holds from one operation to the next.
enum Held<'open, D: Domain, M: Maps> {
    Nothing,
    Snapshot(Snapshot<'open, D, M>),
    Transaction(Transaction<'open, D, M>),
}

pub fn text(error: impl StdError) -> String {
    error.to_string()
}

/// A long value in its own block, or a short one.
pub fn bytes_of(value: u8) -> Vec<u8> {
    vec![value; if value.is_multiple_of(3) { 200 } else { 1 }]
}

/// The value with these bytes.
fn value_of(bytes: &[u8]) -> u8 {
    let value = bytes.first().copied().unwrap_or_default();
    assert_eq!(bytes, bytes_of(value), "a value is torn");
    value
}

/// Runs the steps, and commits.
pub fn run<D: Domain, M: Maps>(
    component: &TransactionComponent<D, M>,
    steps: &[Step],
) -> Result<Vec<Option<u8>>, Error> {
    run_in(component.begin(), steps)
}

/// Reads all records through what a thread holds. They are the same each time.
fn look<D: Domain, M: Maps>(
    component: &TransactionComponent<D, M>,
    held: &mut Held<'_, D, M>,
    seen: &Seen,
    way: Way,
) -> Result<(), Error> {
    let mut found = State::new();
    for map in MAPS {
        let order = match way {
            Way::Gets => {
                for key in 0..KEYS {
                    let value = match held {
                        Held::Nothing => None,
                        Held::Snapshot(snapshot) => snapshot.get(map, &[key])?,
                        Held::Transaction(transaction) => transaction.get(map, &[key])?,
                    };
                    found.extend(value.map(|value| ((map, key), value_of(&value))));
                }
                continue;
            }
            Way::Ascending => Order::Ascending,
            Way::Descending => Order::Descending,
        };
        let mut visit = |key: &[u8], value: &[u8]| {
            found.insert((map, key[0]), value_of(value));
            ControlFlow::Continue(())
        };
        match held {
            Held::Nothing => {}
            Held::Snapshot(snapshot) => {
                let index = component.maps().map(map).ok_or(Error::UnknownMap { map })?;
                let mut cursor = snapshot.scan(map, &*index, KeyRange::all(), order)?;
                while let Some((key, value)) = cursor.next()? {
                    let _ = visit(key, value);
                }
            }
            Held::Transaction(transaction) => {
                transaction.scan(map, KeyRange::all(), order, &mut visit)?;
            }
        }
    }
    let first = seen.get_or_init(|| found.clone());
    assert_eq!(found, *first, "a snapshot shows something else than before");
    Ok(())
}

/// The operations of a thread. `other` performs those that are not of transactions.
pub fn session<'open, D: Domain, M: Maps>(
    component: &'open TransactionComponent<D, M>,
    other: impl Fn(&Op) -> Result<Option<Answer>, Error> + 'open,
) -> Session<'open, TransactionsModel> {
    let mut held = Held::Nothing;
    Box::new(move |op| match perform(component, &mut held, op, &other) {
        Ok(answer) => answer.map(|answer| (0, op.clone(), answer)).into_iter().collect(),
        // Nothing fills the pool, and no limit revokes a snapshot.
        Err(error) => panic!("{op:?}: {error}"),
    })
}

/// One operation of a thread.
fn perform<'open, D: Domain, M: Maps>(
    component: &'open TransactionComponent<D, M>,
    held: &mut Held<'open, D, M>,
    op: &Op,
    other: &impl Fn(&Op) -> Result<Option<Answer>, Error>,
) -> Result<Option<Answer>, Error> {
    let taken = match op {
        Op::Take(_) | Op::Begin(_) | Op::Commit(..) | Op::Release => {
            std::mem::replace(held, Held::Nothing)
        }
        _ => Held::Nothing,
    };
    let ran = match op {
        Op::Run(steps) => run(component, steps),
        Op::Commit(seen, steps) => {
            let mut taken = taken;
            look(component, &mut taken, seen, Way::Gets)?;
            let Held::Transaction(transaction) = taken else { return Ok(None) };
            run_in(transaction, steps)
        }
        Op::Look(seen, way) => return look(component, held, seen, *way).map(|()| None),
        Op::Release => return Ok(None),
        Op::Take(_) => {
            drop(taken);
            *held = Held::Snapshot(component.snapshot(SnapshotOptions::default())?);
            return Ok(Some(Answer::Done));
        }
        Op::Begin(_) => {
            drop(taken);
            let transaction = component.begin_over_snapshot(SnapshotOptions::default())?;
            *held = Held::Transaction(transaction);
            return Ok(Some(Answer::Done));
        }
        Op::Settle => return component.settle().map(|()| Some(Answer::Done)),
        Op::Sync => {
            component.sync(component.newest_lsn()?)?;
            return Ok(Some(Answer::Done));
        }
        Op::Alone(_)
        | Op::Image
        | Op::Checkpoint
        | Op::Evict
        | Op::EvictOne(_)
        | Op::Fill
        | Op::Reclaim => {
            return other(op);
        }
    };
    match ran {
        Ok(read) => Ok(Some(Answer::Committed(read))),
        Err(Error::Conflict { .. }) => Ok(Some(Answer::Conflict)),
        Err(error) => Err(error),
    }
}

/// Makes the write of one key through its map, which is `map`.
pub fn alone(map: &dyn RangeIndex, step: Step) -> Result<Option<Answer>, Error> {
    match step {
        Step::Put((_, key), value) => map.put(&[key], &bytes_of(value))?,
        Step::Remove((_, key)) => drop(map.remove(&[key])?),
        Step::Add(from, to) if from == to => {
            map.modify(&[to.1], &mut |found, new| {
                let value = found.map_or(0, value_of);
                new.extend(bytes_of(value.wrapping_add(1)));
                true
            })?;
        }
        other => panic!("{other:?} is of a transaction"),
    }
    Ok(Some(Answer::Done))
}

/// All records, read in two ways.
pub fn state<D: Domain, M: Maps>(component: &TransactionComponent<D, M>) -> Result<State, String> {
    let read = component.transaction(|transaction| {
        let mut state = State::new();
        for map in MAPS {
            transaction.scan(map, KeyRange::all(), Order::Ascending, &mut |key, value| {
                state.insert((map, key[0]), value_of(value));
                ControlFlow::Continue(())
            })?;
        }
        Ok::<_, Error>(state)
    });
    let (state, _) = read.map_err(text)?;
    for map in MAPS {
        for key in 0..KEYS {
            let found = component.get(map, &[key]).map_err(text)?;
            let expected = state.get(&(map, key)).map(|&value| bytes_of(value));
            if found != expected {
                return Err(format!("key {key} of map {map} is {found:?}, not {expected:?}"));
            }
        }
    }
    Ok(state)
}

/// Writes and removes keys that no other operation has.
pub fn use_again<D: Domain, M: Maps>(component: &TransactionComponent<D, M>) -> Result<(), String> {
    let keys = MAPS.map(|map| (map, KEYS));
    for steps in [keys.map(|key| Step::Put(key, 9)), keys.map(Step::Remove)] {
        run(component, &steps).map_err(|error| format!("nothing else runs: {error}"))?;
    }
    component.settle().map_err(text)
}

fn run_in<D: Domain, M: Maps>(
    mut transaction: Transaction<'_, D, M>,
    steps: &[Step],
) -> Result<Vec<Option<u8>>, Error> {
    let read = steps.iter().map(|&step| step_in(&mut transaction, step)).collect::<Result<_, _>>();
    let read = read?;
    transaction.commit()?;
    Ok(read)
}

fn step_in<D: Domain, M: Maps>(
    transaction: &mut Transaction<'_, D, M>,
    step: Step,
) -> Result<Option<u8>, Error> {
    let put = |transaction: &mut Transaction<'_, D, M>, (map, key): Key, value: u8| {
        transaction.put(map, &[key], &bytes_of(value))
    };
    let get = |transaction: &mut Transaction<'_, D, M>, (map, key): Key| {
        Ok::<_, Error>(transaction.get(map, &[key])?.map(|value| value_of(&value)))
    };
    match step {
        Step::Get(key) => get(transaction, key),
        Step::Put(key, value) => put(transaction, key, value).map(|()| None),
        Step::Remove((map, key)) => transaction.remove(map, &[key]).map(|()| None),
        Step::Add(from, to) => {
            let read = get(transaction, from)?;
            put(transaction, to, read.unwrap_or_default().wrapping_add(1))?;
            Ok(read)
        }
        Step::Count(map, to) => {
            let mut count = 0;
            transaction.scan(map, KeyRange::all(), Order::Descending, &mut |_, _| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            put(transaction, to, count)?;
            Ok(Some(count))
        }
    }
}
