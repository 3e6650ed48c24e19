//! What an experiment gives: lines, each with the paper's figure, ours, or both.

use serde::Serialize;

use super::experiment::Experiment;
use crate::report::Spread;

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
    /// What it is a figure of, such as `bztree / skiplist, 2 threads`.
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

    /// The lines for people, under what the experiment shows and above what differs.
    pub fn text(&self, experiment: &Experiment) -> String {
        let mut out = format!("{}: {}\n", experiment.name, experiment.title);
        out += &format!("  shows    {}\n", experiment.shows);
        out += &format!("  paper    {}\n", experiment.paper_conditions());
        out += &format!("  here     {}\n\n", self.conditions);
        let width = |texts: &mut dyn Iterator<Item = usize>, least: usize| {
            texts.max().unwrap_or(0).max(least)
        };
        let what = width(&mut self.lines.iter().map(|line| line.what.chars().count()), 4);
        let unit = width(&mut self.lines.iter().map(|line| line.unit.chars().count()), 4);
        let papers = self.lines.iter().map(|line| paper_text(line).chars().count());
        let paper = width(&mut papers.into_iter(), 5);
        out += &format!(
            "  {:<what$}  {:<unit$}  {:<paper$}  {:<28}\n",
            "what", "unit", "paper", "ours"
        );
        for line in &self.lines {
            let ours = line.ours.as_ref().map_or("-".to_owned(), ours_text);
            let row = format!(
                "  {:<what$}  {:<unit$}  {:<paper$}  {ours}",
                line.what,
                line.unit,
                paper_text(line)
            );
            out += row.trim_end();
            out.push('\n');
        }
        if !self.appendix.is_empty() {
            out.push('\n');
            out += &self.appendix;
        }
        out.push('\n');
        for difference in experiment.differs {
            out += &format!("  differs  {difference}\n");
        }
        if let Some(missing) = experiment.built.missing() {
            out += &format!("  missing  {missing}\n");
        }
        if self
            .lines
            .iter()
            .filter_map(|line| line.paper.as_ref())
            .any(|paper| paper.source == Source::Derived)
        {
            out += "  (*) worked out from figures that the paper's text states\n";
        }
        out
    }

    /// Appends one JSON object a line to `out`.
    pub fn json(&self, experiment: &Experiment, out: &mut String) {
        #[derive(Serialize)]
        struct Row<'run> {
            experiment: &'run str,
            conditions: &'run str,
            #[serde(flatten)]
            line: &'run Line,
        }
        for line in &self.lines {
            let row = Row { experiment: experiment.name, conditions: &self.conditions, line };
            // Strings and numbers only: there is nothing that JSON cannot say.
            out.push_str(&serde_json::to_string(&row).unwrap_or_default());
            out.push('\n');
        }
    }
}

fn paper_text(line: &Line) -> String {
    match &line.paper {
        None => "-".to_owned(),
        Some(paper) => {
            let mark = if paper.source == Source::Derived { " (*)" } else { "" };
            let of = if paper.of.is_empty() { String::new() } else { format!(" ({})", paper.of) };
            format!("{}{mark}{of}", paper.figure)
        }
    }
}

fn ours_text(ours: &Measured) -> String {
    let figure = |figure: f64| match figure.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 0.1 => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    };
    let spread = if ours.min == ours.max {
        figure(ours.median)
    } else {
        format!("{} [{}, {}]", figure(ours.median), figure(ours.min), figure(ours.max))
    };
    if ours.of.is_empty() { spread } else { format!("{spread} ({})", ours.of) }
}
