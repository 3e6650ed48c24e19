//! The process that is profiled: fills a tree, says so, and gets and upserts until it is killed.

use std::io::Write;

use pando_bztree::BzTrees;
use pando_index::RangeIndex;
use pando_pmem::{Adr, Process};

use crate::keys::{key_of, value_of};
use crate::machine;
use crate::record::Shape;
use crate::rng::Rng;
use crate::systems::entry::{BuildError, BuildOptions};
use crate::systems::stored::{Stored, compiled};

/// What the child says when the tree is filled.
pub const FILLED: &str = "filled";

/// Does the child's part; comes back only with an error.
pub fn run(
    domain: &str,
    records: u64,
    threads: usize,
    read_percent: u64,
    seed: u64,
) -> Result<(), BuildError> {
    machine::die_with_parent();
    let build = BuildOptions::default().for_records(records, Shape::EIGHT);
    let tree = match domain {
        "process" => Stored::anonymous(&build, compiled::<BzTrees, Process>)?.index,
        "adr" => Stored::anonymous(&build, compiled::<BzTrees, Adr>)?.index,
        other => {
            return Err(format!("no domain {other:?} to profile; there are process and adr").into());
        }
    };
    let tree = &*tree;
    for number in 0..records {
        let key = key_of(number);
        tree.insert(&key.to_be_bytes(), &value_of(key, 0).to_le_bytes())?;
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{FILLED}")?;
    out.flush()?;
    drop(out);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|thread| {
                scope.spawn(move || work(tree, records, read_percent, seed ^ thread << 32))
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })
}

fn work(
    tree: &dyn RangeIndex,
    records: u64,
    read_percent: u64,
    seed: u64,
) -> Result<(), BuildError> {
    let mut rng = Rng::new(seed);
    loop {
        let key = key_of(rng.below(records));
        if rng.below(100) < read_percent {
            let mut found = None;
            tree.read(&key.to_be_bytes(), &mut |value| found = Some(value.len()))?;
            if found != Some(8) {
                return Err(format!("lost key {key:#018x}: a get found {found:?} bytes").into());
            }
        } else {
            tree.upsert(&key.to_be_bytes(), &value_of(key, rng.bits()).to_le_bytes())?;
        }
    }
}
