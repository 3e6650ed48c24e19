//! Comparison of the ratios of two runs of the same comparison.
//!
//! The second measurement of a ratio should lie within the spread of the first. The input is the
//! rows that `--json` of a comparison wrote. Two rows are compared if system, base, operation mix,
//! keys, sizes, threads and rate are equal. The rows of the base itself always have the ratio 1 and
//! are ignored.

use std::path::Path;

use serde::Deserialize;

use crate::error::Error;
use crate::figures::Figures;
use crate::report::ROW_VERSION;
use crate::spread::Spread;
use crate::units::count;

/// The subject of a ratio: the fields of a [`Row`](crate::report::Row) with the same names.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Subject {
    system: String,
    base: String,
    operation_mix: String,
    keys: String,
    records: u64,
    key_bytes: usize,
    value_bytes: usize,
    threads: usize,
    rate_ops_per_second: Option<f64>,
}

/// The version of a row; rows of version 1 do not contain it.
#[derive(Deserialize)]
struct Version {
    #[serde(default = "one")]
    version: u32,
}

fn one() -> u32 {
    1
}

/// A ratio and its spread over the rounds.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object, as bench --json writes it")]
pub struct Ratio {
    #[serde(flatten)]
    subject: Subject,
    ratio_to_first: f64,
    ratio_min: f64,
    ratio_max: f64,
}

impl Ratio {
    fn spread(&self) -> Spread {
        Spread { median: self.ratio_to_first, min: self.ratio_min, max: self.ratio_max }
    }

    fn holds(&self, other: &Self) -> bool {
        (self.ratio_min..=self.ratio_max).contains(&other.ratio_to_first)
    }
}

/// Reads the ratios of the rows in the file at `path`.
pub fn read(path: &Path) -> Result<Vec<Ratio>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::File { path: path.to_path_buf(), source })?;
    let bad = |line, what| Error::Line { path: path.to_path_buf(), line, what };
    let mut ratios: Vec<(usize, Ratio)> = Vec::new();
    for (line, row) in text.lines().enumerate().map(|(index, row)| (index + 1, row)) {
        let no_row = |error| bad(line, format!("no row of a comparison: {error}"));
        let Version { version } = serde_json::from_str(row).map_err(no_row)?;
        if version != ROW_VERSION {
            let what = format!(
                "a row of version {version}; this build reads version {ROW_VERSION}: measure again"
            );
            return Err(bad(line, what));
        }
        let ratio: Ratio = serde_json::from_str(row).map_err(no_row)?;
        let twice = ratios.iter().find(|(_, earlier)| earlier.subject == ratio.subject);
        if let Some((earlier, _)) = twice {
            let what = format!("{} are in line {earlier} already", ratio.subject.in_words());
            return Err(bad(line, what));
        }
        ratios.push((line, ratio));
    }
    if ratios.is_empty() {
        return Err(bad(1, "the file has no row in it".to_owned()));
    }
    let is_base = |ratio: &Ratio| ratio.subject.system == ratio.subject.base;
    Ok(ratios.into_iter().map(|(_, ratio)| ratio).filter(|ratio| !is_base(ratio)).collect())
}

impl Subject {
    fn in_words(&self) -> String {
        format!(
            "{} by {}, {}, {} keys, {} records of {} and {} bytes, {} threads",
            self.system,
            self.base,
            self.operation_mix,
            self.keys,
            count(self.records),
            self.key_bytes,
            self.value_bytes,
            self.threads
        )
    }
}

/// The ratios of two runs, and the number of them that agree.
#[derive(Debug)]
pub struct Agreement {
    /// A line for each ratio that both runs have.
    pub figures: Figures,
    /// Ratios that both runs have.
    pub both: usize,
    /// Those of the second run that lie within the first's spread.
    pub within_first: usize,
    /// Those of the first run that lie within the second's spread.
    pub within_second: usize,
    /// Ratios that only one of the runs has.
    pub alone: usize,
}

