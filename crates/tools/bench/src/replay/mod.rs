//! Replay of a file of operations on each system, interleaved, with a comparison of all answers.
//!
//! The file is replayed in parts. A model (the standard library's `BTreeMap`) executes a part first
//! and records its answers. Then each system executes the same part, in rotating order, and must
//! give the same answers. The first difference ends the replay with the name of the system and the
//! line. At the end each system must hold exactly the records of the model. One thread replays,
//! because with several threads the answers would depend on their schedule.
//!
//! The format is described in [`parse`](mod@parse).

pub mod parse;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::conditions::Conditions;
use crate::error::{Difference, Error};
use crate::plan::Space;
use crate::record::{Shape, WORD_BYTES};
use crate::report::Row;
use crate::slice::Outcome;
use crate::system::{AnySystem, Order, Refusal, Scan};
use crate::systems::entry::Builder;
use crate::table::{Cell, RowContext, row};
use crate::verify::{self, Stray};
use parse::{Operation, Verb};

/// Operations of a part.
const PART_OPERATIONS: usize = 10_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The answer of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Whether the key was present or absent, as the operation requires it.
    Done(bool),
    /// The value, if the key is present.
    Value(Option<Vec<u8>>),
    /// Records in the order of a scan.
    Records(Vec<(Vec<u8>, Vec<u8>)>),
}

impl Answer {
    fn in_words(&self) -> String {
        match self {
            Self::Done(done) => if *done { "done" } else { "not done" }.to_owned(),
            Self::Value(None) => "no value".to_owned(),
            Self::Value(Some(value)) => format!("the value \"{}\"", value.escape_ascii()),
            Self::Records(records) => match records.last() {
                None => "no records".to_owned(),
                Some((key, _)) => {
                    format!("{} records up to key \"{}\"", records.len(), key.escape_ascii())
                }
            },
        }
    }
}

/// Reads the file of operations at `path`.
pub fn read(path: &Path) -> Result<Vec<Operation>, Error> {
    let text =
        std::fs::read(path).map_err(|source| Error::File { path: path.to_path_buf(), source })?;
    let at = |line, what| Error::Line { path: path.to_path_buf(), line, what };
    let operations = parse::parse(&text).map_err(|(line, what)| at(line, what))?;
    if operations.is_empty() {
        return Err(at(1, "the file has no operation in it".to_owned()));
    }
    Ok(operations)
}

/// The shape for which systems are built: the longest key and value. If these have eight bytes and
/// others are shorter, the shape is longer than eight bytes, so that no system uses integers.
pub fn shape_of(operations: &[Operation]) -> Shape {
    let values = || {
        operations.iter().filter_map(|operation| match &operation.verb {
            Verb::Insert(value) | Verb::Update(value) => Some(value.len()),
            _ => None,
        })
    };
    let keys = || operations.iter().map(|operation| operation.key.len());
    let is_fixed = keys().chain(values()).all(|bytes| bytes == WORD_BYTES);
    let least = if is_fixed { WORD_BYTES } else { WORD_BYTES + 1 };
    Shape {
        key_bytes: keys().max().unwrap_or(0).max(least),
        value_bytes: values().max().unwrap_or(0).max(least),
    }
}

