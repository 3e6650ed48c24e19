//! What is profiled, and the samples added up by component.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::component::{self, Component};

/// What is profiled.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Records of 8-byte keys and values, filled before the profile begins.
    pub records: u64,
    /// Threads at work.
    pub threads: usize,
    /// Percent of the operations that are gets; the others are upserts.
    pub read_percent: u64,
    /// The domain: `process`, or `adr`.
    pub domain: String,
    /// How long samples are taken.
    pub time: Duration,
    /// This program, which serves as its own child.
    pub executable: PathBuf,
    /// What stands before the arguments when it runs itself: `bench` for `pando bench`.
    pub prefix: Vec<String>,
    /// Seed of the operations.
    pub seed: u64,
}

/// The samples of one component; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The component.
    pub component: Component,
    /// Samples.
    pub samples: u64,
    /// Its percentage of the samples in the tree, those of the workload's own loop left out.
    pub percent: f64,
}

/// What a profile found.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// All components, in order.
    pub shares: Vec<Share>,
    /// Samples in the tree.
    pub samples: u64,
    /// Samples in the loop that calls it.
    pub driver_samples: u64,
    /// The functions with most samples that no rule names, with their samples.
    pub unnamed: Vec<(String, u64)>,
}

impl Profile {
    /// The percentage of one component.
    pub fn percent(&self, component: Component) -> f64 {
        self.shares
            .iter()
            .find(|share| share.component == component)
            .map_or(0.0, |share| share.percent)
    }
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program could not be run.
    #[error("{program} could not be run: {source}; on Debian it is in the package {package}")]
    Program {
        /// Which.
        program: &'static str,
        /// What it comes with.
        package: &'static str,
        /// The reason given.
        source: std::io::Error,
    },
    /// A program failed.
    #[error("{program} failed: {said}")]
    Failed {
        /// Which.
        program: &'static str,
        /// What it said last.
        said: String,
    },
    /// The child did not do its part.
    #[error("the process to be profiled {what}")]
    Child {
        /// What it did instead.
        what: String,
    },
    /// The executable's line tables cannot be read.
    #[error("the line tables of {path} cannot be read: {reason}")]
    LineTables {
        /// Which executable.
        path: PathBuf,
        /// The reason given.
        reason: String,
    },
    /// Too few samples fell into functions that are known.
    #[error(
        "{known} of {all} samples lie in functions with line tables; build with `--release`, which keeps them"
    )]
    Blind {
        /// Samples with a source.
        known: u64,
        /// All samples.
        all: u64,
    },
}

/// Adds up chains of functions, each from the innermost outwards.
pub fn add_up(chains: impl Iterator<Item = Vec<component::Frame>>) -> Profile {
    let mut counts = [0_u64; Component::ALL.len()];
    let mut unnamed = std::collections::HashMap::<String, u64>::new();
    for chain in chains {
        let found = component::component(&chain);
        counts[found as usize] += 1;
        if found == Component::Other {
            let name = chain.first().map_or("?", |frame| frame.function.as_str());
            *unnamed.entry(name.to_owned()).or_default() += 1;
        }
    }
    let driver_samples = counts[Component::Driver as usize];
    let samples = counts.iter().sum::<u64>() - driver_samples;
    let shares = Component::ALL
        .into_iter()
        .filter(|&component| component != Component::Driver)
        .map(|component| {
            let own = counts[component as usize];
            let percent = own as f64 * 100.0 / samples.max(1) as f64;
            Share { component, samples: own, percent }
        })
        .collect();
    let mut unnamed: Vec<_> = unnamed.into_iter().collect();
    unnamed.sort_by(|left, right| right.1.cmp(&left.1).then(left.0.cmp(&right.0)));
    unnamed.truncate(8);
    Profile { shares, samples, driver_samples, unnamed }
}

/// Two profiles as a table in Markdown: the balanced mix and the read-only one.
pub fn markdown(profiles: &[(&str, &Profile)]) -> String {
    let mut out = String::from("| component |");
    for (name, _) in profiles {
        out += &format!(" {name} |");
    }
    out += "\n| --- |";
    out += &" ---: |".repeat(profiles.len());
    out.push('\n');
    for component in Component::ALL {
        if component == Component::Driver {
            continue;
        }
        out += &format!("| {} |", component.name());
        for (_, profile) in profiles {
            out += &format!(" {:.1} % |", profile.percent(component));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::component::Frame;

    /// What is added up is known here: a third of the samples in the tree are copies.
    #[test]
    fn a_profile_counts_each_sample_once() {
        let frame =
            |function: &str, file: &str| Frame { function: function.into(), file: file.into() };
        let copies = || vec![frame("__memmove_avx512", "")];
        let driver = || vec![frame("work", "crates/tools/bench/src/profile/child.rs")];
        let other = || vec![frame("nobody_knows", "elsewhere.rs")];
        let chains = [copies(), driver(), other(), copies(), other(), other(), other(), driver()];
        let profile = add_up(chains.into_iter());
        assert_eq!((profile.samples, profile.driver_samples), (6, 2));
        assert_eq!(profile.shares.iter().map(|share| share.samples).sum::<u64>(), 6);
        let percent = profile.percent(Component::Copying);
        assert!((percent - 100.0 / 3.0).abs() < 1e-9, "{percent}");
        assert_eq!(profile.unnamed, [("nobody_knows".to_owned(), 4)]);
    }
}
