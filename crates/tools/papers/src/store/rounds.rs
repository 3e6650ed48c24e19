//! Figures of several rounds, as lines of an outcome.

use pando_bench::spread::Spread;

use crate::outcome::{Measured, Outcome, Published};

/// One line before its last round.
#[derive(Debug)]
struct Figures {
    what: String,
    unit: &'static str,
    of: String,
    paper: Option<Published>,
    of_rounds: Vec<f64>,
}

/// The figures of all rounds, in the order of the first one.
#[derive(Debug, Default)]
pub struct Rounds(Vec<Figures>);

impl Rounds {
    /// Adds the figure of a round.
    pub fn add(&mut self, what: &str, unit: &'static str, figure: f64) {
        self.add_with(what, unit, ("", None), figure);
    }

    /// The same, of a line that says of what its figure is, and what the paper has.
    pub fn add_with(
        &mut self,
        what: &str,
        unit: &'static str,
        (of, paper): (&str, Option<Published>),
        figure: f64,
    ) {
        match self.0.iter_mut().find(|line| line.what == what && line.unit == unit) {
            Some(line) => line.of_rounds.push(figure),
            None => self.0.push(Figures {
                what: what.to_owned(),
                unit,
                of: of.to_owned(),
                paper,
                of_rounds: vec![figure],
            }),
        }
    }

    /// Adds its lines to `outcome`.
    pub fn push_to(self, outcome: &mut Outcome) {
        for Figures { what, unit, of, paper, of_rounds } in self.0 {
            let ours = Measured::new(Spread::of(&of_rounds), of);
            outcome.push(what, unit, paper, Some(ours));
        }
    }
}

/// `part` by `of`; zero if there is nothing.
pub fn share(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_one_line_are_put_together() {
        let (mut rounds, mut outcome) = (Rounds::default(), Outcome::default());
        for figure in [3.0, 1.0, 2.0] {
            rounds.add("gets", "ms", figure);
            rounds.add("gets", "%", figure * 10.0);
        }
        rounds.push_to(&mut outcome);
        let figures = outcome.lines.iter().map(|line| {
            let ours = line.ours.as_ref().unwrap();
            (line.unit, ours.min, ours.median, ours.max)
        });
        assert_eq!(figures.collect::<Vec<_>>(), [("ms", 1.0, 2.0, 3.0), ("%", 10.0, 20.0, 30.0)]);
    }
}
