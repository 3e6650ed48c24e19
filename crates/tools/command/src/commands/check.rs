//! `check`: compares the blocks that the maps reach with those that the allocator has allocated.

use indicatif::HumanCount;
use pando::{CheckReport, Problem};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

use crate::arguments::PoolArguments;
use crate::arguments::upkeep::CheckArguments;
use crate::failure::Failure;
use crate::format::escape;
use crate::output::{self, Output};
use crate::quantity::counted;

/// Prints the problems; the exit code is that of the gravest one.
pub fn run(pool: &PoolArguments, arguments: &CheckArguments) -> Result<(), Failure> {
    if pool.shared && !arguments.online {
        return Err(Failure::Input(
            "check counts blocks, for which no other process may have the pool open; leave out \
             --shared, or add --online"
                .to_owned(),
        ));
    }
    // No process writes to such a store, so all of it is checked.
    let is_online = arguments.online && pool.unwritable_store()?.is_none();
    let counts = match (is_online, &pool.store) {
        (true, _) => Counts::Records,
        (false, Some(_)) => Counts::Nodes,
        (false, None) => Counts::Blocks,
    };
    let pool = pool.open_to_read()?;
    let report = if is_online { pool.check_online()? } else { pool.check()? };
    pool.close()?;
    output::report(&Checked { report: &report, counts }, arguments.json, print)?;
    report.gravest().map_or(Ok(()), |class| Err(Failure::Problems(class)))
}

/// The figures that a check counts, each with those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counts {
    Records,
    Nodes,
    Blocks,
}

/// The report of a check, and the figures that it has.
struct Checked<'check> {
    report: &'check CheckReport,
    counts: Counts,
}

/// A figure that was not counted is null.
impl Serialize for Checked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serde_json::to_value(self.report).map_err(S::Error::custom)?;
        let of_blocks = ["used_blocks", "reached_blocks"].map(|name| (name, Counts::Blocks));
        for (name, counts) in [("nodes", Counts::Nodes)].into_iter().chain(of_blocks) {
            if self.counts < counts {
                report[name] = serde_json::Value::Null;
            }
        }
        report.serialize(serializer)
    }
}

/// A problem in one line.
pub fn problem_text(problem: &Problem) -> String {
    let message = escape::escaped_text(problem.message.as_bytes());
    match &problem.map {
        Some(map) => format!("{}: map {map:?}: {message}", problem.class),
        None => format!("{}: {message}", problem.class),
    }
}

fn print(checked: &Checked<'_>, output: &mut Output) -> Result<(), Failure> {
    let Checked { report, counts } = checked;
    for problem in &report.problems {
        output.line(problem_text(problem))?;
    }
    let found = if report.is_consistent() { "consistent" } else { "NOT CONSISTENT" };
    let (maps, records) = (counted(report.maps, "map"), counted(report.records, "record"));
    let nodes = counted(report.nodes, "node");
    match counts {
        Counts::Records => {
            output.line(format_args!("{found}: {maps}, {records}; blocks were not counted"))
        }
        Counts::Nodes => output.line(format_args!("{found}: {maps}, {nodes}, {records}")),
        Counts::Blocks => output.line(format_args!(
            "{found}: {maps}, {nodes}, {records}; {} reached, {} allocated",
            counted(report.reached_blocks, "block"),
            HumanCount(report.used_blocks),
        )),
    }
}
