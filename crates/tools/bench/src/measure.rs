//! Measures that a comparison of systems cannot express: their plan, their rounds, and their table.

use std::time::Duration;

use serde::Serialize;

use crate::figures::Figures;
use crate::record::Shape;
use crate::spread::Spread;
use crate::systems::entry::BuildOptions;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Records of the map.
    pub records: u64,
    /// Lengths of keys and values.
    pub shape: Shape,
    /// Number of rounds.
    pub rounds: usize,
    /// Time of each part of a round.
    pub time: Duration,
    /// Folders of pools and logs, and the size of a pool.
    pub build: BuildOptions,
    /// Seed of the operations.
    pub seed: u64,
}

/// A measure; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub measure: String,
    /// The measure that it is divided by; `None` if there is no ratio.
    pub base: Option<String>,
    /// The ratio of the rounds.
    pub ratio: Option<Spread>,
    /// As `ratio`, of keys per second of core time; `None` for a latency too.
    pub on_core_ratio: Option<Spread>,
    /// Keys per second of the rounds; `None` for a latency.
    pub per_second: Option<Spread>,
    /// Keys per second of core time of the rounds; `None` for a latency.
    pub per_core_second: Option<Spread>,
    /// The latency of the rounds in nanoseconds; `None` for a rate.
    pub latency_ns: Option<Spread>,
    /// Records of the map.
    pub records: u64,
    /// Length of a value in bytes.
    pub value_bytes: usize,
}

/// A figure of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// A rate.
    Rate {
        /// Keys per second.
        per_second: f64,
        /// Keys per second of core time.
        per_core_second: f64,
    },
    /// Nanoseconds.
    Latency(f64),
}

impl Figure {
    fn value(self) -> f64 {
        match self {
            Self::Rate { per_second, .. } => per_second,
            Self::Latency(ns) => ns,
        }
    }

    fn on_core(self) -> Option<f64> {
        match self {
            Self::Rate { per_core_second, .. } => Some(per_core_second),
            Self::Latency(_) => None,
        }
    }

    fn is_rate(self) -> bool {
        self.on_core().is_some()
    }
}

/// The figures of the rounds of a measure.
pub struct Measure {
    name: String,
    base: Option<String>,
    /// Its figures, and those of the measure that it is divided by.
    pub rounds: Vec<(Figure, Option<Figure>)>,
}

impl Measure {
    /// A measure without figures yet; `base` is the name of the one that it is divided by.
    pub fn new(name: impl Into<String>, base: Option<&str>) -> Self {
        Self { name: name.into(), base: base.map(str::to_owned), rounds: Vec::new() }
    }

    /// The row of all rounds.
    pub fn row(self, records: u64, plan: &Plan) -> Row {
        let spread = |figures: Vec<f64>| (!figures.is_empty()).then(|| Spread::of(&figures));
        let rounds = || self.rounds.iter().copied();
        let of = |is_rate: bool| {
            let figures = rounds().map(|(figure, _)| figure);
            spread(
                figures.filter(|figure| figure.is_rate() == is_rate).map(Figure::value).collect(),
            )
        };
        let ratio = rounds().filter_map(|(figure, base)| Some(figure.value() / base?.value()));
        let on_core =
            rounds().filter_map(|(figure, base)| Some((figure.on_core()?, base?.on_core()?)));
        Row {
            base: self.base,
            ratio: spread(ratio.collect()),
            on_core_ratio: spread(on_core.map(|(figure, base)| figure / base).collect()),
            per_second: of(true),
            per_core_second: spread(rounds().filter_map(|(figure, _)| figure.on_core()).collect()),
            latency_ns: of(false),
            records,
            value_bytes: plan.shape.value_bytes,
            measure: self.name,
        }
    }
}

/// The table of the rows.
pub fn figures(title: &str, rows: &[Row]) -> Figures {
    let shown = |spread: Option<Spread>, divisor: f64| {
        spread.map_or_else(String::new, |Spread { median, min, max }| {
            let [median, min, max] = [median, min, max].map(|figure| figure / divisor);
            Spread { median, min, max }.to_string()
        })
    };
    let line = |row: &Row| {
        vec![
            row.measure.clone(),
            row.base.clone().unwrap_or_default(),
            shown(row.ratio, 1.0),
            shown(row.on_core_ratio, 1.0),
            shown(row.per_second, 1e3),
            shown(row.latency_ns, 1e3),
        ]
    };
    let bar = |row: &Row| Some((row.measure.clone(), row.ratio?));
    let columns = ["measure", "divided by", "ratio", "on core", "thousand a second", "µs"];
    let about = "the median of the rounds, and the least and the greatest";
    Figures::new(title, about, &columns, rows, line).with_plot(
        "Ratios",
        "",
        rows.iter().filter_map(bar),
    )
}