/// Compares the ratios of `first` and `second`; an error if they have none in common.
pub fn agreement(first: &[Ratio], second: &[Ratio]) -> Result<Agreement, Error> {
    let columns =
        ["system", "mix", "keys", "records", "bytes", "threads", "first", "second", "within"];
    let mut found = Agreement {
        figures: Figures {
            title: "Agreement".to_owned(),
            about: "ratios of two runs; within: whose spread the other run's median lies in"
                .to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            ..Figures::default()
        },
        both: 0,
        within_first: 0,
        within_second: 0,
        alone: 0,
    };
    for one in first {
        let Some(other) = second.iter().find(|other| other.subject == one.subject) else {
            continue;
        };
        let (in_first, in_second) = (one.holds(other), other.holds(one));
        found.both += 1;
        found.within_first += usize::from(in_first);
        found.within_second += usize::from(in_second);
        let within = match (in_first, in_second) {
            (true, true) => "both",
            (true, false) => "first",
            (false, true) => "second",
            (false, false) => "neither",
        };
        let of = &one.subject;
        found.figures.rows.push(vec![
            format!("{} / {}", of.system, of.base),
            of.operation_mix.clone(),
            of.keys.clone(),
            count(of.records),
            format!("{}+{}", of.key_bytes, of.value_bytes),
            of.threads.to_string(),
            one.spread().to_string(),
            other.spread().to_string(),
            within.to_owned(),
        ]);
    }
    found.alone = first.len() + second.len() - 2 * found.both;
    if found.both > 0 {
        return Ok(found);
    }
    let begins = |ratios: &[Ratio]| {
        ratios.first().map_or("nothing but its base".to_owned(), |ratio| ratio.subject.in_words())
    };
    Err(Error::Usage(format!(
        "the two runs have no ratio in common: the first has {}, the second {}",
        begins(first),
        begins(second)
    )))
}

impl Agreement {
    /// The table, and below it the number of ratios that agree.
    pub fn text(&self) -> String {
        let Self { both, within_first, within_second, alone, .. } = self;
        let mut out = self.figures.text();
        out += &format!(
            "\n{within_first} of {both} ratios lie within the first run's spread, {within_second} within the second's\n"
        );
        if *alone > 0 {
            out += &format!("{alone} ratios are in one of the runs alone\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of a system with a ratio and its spread.
    fn row(system: &str, [median, min, max]: [f64; 3]) -> String {
        format!(
            "{{\"version\":2,\"system\":\"{system}\",\"base\":\"a\",\"operation_mix\":\"read\",\"keys\":\"uniform\",\"records\":1000,\
             \"key_bytes\":8,\"value_bytes\":8,\"threads\":1,\"rate_ops_per_second\":null,\"more\":0,\
             \"ratio_to_first\":{median},\"ratio_min\":{min},\"ratio_max\":{max}}}\n"
        )
    }

    fn read_text(text: &str) -> Result<Vec<Ratio>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn medians_are_looked_for_in_the_other_spread() {
        let base = row("a", [1.0, 1.0, 1.0]);
        let first = base.clone()
            + &row("b", [0.5, 0.4, 0.6])
            + &row("c", [2.0, 1.9, 2.1])
            + &row("d", [1.5, 1.0, 1.6])
            + &row("e", [1.0, 1.0, 1.0]);
        let second = base
            + &row("c", [2.2, 1.9, 2.4])
            + &row("b", [0.6, 0.55, 0.7])
            + &row("d", [1.2, 1.1, 1.3]);
        let found = agreement(&read_text(&first).unwrap(), &read_text(&second).unwrap()).unwrap();
        assert_eq!((found.both, found.within_first, found.within_second), (3, 2, 1));
        assert_eq!(found.alone, 1, "the system e");
        let within: Vec<_> = found.figures.rows.iter().map(|row| row[8].as_str()).collect();
        assert_eq!(within, ["first", "second", "first"]);
        let text = found.text();
        assert!(text.contains("2 of 3 ratios lie within the first run's spread"), "{text}");
        assert!(text.contains("0.50 [0.40, 0.60]"), "{text}");
    }

    #[test]
    fn bad_files_are_named_with_the_line() {
        let good = row("b", [0.5, 0.4, 0.6]);
        for (text, line, says) in [
            (String::new(), 1, "no row in it"),
            (good.clone() + "{\"version\":2,\"system\":\"c\"}", 2, "missing field"),
            (good.replace("\"version\":2,", ""), 1, "version 1; this build reads version 2"),
            (good.clone() + "{", 2, "EOF"),
            (good.clone() + &row("c", [1.0, 1.0, 1.0]) + &good, 3, "in line 1 already"),
        ] {
            let error = read_text(&text).unwrap_err().to_string();
            assert!(error.contains(&format!("rows.jsonl, line {line}: ")), "{error}");
            assert!(error.contains(says), "{error}");
        }
        let error = read(Path::new("/nonexistent/rows")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/rows"), "{error}");
        let other = read_text(&row("c", [1.0, 1.0, 1.0])).unwrap();
        let error = agreement(&read_text(&good).unwrap(), &other).unwrap_err().to_string();
        assert!(error.contains("b by a") && error.contains("c by a"), "{error}");
    }
}
