//! `mutate`: tests the explorers. A necessary part is removed, and a trial must find the fault.
//!
//! * Write-backs and fences: each is left out of the playback of recorded runs ([`sites`]).
//!   `unseen.txt` lists those whose absence no trial sees, with the reasons. Lines that no trial
//!   reaches are printed.
//! * Checks, rechecks and orders: trials and tests look for the mutants of the sources
//!   ([`mutants`]).

mod mutants;
pub mod sites;
pub mod source;

use std::time::Duration;

use clap::ValueEnum;

use crate::campaign::Selection;
use crate::failure::Failure;

/// The parts that are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Write-backs and fences
    Sites,
    /// Checks, rechecks and orders, as mutants of the sources
    Mutants,
}

/// Options of the verb.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Remove only these
    #[arg(long)]
    only: Option<Part>,
    /// Try only the mutants whose names contain this
    #[arg(long, default_value = "")]
    mutant: String,
}

/// Runs the verb: `minutes` for all write-backs and fences together, and at most `minutes` for each
/// mutant.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut unseen = Vec::new();
    if args.only != Some(Part::Mutants) {
        unseen.extend(sites_unseen(&args.selection)?);
    }
    if args.only != Some(Part::Sites) {
        let selection = &args.selection;
        let verdicts = mutants::hunt(&args.mutant, selection.seed(), selection.minutes)?;
        println!("| mutant | what it is | seen by |\n| --- | --- | --- |");
        for (mutant, seen) in verdicts {
            let by = seen.as_deref().unwrap_or("**not seen**");
            println!("| {} | {} | {by} |", mutant.name, mutant.what);
            if seen.is_none() {
                unseen.push(mutant.name.to_owned());
            }
        }
    }
    if unseen.is_empty() {
        return Ok(());
    }
    Err(Failure::Trouble(format!(
        "no trial noticed these; write a test for each, or remove it if it is not needed: {}",
        unseen.join(", ")
    )))
}

fn sites_unseen(selection: &Selection) -> Result<Vec<String>, Failure> {
    let selection = Selection { domain: Some("adr".into()), ..selection.clone() };
    let wanted = selection.names()?;
    let jobs = selection.jobs(wanted.len());
    let share =
        Duration::from_secs_f64(selection.minutes * 60.0 * jobs as f64 / wanted.len() as f64);
    let verdicts = sites::all(&wanted, selection.seed(), share, jobs)?;
    print!("{}", verdicts.table());
    if selection.index.is_none() && selection.scenario.is_none() {
        for line in source::not_reached(&verdicts.reached()) {
            println!("no trial reaches {line}");
        }
    }
    let is_open = |site: &&str| source::known_unseen(site).is_none();
    Ok(verdicts.unseen().into_iter().filter(is_open).map(str::to_owned).collect())
}
