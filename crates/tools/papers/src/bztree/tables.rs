//! Tables 1 and 2, and figure 9.

use std::time::Duration;

use indicatif::ProgressBar;

use super::{BALANCED, Grid, conditions, rows};
use crate::experiment::{Settings, in_threads, this_program};
use crate::outcome::{Measured, Outcome, Published};
use crate::{Error, sizes};
use pando_bench::key_sampler::KeyChoice;
use pando_bench::profile::{self, Component};
use pando_bench::record::Shape;
use pando_bench::units::count;

/// Table 1: words of each PMwCAS, by operation.
pub fn table_1(settings: &Settings, _progress: &ProgressBar) -> Result<Outcome, Error> {
    let operations = settings.records.unwrap_or(20_000);
    let kinds = sizes::count(operations, &settings.build)?;
    let mut outcome = Outcome {
        conditions: format!(
            "{} operations of each kind, 1 thread, pages of 1 KiB, counted",
            count(operations)
        ),
        ..Outcome::default()
    };
    for kind in &kinds {
        let Some((plain, share)) = kind.plain() else { continue };
        let paper = Some(Published::text(kind.paper, "each PMwCAS"));
        let words = plain.iter().map(|&words| f64::from(words)).sum();
        let of = format!("{} in {:.1} % of them", listed(plain), share * 100.0);
        outcome.push(
            format!("{}, plain", kind.name),
            "words",
            paper,
            Some(Measured::exact(words, of)),
        );
        let mut others: Vec<_> =
            kind.sequences.iter().filter(|(sizes, _)| sizes.as_slice() != plain).collect();
        others.sort_by(|left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
        for (sequence, times) in others.into_iter().take(4) {
            let words = sequence.iter().map(|&words| f64::from(words)).sum();
            let of = format!("{} in {times} of {}", listed(sequence), count(operations));
            outcome.push(
                format!("{}, with others", kind.name),
                "words",
                None,
                Some(Measured::exact(words, of)),
            );
        }
    }
    for (what, paper) in [
        ("node consolidation", "2"),
        ("node split: preparation, installation", "1, 3"),
        ("node merge: preparation, installation", "2, 3"),
    ] {
        outcome.push(what, "words", Some(Published::text(paper, "each PMwCAS")), None);
    }
    outcome.appendix = "  Ours, listed as the words of each PMwCAS of one operation in turn. What an insert or a delete does\n  beside its plain sequence is the consolidation, split or merge that it sets off.\n".to_owned();
    Ok(outcome)
}

fn listed(sizes: &[u8]) -> String {
    if sizes.is_empty() {
        return "no PMwCAS".to_owned();
    }
    sizes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

/// Table 2: bytes that indexes take.
pub fn table_2(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let sizes = settings.records.map_or(vec![100_000, 1_000_000], |records| vec![records]);
    let mut outcome = Outcome::default();
    for records in sizes {
        progress.reset();
        let settings = Settings { records: Some(records), rounds: Some(1), ..settings.clone() };
        let grid = Grid {
            systems: &["bwtree-plain", "bwtree", "crossbeam-skiplist", "btreemap", "bztree"],
            mixes: &[BALANCED],
            keys: KeyChoice::Uniform,
            shape: Shape::EIGHT,
            records,
        };
        let (plan, rows) = rows(&grid, &settings, progress)?;
        outcome.conditions = conditions(&plan);
        let mut seen = Vec::new();
        for row in &rows {
            if seen.contains(&&row.system) {
                continue;
            }
            seen.push(&row.system);
            let paper = match (row.system.as_str(), records) {
                ("bztree", 100_000) => Some(Published::text("2", "BzTree")),
                ("bztree", 1_000_000) => Some(Published::text("21", "BzTree")),
                ("bztree", 10_000_000) => Some(Published::text("228", "BzTree")),
                ("bwtree-plain", 100_000) => Some(Published::text("3.6", "Bw-tree")),
                ("bwtree-plain", 1_000_000) => Some(Published::text("36.3", "Bw-tree")),
                ("bwtree-plain", 10_000_000) => Some(Published::text("365", "Bw-tree")),
                _ => None,
            };
            let bytes = row.bytes_per_record.map(|bytes| bytes * records as f64 / 1e6);
            let ours = bytes.map(|bytes| Measured::exact(bytes, "after the fill"));
            outcome.push(format!("{}, {} records", row.system, count(records)), "MB", paper, ours);
        }
    }
    Ok(outcome)
}

/// Figure 9: where the time goes.
pub fn figure_9(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let refused =
        |source: profile::Error| Error::Refused { what: "the profile", source: source.into() };
    let executable = this_program()?;
    let plan = |read_percent| profile::Plan {
        records: settings.records.unwrap_or(1_000_000),
        threads: settings
            .threads
            .as_ref()
            .and_then(|threads| threads.first().copied())
            .unwrap_or(1),
        read_percent,
        domain: "process".to_owned(),
        time: settings.time.unwrap_or(Duration::from_secs(5)),
        executable: executable.clone(),
        prefix: settings.prefix.clone(),
        seed: settings.seed,
    };
    let mut outcome = Outcome {
        conditions: format!(
            "{} records, {}, default options, {} s of samples by the clock, kernel left out",
            count(plan(50).records),
            in_threads(plan(50).threads),
            plan(50).time.as_secs_f64()
        ),
        ..Outcome::default()
    };
    progress.set_length(2);
    for (mix, read_percent) in [("balanced", 50), ("read-only", 100)] {
        progress.set_message(format!("profile {mix}"));
        let found = profile::run(&plan(read_percent)).map_err(refused)?;
        let of = format!("{} samples", found.samples);
        for share in &found.shares {
            let paper = match (mix, share.component) {
                ("balanced", Component::Pmwcas) => Some(Published::text("12", "48 threads")),
                _ => None,
            };
            let ours = Measured::exact(share.percent, of.clone());
            outcome.push(format!("{mix}: {}", share.component.name()), "%", paper, Some(ours));
        }
        let search = found.percent(Component::InnerSearch) + found.percent(Component::LeafSearch);
        let paper = match mix {
            "balanced" => Published::text("61", "inner and leaf search"),
            _ => Published::text("78", "not write-intensive"),
        };
        outcome.push(
            format!("{mix}: inner and leaf search"),
            "%",
            Some(paper),
            Some(Measured::exact(search, of)),
        );
        progress.inc(1);
    }
    Ok(outcome)
}
