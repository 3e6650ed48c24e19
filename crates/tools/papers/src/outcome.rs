//! What an experiment gives: lines, each with the paper's figure, ours, or both.

use serde::Serialize;

use pando_bench::spread::Spread;

/// Where a figure of a paper was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The text or a table states it.
    Text,
    /// It was worked out from figures that the text states.
    Derived,
}

/// A figure that a paper gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// The figure as printed, such as `1.28` or `25 to 40`.
    pub figure: &'static str,
    /// Where it was taken from.
    pub source: Source,
    /// What it is a figure of, where that is not what ours is of.
    pub of: &'static str,
}

impl Published {
    /// A figure that the text or a table states.
    pub const fn text(figure: &'static str, of: &'static str) -> Self {
        Self { figure, source: Source::Text, of }
    }

    /// A figure worked out from others that the text states.
    pub const fn derived(figure: &'static str, of: &'static str) -> Self {
        Self { figure, source: Source::Derived, of }
    }
}

/// A figure of ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The median over the rounds.
    pub median: f64,
    /// The least of a round.
    pub min: f64,
    /// The greatest of a round.
    pub max: f64,
    /// What it is a figure of, such as `bztree / crossbeam-skiplist, 2 threads`.
    pub of: String,
}

impl Measured {
    /// A figure with its spread.
    pub fn new(spread: Spread, of: impl Into<String>) -> Self {
        let Spread { median, min, max } = spread;
        Self { median, min, max, of: of.into() }
    }

    /// A figure that has no spread: a count.
    pub fn exact(figure: f64, of: impl Into<String>) -> Self {
        Self { median: figure, min: figure, max: figure, of: of.into() }
    }
}

/// One line of an experiment; one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What is measured, such as `read-only, throughput`.
    pub what: String,
    /// Its unit; `x` for a ratio.
    pub unit: &'static str,
    /// What the paper gives.
    pub paper: Option<Published>,
    /// What was measured here.
    pub ours: Option<Measured>,
}

/// What a run of an experiment gave.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The lines, in order.
    pub lines: Vec<Line>,
    /// The sizes of this run, in one line.
    pub conditions: String,
    /// More to be shown below the lines, as it is.
    pub appendix: String,
}

impl Outcome {
    /// Adds a line.
    pub fn push(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        paper: Option<Published>,
        ours: Option<Measured>,
    ) {
        self.lines.push(Line { what: what.into(), unit, paper, ours });
    }
}