/// Replays `operations` on all `systems`; each tick of `progress` is a part on one system.
pub fn run(
    operations: &[Operation],
    name: &str,
    systems: &[(String, Builder)],
    conditions: &Conditions,
    progress: &ProgressBar,
) -> Result<Vec<Row>, Error> {
    let subjects = systems
        .iter()
        .map(|(system, build)| {
            build().map_err(|source| Error::Build { system: system.clone(), source })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let mut cells: Vec<Cell> = systems.iter().map(|_| Cell::empty()).collect();
    let mut model = Model::new();
    let parts = operations.len().div_ceil(PART_OPERATIONS);
    progress.set_length((parts * systems.len()) as u64);
    let differs = |system: usize, difference: Difference| Error::ReplayDiffers {
        system: systems[system].0.clone(),
        file: name.to_owned(),
        difference,
    };
    for (number, part) in operations.chunks(PART_OPERATIONS).enumerate() {
        let due: Vec<Answer> =
            part.iter().map(|operation| answer_of_model(&mut model, operation)).collect();
        for turn in 0..systems.len() {
            let system = (number + turn) % systems.len();
            progress.set_message(format!("replay on {}", systems[system].0));
            let outcome = do_part(subjects[system].any(), part, &due)
                .map_err(|found| differs(system, found))?;
            cells[system].add(&outcome, Space::default());
            progress.inc(1);
        }
    }
    let shape = shape_of(operations);
    // The least key: a system of integers needs eight bytes.
    let least = vec![0; if shape.is_eight() { WORD_BYTES } else { 1 }];
    for (system, subject) in subjects.iter().enumerate() {
        check_records(subject.any(), &least, &model)
            .map_err(|difference| differs(system, difference))?;
    }
    let rows = cells.iter().enumerate().map(|(system, cell)| {
        let context = RowContext {
            system: &systems[system].0,
            mix: "replay",
            keys: name.to_owned(),
            records: model.len() as u64,
            shape,
            threads: 1,
            base: &systems[0].0,
            rate_ops_per_second: None,
            conditions,
            seed: 0,
        };
        row(&context, cell, &cells[0], None)
    });
    Ok(rows.collect())
}

fn answer_of_model(model: &mut Model, operation: &Operation) -> Answer {
    let Operation { key, verb, .. } = operation;
    let copied = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    match verb {
        Verb::Insert(value) => {
            let is_new = !model.contains_key(key);
            if is_new {
                model.insert(key.clone(), value.clone());
            }
            Answer::Done(is_new)
        }
        Verb::Update(value) => match model.get_mut(key) {
            None => Answer::Done(false),
            Some(room) => {
                room.clone_from(value);
                Answer::Done(true)
            }
        },
        Verb::Get => Answer::Value(model.get(key).cloned()),
        Verb::Delete => Answer::Done(model.remove(key).is_some()),
        Verb::Scan(limit) => {
            let range = (Bound::Included(key.clone()), Bound::Unbounded);
            Answer::Records(model.range(range).take(*limit as usize).map(copied).collect())
        }
        Verb::ScanReverse(limit) => {
            let range = (Bound::Unbounded, Bound::Included(key.clone()));
            Answer::Records(model.range(range).rev().take(*limit as usize).map(copied).collect())
        }
    }
}

/// Executes `operations` on `system` and compares the answers with `due`, those of the model.
fn do_part(
    system: &dyn AnySystem,
    operations: &[Operation],
    due: &[Answer],
) -> Result<Outcome, Difference> {
    let mut outcome = Outcome::none();
    for (operation, due) in operations.iter().zip(due) {
        let before = Instant::now();
        let found = answer_of(system, operation, due);
        let elapsed = before.elapsed();
        outcome.elapsed += elapsed;
        outcome.on_core += elapsed;
        outcome.operations += 1;
        outcome.latency_ns.saturating_record(elapsed.as_nanos() as u64);
        let found = match found {
            Ok(found) if found == *due => continue,
            Ok(found) => found.in_words(),
            Err(refusal) => format!("the error {refusal}"),
        };
        return Err(Difference { line: Some(operation.line), found, due: due.in_words() });
    }
    outcome.elapsed = outcome.elapsed.max(Duration::from_nanos(1));
    Ok(outcome)
}

/// The answer of a system. An update of a key that the model does not have is replayed as a get,
/// because an upsert would add the key. An insert of a key that the model has is replayed as a get
/// too, because some maps cannot distinguish their own record from an equal one.
fn answer_of(
    system: &dyn AnySystem,
    operation: &Operation,
    due: &Answer,
) -> Result<Answer, Refusal> {
    let Operation { key, verb, .. } = operation;
    let scanned = |limit: u64, order: Order| {
        let mut records = Vec::new();
        let mut keep = |key: &[u8], value: &[u8]| records.push((key.to_vec(), value.to_vec()));
        system.scan(Scan { from: key, limit, order }, &mut keep)?;
        Ok(Answer::Records(records))
    };
    Ok(match verb {
        Verb::Insert(_) if *due == Answer::Done(false) => {
            Answer::Done(!system.get(key, &mut |_| ())?)
        }
        Verb::Insert(value) => Answer::Done(system.insert_new(key, value)?),
        Verb::Update(_) if *due == Answer::Done(false) => {
            Answer::Done(system.get(key, &mut |_| ())?)
        }
        Verb::Update(value) => {
            system.upsert(key, value)?;
            Answer::Done(true)
        }
        Verb::Get => {
            let mut value = None;
            system.get(key, &mut |bytes| value = Some(bytes.to_vec()))?;
            Answer::Value(value)
        }
        Verb::Delete => Answer::Done(system.delete(key)?),
        Verb::Scan(limit) => return scanned(*limit, Order::Ascending),
        Verb::ScanReverse(limit) => return scanned(*limit, Order::Descending),
    })
}

/// Compares all records of `system` with those of the model: by gets, by a full scan from `least`,
/// and by their number.
fn check_records(system: &dyn AnySystem, least: &[u8], model: &Model) -> Result<(), Difference> {
    let at_end = |found: String, due: String| Difference { line: None, found, due };
    let refused = |refusal: Refusal| format!("the error {refusal}");
    for (key, value) in model {
        let mut found = None;
        let got = system.get(key, &mut |bytes| found = Some(bytes.to_vec()));
        let shown = |value: &Answer| format!("{} for \"{}\"", value.in_words(), key.escape_ascii());
        let due = Answer::Value(Some(value.clone()));
        match got {
            Ok(_) if found.as_ref() == Some(value) => {}
            Ok(_) => return Err(at_end(shown(&Answer::Value(found)), shown(&due))),
            Err(refusal) => return Err(at_end(refused(refusal), shown(&due))),
        }
    }
    let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
    let scanned = |what: &str, key: &[u8]| {
        format!("{what} key \"{}\" in a scan of all records", key.escape_ascii())
    };
    let due = || "the records of the model and no others".to_owned();
    match verify::keys(system, least, &keys) {
        Ok(None) => {}
        Ok(Some(stray)) => {
            let found = match stray {
                Stray::Lost(key) => scanned("no", &key),
                Stray::Invented(key) => scanned("the invented", &key),
                Stray::Disorder(key) => scanned("a second, or too late,", &key),
            };
            return Err(at_end(found, due()));
        }
        Err(refusal) => return Err(at_end(refused(refusal), due())),
    }
    let due = format!("{} records", model.len());
    match system.count() {
        Ok(count) if count == model.len() as u64 => Ok(()),
        Ok(count) => Err(at_end(format!("{count} records"), due)),
        Err(refusal) => Err(at_end(refused(refusal), due)),
    }
}
