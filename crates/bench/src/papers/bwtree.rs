//! The Bw-Tree: A B-tree for New Hardware Platforms (Levandoski, Lomet, Sengupta; ICDE 2013): the experiments
//! that can be run today.

use std::time::Duration;

use indicatif::ProgressBar;
use pando_bwtree::Options;

use super::Error;
use super::bztree::{self, BALANCED, Grid, READ_ONLY};
use super::experiment::{Paper, Settings, in_threads};
use super::outcome::{Measured, Outcome, Published};
use crate::chooser::KeyChoice;
use crate::compare::{self, Entrant, Plan};
use crate::mix::Mix;
use crate::record::Shape;
use crate::report::{Spread, count};
use crate::sides::BuildOptions;

/// The paper, and what it measured on.
pub const PAPER: Paper = Paper {
    short: "bwtree",
    title: "Levandoski, Lomet, Sengupta: The Bw-Tree: A B-tree for New Hardware Platforms",
    conditions: "Xeon W3550 3.07 GHz, 4 cores, 8 threads, 24 GB; pages of 8 KB",
};

/// Table 2's synthetic workload: five reads to each write.
const SYNTHETIC: Mix =
    bztree::blend("synthetic", "5 gets to 1 upsert of records that are there", [83, 17, 0], 0);

/// Lengths of chains at which a page is consolidated; the paper tries up to 32.
const CHAINS: [u32; 6] = [1, 2, 4, 8, 16, 32];

fn grid<'run>(sides: &'run [&'static str], mixes: &'run [Mix]) -> Grid<'run> {
    Grid { sides, mixes, keys: KeyChoice::Uniform, shape: Shape::EIGHT, records: 200_000 }
}

fn conditions(plan: &Plan) -> String {
    let threads: Vec<_> = plan.threads.iter().map(usize::to_string).collect();
    format!(
        "{} records of {}-byte keys and {}-byte values, {} threads, {} rounds of {} ms",
        count(plan.records),
        plan.shape.key_bytes,
        plan.shape.value_bytes,
        threads.join(", "),
        plan.rounds,
        plan.time.as_millis(),
    )
}

/// Options of the tree, with as much room beside a base as that many deltas of the benchmark's records take.
fn chained(settings: &Settings, chain_deltas: u32) -> BuildOptions {
    let options = Options { chain_deltas, delta_bytes: chain_deltas * 32, ..Options::default() };
    BuildOptions {
        settings: Some(options.settings().expect("options in range")),
        ..settings.build.clone()
    }
}

/// Figure 5: throughput by the length of a chain at which its page is consolidated.
pub fn figure_5(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let mixes = [READ_ONLY, SYNTHETIC, BALANCED];
    let plan = bztree::plan(&grid(&[], &mixes), settings);
    let most = plan.threads.iter().copied().max().unwrap_or(1);
    let plan = Plan { threads: vec![most], ..plan };
    let side = |&chain: &u32| {
        let side = bztree::entrant("bwtree", &plan, &chained(settings, chain))?;
        Ok(Entrant { name: format!("{chain} deltas"), ..side })
    };
    let sides = CHAINS.iter().map(side).collect::<Result<Vec<_>, Error>>()?;
    let rows = compare::run(&plan, &sides, progress)?;
    let mut outcome = Outcome { conditions: conditions(&plan), ..Outcome::default() };
    for row in &rows {
        let what = format!("{}, consolidated at {}", row.mix, row.side);
        outcome.push(what, "M ops/s", None, Some(bztree::throughput(row)));
    }
    for mix in &mixes {
        let of_mix = rows.iter().filter(|row| row.mix == mix.name);
        let best = of_mix.max_by(|one, other| one.ops_per_second.total_cmp(&other.ops_per_second));
        let Some(best) = best else { continue };
        let chain = best.side.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let paper = (mix.name != READ_ONLY.name)
            .then(|| Published::text("4 to 8", "where its throughput is highest"));
        let ours = Measured::exact(chain, "the highest of the medians");
        outcome.push(format!("{}: best length", mix.name), "deltas", paper, Some(ours));
    }
    Ok(outcome)
}

/// Table 2: the Bw-tree against a latch-free skip list: a public one, and ours.
pub fn table_2(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    const SIDES: [&str; 5] =
        ["skiplist", "skiplist-pmwcas", "bwtree", "bwtree-plain", "bwtree-cas"];
    let mixes = [SYNTHETIC, READ_ONLY];
    let plan = bztree::plan(&grid(&SIDES, &mixes), settings);
    let plan = Plan { time: settings.time.unwrap_or(Duration::from_millis(500)), ..plan };
    let sides = SIDES.iter().map(|name| bztree::entrant(name, &plan, &settings.build));
    let rows = compare::run(&plan, &sides.collect::<Result<Vec<_>, Error>>()?, progress)?;
    let mut outcome = Outcome { conditions: conditions(&plan), ..Outcome::default() };
    for row in &rows {
        let what = format!("{}, {}, {}", row.mix, in_threads(row.threads), row.side);
        outcome.push(what, "M ops/s", None, Some(bztree::throughput(row)));
    }
    for row in rows.iter().filter(|row| row.side.starts_with("bwtree")) {
        let is_most = Some(&row.threads) == plan.threads.iter().max();
        let paper = match row.mix.as_str() {
            _ if !is_most || row.side == "bwtree-cas" => None,
            "synthetic" => Some(Published::text("3.7", "Bw-tree / skip list, 8 threads")),
            _ => Some(Published::text("4.4", "Bw-tree / skip list, 8 threads")),
        };
        let spread = Spread { median: row.ratio_to_first, min: row.ratio_min, max: row.ratio_max };
        let ours = Measured::new(spread, format!("{} / {}", row.side, SIDES[0]));
        let what = format!("{}, {}, {}: ratio", row.mix, in_threads(row.threads), row.side);
        outcome.push(what, "x", paper, Some(ours));
    }
    Ok(outcome)
}
