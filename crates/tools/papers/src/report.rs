//! The lines of an experiment for people, and as JSON.

use serde::Serialize;

use super::experiment::Experiment;
use super::outcome::{Line, Measured, Outcome, Source};

/// The lines for people, under what the experiment shows and above what differs.
pub fn text(experiment: &Experiment, outcome: &Outcome) -> String {
    let mut out = format!("{}: {}\n", experiment.name, experiment.title);
    out += &format!("  shows    {}\n", experiment.shows);
    out += &format!("  paper    {}\n", experiment.paper_conditions());
    out += &format!("  here     {}\n\n", outcome.conditions);
    let width =
        |texts: &mut dyn Iterator<Item = usize>, least: usize| texts.max().unwrap_or(0).max(least);
    let what = width(&mut outcome.lines.iter().map(|line| line.what.chars().count()), 4);
    let unit = width(&mut outcome.lines.iter().map(|line| line.unit.chars().count()), 4);
    let papers = outcome.lines.iter().map(|line| paper_text(line).chars().count());
    let paper = width(&mut papers.into_iter(), 5);
    out +=
        &format!("  {:<what$}  {:<unit$}  {:<paper$}  {:<28}\n", "what", "unit", "paper", "ours");
    for line in &outcome.lines {
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
    if !outcome.appendix.is_empty() {
        out.push('\n');
        out += &outcome.appendix;
    }
    out.push('\n');
    for difference in experiment.differs {
        out += &format!("  differs  {difference}\n");
    }
    if let Some(missing) = experiment.built.missing() {
        out += &format!("  missing  {missing}\n");
    }
    if outcome
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
pub fn json(experiment: &Experiment, outcome: &Outcome, out: &mut String) {
    #[derive(Serialize)]
    struct Row<'run> {
        experiment: &'run str,
        conditions: &'run str,
        #[serde(flatten)]
        line: &'run Line,
    }
    for line in &outcome.lines {
        let row = Row { experiment: experiment.name, conditions: &outcome.conditions, line };
        // Strings and numbers only: there is nothing that JSON cannot say.
        out.push_str(&serde_json::to_string(&row).unwrap_or_default());
        out.push('\n');
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
