//! `totals`: the totals of the latest long runs, from the data in `docs/runs/`.
//!
//! `docs/verify.md` has this table, and a test compares the two. A figure that is not known is `-`.

use std::fmt::Write;

use indicatif::HumanCount;

use crate::failure::Failure;
use crate::mutate::source::root;

/// The rows of a file with tab-separated columns, whose first line names the columns.
struct Data {
    name: &'static str,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Data {
    fn read(name: &'static str) -> Result<Self, Failure> {
        let path = root().join("docs/runs").join(name);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::trouble(&format!("read {}", path.display()), error))?;
        let mut rows = text.lines().map(|line| line.split('\t').map(str::to_owned).collect());
        let columns = rows.next().unwrap_or_default();
        Ok(Self { name, columns, rows: rows.collect() })
    }

    /// The fields of a column, from the first row on.
    fn column(&self, name: &str) -> Result<impl Iterator<Item = &str>, Failure> {
        let at = self.columns.iter().position(|column| column == name);
        let at =
            at.ok_or_else(|| Failure::trouble("find a column", format!("{name}: {}", self.name)))?;
        Ok(self.rows.iter().map(move |row| row.get(at).map_or("", String::as_str)))
    }

    /// The numbers of a column; none where the figure is not known.
    fn numbers(&self, name: &str) -> Result<Vec<Option<u64>>, Failure> {
        let number = |field: &str| match field {
            "-" => Ok(None),
            _ => field.parse().map(Some).map_err(|error| {
                Failure::trouble("read a number", format!("{}: {field:?}: {error}", self.name))
            }),
        };
        self.column(name)?.map(number).collect()
    }

    fn sum(&self, name: &str) -> Result<HumanCount, Failure> {
        Ok(HumanCount(self.numbers(name)?.into_iter().flatten().sum()))
    }
}

/// The table.
pub fn table() -> Result<String, Failure> {
    let mut table = String::from("| run | size |\n| --- | --- |\n");
    let mut row = |run: &str, size: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(table, "| {run} | {size} |");
    };
    let trials = Data::read("trials.tsv")?;
    for verb in ["explore", "schedule"] {
        let (runs, images) =
            (trials.sum(&format!("{verb}_runs"))?, trials.sum(&format!("{verb}_images"))?);
        let count = trials.rows.len();
        row(&format!("`{verb}`"), &format!("{count} trials, {runs} runs, {images} crash images"));
    }
    let mutants = Data::read("mutants.tsv")?;
    row(
        "`mutate`, the core, the BzTree, the log and transactions",
        &format!("{} mutants, all seen", mutants.rows.len()),
    );
    for (file, column, run, unit) in [
        ("kills.tsv", "kills", "`kill`", "kills"),
        ("power_cuts.tsv", "cuts_in_each_mode", "`powercut`", "power cuts in each mode"),
    ] {
        let data = Data::read(file)?;
        let (counts, acknowledged) = (data.numbers(column)?, data.numbers("acknowledged")?);
        for ((index, count), acknowledged) in data.column("index")?.zip(counts).zip(acknowledged) {
            let acknowledged = acknowledged.map_or_else(String::new, |count| {
                format!(", {} acknowledged operations", HumanCount(count))
            });
            let count = HumanCount(count.unwrap_or_default());
            row(&format!("{run}, {index}"), &format!("{count} {unit}{acknowledged}"));
        }
    }
    let fuzzing = Data::read("fuzzing.tsv")?;
    let (minutes, executions) = (fuzzing.numbers("minutes")?, fuzzing.numbers("executions")?);
    for ((target, minutes), executions) in fuzzing.column("target")?.zip(minutes).zip(executions) {
        let (minutes, executions) = (minutes.unwrap_or_default(), executions.unwrap_or_default());
        let size = format!("{minutes} minutes, {} executions", HumanCount(executions));
        row(&format!("fuzzing, `{target}`"), &size);
    }
    Ok(table)
}

/// Runs the verb.
pub fn run() -> Result<(), Failure> {
    print!("{}", table()?);
    Ok(())
}
