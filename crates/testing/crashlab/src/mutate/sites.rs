//! Write-backs and fences: each is left out, one at a time, of the playback of recorded runs. The
//! run itself is not changed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::source::known_unseen;
use crate::campaign::{Maker, drive, subjects};
use crate::explore::run_of;
use crate::failure::Failure;
use crate::lab::recorder::Site;
use crate::progress;
use crate::trial::{Plan, Tally, Trial};
use pando_index::random::Random;

/// Most images of one cut.
const IMAGES: usize = 24;

/// For each site, the trial that noticed its absence, and the fault.
#[derive(Debug, Default)]
pub struct Verdicts(BTreeMap<String, Option<(String, String)>>);

impl Verdicts {
    fn seen(&self, site: Site) -> bool {
        matches!(self.0.get(&site.to_string()), Some(Some(_)))
    }

    /// The sites whose absence no trial noticed.
    pub fn unseen(&self) -> Vec<&str> {
        self.0.iter().filter(|(_, by)| by.is_none()).map(|(site, _)| site.as_str()).collect()
    }

    /// The lines, as `file:line`, that some trial reached.
    pub fn reached(&self) -> BTreeSet<String> {
        self.0.keys().filter_map(|site| Some(site.rsplit_once(':')?.0.to_owned())).collect()
    }

    /// The files of the sites whose absence was noticed.
    pub fn seen_files(&self) -> impl Iterator<Item = &str> {
        let seen = self.0.iter().filter(|(_, by)| by.is_some());
        seen.filter_map(|(site, _)| site.split(':').next())
    }

    /// A table of all sites.
    pub fn table(&self) -> String {
        let line = |(site, by): (&String, &Option<(String, String)>)| match by {
            Some((trial, what)) => format!("| {site} | {trial} | {what} |\n"),
            None => match known_unseen(site) {
                Some(why) => format!("| {site} | not seen, and known | {why} |\n"),
                None => format!("| {site} | **not seen** | |\n"),
            },
        };
        let lines: String = self.0.iter().map(line).collect();
        format!("| without | seen by | as |\n| --- | --- | --- |\n{lines}")
    }
}

/// The fault, in the first line of a report.
pub(super) fn gist(what: &str) -> String {
    let line = what.lines().next().unwrap_or_default();
    let tail = line.rsplit("at []: ").next().unwrap_or(line);
    let tail = tail.rsplit("]: ").next().unwrap_or(tail);
    tail.chars().take(120).collect::<String>().replace('|', "/")
}

/// Leaves out every site of each wanted trial, for the time `share` per trial.
pub fn all(
    wanted: &[String],
    seed: u64,
    share: Duration,
    jobs: usize,
) -> Result<Verdicts, Failure> {
    let verdicts = Arc::new(Mutex::new(Verdicts::default()));
    let queue = Mutex::new(wanted.iter().cloned());
    let failed: Mutex<Option<String>> = Mutex::default();
    let bar = progress::bar(wanted.len() as u64);
    let worker = || {
        while let Some(name) = locked(&queue).next() {
            let maker = subjects().into_iter().find(|(known, _)| *known == name);
            let Some((_, make)) = maker else { continue };
            if let Err(what) = trial(make, seed, Instant::now() + share, &verdicts) {
                locked(&failed).get_or_insert(what);
            }
            bar.inc(1);
            bar.set_message(format!("{} not seen; {name}", locked(&verdicts).unseen().len()));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(worker);
        }
    });
    bar.finish_and_clear();
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(what) => Err(Failure::Trouble(what)),
        None => Ok(std::mem::take(&mut locked(&verdicts))),
    }
}

/// Whether the site belongs to the product, and not to the trials.
fn is_ours(site: Site) -> bool {
    !site.file().contains("crashlab")
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn trial(
    make: Maker,
    seed: u64,
    until: Instant,
    verdicts: &Arc<Mutex<Verdicts>>,
) -> Result<(), String> {
    let trial: Rc<RefCell<Box<dyn Trial>>> = Rc::new(RefCell::new(make()?));
    let next = move |runs: u64| {
        let mut run = run_of(Random::new(seed ^ runs).draw(), IMAGES);
        run.plan.crashes.cuts = Some(40);
        run.plan.crashes.until = Some(until);
        (runs == 0 || Instant::now() < until).then_some(run)
    };
    let verdicts = Arc::clone(verdicts);
    let work = move |trial: &mut (dyn Trial + 'static), plan: &Plan, _: &mut Tally| {
        let wanted =
            |site: Site| Instant::now() < until && is_ours(site) && !locked(&verdicts).seen(site);
        let found = trial.run_without(plan, &wanted)?;
        let name = trial.name();
        let mut verdicts = locked(&verdicts);
        for (site, what) in found {
            let verdict = what.map(|what| (name.clone(), gist(&what)));
            let known = verdicts.0.entry(site.to_string()).or_insert(None);
            if known.is_none() {
                *known = verdict;
            }
        }
        Ok(())
    };
    match drive(&trial, next, work).found {
        Some((what, _)) => Err(what),
        None => Ok(()),
    }
}
