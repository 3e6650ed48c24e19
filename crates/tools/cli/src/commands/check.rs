//! `check`: compares the blocks that the maps reach with those that the allocator has allocated.

use indicatif::HumanCount;
use pando::{CheckReport, Problem};

use crate::arguments::{CheckArguments, PoolArguments};
use crate::failure::Failure;
use crate::format::escape;
use crate::output::{self, Output};
use crate::quantity::counted;

/// Prints the problems; the exit code is that of the gravest one.
pub fn run(pool: &PoolArguments, arguments: &CheckArguments) -> Result<(), Failure> {
    let pool = pool.open()?;
    let report = if arguments.online { pool.check_online()? } else { pool.check()? };
    pool.close()?;
    let print = if arguments.online { print_online } else { print };
    output::report(&report, arguments.json, print)?;
    report.gravest().map_or(Ok(()), |class| Err(Failure::Problems(class)))
}

/// A problem in one line.
pub fn problem_text(problem: &Problem) -> String {
    let message = escape::escaped_text(problem.message.as_bytes());
    match &problem.map {
        Some(map) => format!("{}: map {map:?}: {message}", problem.class),
        None => format!("{}: {message}", problem.class),
    }
}

fn print_problems(report: &CheckReport, output: &mut Output) -> Result<&'static str, Failure> {
    for problem in &report.problems {
        output.line(problem_text(problem))?;
    }
    Ok(if report.is_consistent() { "consistent" } else { "NOT CONSISTENT" })
}

fn print_online(report: &CheckReport, output: &mut Output) -> Result<(), Failure> {
    let found = print_problems(report, output)?;
    let (maps, records) = (counted(report.maps, "map"), counted(report.records, "record"));
    output.line(format_args!("{found}: {maps}, {records}; blocks were not counted"))
}

fn print(report: &CheckReport, output: &mut Output) -> Result<(), Failure> {
    let found = print_problems(report, output)?;
    output.line(format_args!(
        "{found}: {}, {}, {}; {} reached, {} allocated",
        counted(report.maps, "map"),
        counted(report.nodes, "node"),
        counted(report.records, "record"),
        counted(report.reached_blocks, "block"),
        HumanCount(report.used_blocks),
    ))
}
