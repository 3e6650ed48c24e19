//! The one table of all experiments: name, title, what it shows, which index it needs, how far it
//! is built, what differs.

use super::experiment::{Built, Experiment, Paper};
use super::{Error, pmwcas};

const NO_BW_TREE: &str = "the Bw-tree (crate `bwtree`), which does not exist yet";
const NO_WB_TREE: &str = "the wB+-Tree and its baselines with logging and shadowing (crate `wbtree`), which do not exist yet";
const NO_WB_SERVER: &str = "the wB+-Tree (crate `wbtree`) and a memcached server on it (crate `server`), which do not exist yet";
const NO_NB_TREE: &str = "the NBTree (crate `nbtree`), which does not exist yet";

/// The wB+-Tree paper.
const WB_TREE: Paper = Paper {
    short: "wbtree",
    title: "Chen, Jin: Persistent B+-Trees in Non-Volatile Main Memory",
    conditions: "2 x Xeon E5-2620 2 GHz, 12 cores; PTLsim with PCM: 230 cycles a line read, 450 an 8-byte write",
};

/// The Bw-tree paper.
const BW_TREE: Paper = Paper {
    short: "bwtree",
    title: "Levandoski, Lomet, Sengupta: The Bw-Tree: A B-tree for New Hardware Platforms",
    conditions: "Xeon W3550 3.07 GHz, 4 cores, 8 threads, 24 GB; pages of 8 KB",
};

/// An experiment whose index does not exist yet.
const fn missing(
    name: &'static str,
    paper: &'static Paper,
    title: &'static str,
    shows: &'static str,
    index: &'static str,
    needs: &'static str,
) -> Experiment {
    Experiment { name, paper, title, shows, index, built: Built::Missing(needs), differs: &[] }
}

/// All experiments, by paper and in the paper's order.
pub const EXPERIMENTS: [Experiment; 1] = [Experiment {
    name: "pmwcas:fig5",
    paper: &pmwcas::PAPER,
    title: "PMwCAS on arrays of words",
    shows: "throughput by contention (array size) and threads, and what persistence costs",
    index: "PMwCAS",
    built: Built::Partly(
        pmwcas::figure_5,
        "figure 5a's MwCAS by hardware transactions (HTM): only its software side is run",
    ),
    differs: &[
        "the write-back is clwb where the processor has it, not CLFLUSH, so it evicts nothing",
        "DRAM both there and here; the paper's volatile MwCAS and ours are the same code with durability compiled out",
        "more threads than cores take turns: their throughput is no scaling",
    ],
}];

/// The experiment `name`.
pub fn find(name: &str) -> Result<&'static Experiment, Error> {
    EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name)
        .ok_or_else(|| Error::Unknown { name: name.to_owned(), known: EXPERIMENTS.len() })
}

/// The list for people, a paper after the other.
pub fn list() -> String {
    let mut out = String::new();
    let mut paper = "";
    for experiment in &EXPERIMENTS {
        if experiment.paper.short != paper {
            paper = experiment.paper.short;
            out += &format!("{}\n", experiment.paper.title);
        }
        out += &format!(
            "  {:<14} {:<8} {} ({})\n",
            experiment.name,
            experiment.built.word(),
            experiment.title,
            experiment.index
        );
        if let Some(missing) = experiment.built.missing() {
            out += &format!("  {:<14} {:<8} needs {missing}\n", "", "");
        }
    }
    out
}
