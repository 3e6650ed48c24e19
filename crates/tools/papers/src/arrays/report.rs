//! The rows of a run as a table for people.

use super::plan::{RDCSS, Row};
use pando_bench::machine;
use pando_bench::spread::Spread;
use pando_bench::units::count;

/// The rows as a table: a section for each array size and kind of operation.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut section = None;
    for row in rows {
        let current = (row.array_words, &row.operation_words, row.threads);
        if section != Some(current) {
            out += if section.is_some() { "\n" } else { "" };
            out += &heading(row);
            let own = |other: &&Row| {
                (other.array_words, &other.operation_words, other.threads) == current
            };
            let mut costs: Vec<String> = rows.iter().filter(own).map(cost).collect();
            costs.sort();
            costs.dedup();
            out += &costs.concat();
            out += &format!(
                "  {:<14} {:>8} {:>9} {:>20}\n",
                "domain",
                "Mops/s",
                "succeed",
                format!("x {}", row.base)
            );
            section = Some(current);
        }
        let ratio = Spread { median: row.ratio_to_first, min: row.ratio_min, max: row.ratio_max };
        out += &format!(
            "  {:<14} {:>8.3} {:>8.2}% {:>20}\n",
            row.domain,
            row.ops_per_second / 1e6,
            row.success_rate * 100.0,
            ratio.to_string(),
        );
    }
    out
}

fn heading(row: &Row) -> String {
    let words = match row.operation_words.as_str() {
        "cas" => "single-word persistent CAS".to_owned(),
        "1" => "PMwCAS of 1 word".to_owned(),
        words => format!("PMwCAS of {words} words"),
    };
    let cores = machine::cores().len();
    let threads = match row.threads {
        1 => "1 thread".to_owned(),
        threads if threads > cores => format!("{threads} threads on {cores} cores"),
        threads => format!("{threads} threads"),
    };
    format!(
        "{words}, array of {} words, {threads}, {} rounds\n",
        count(row.array_words),
        row.rounds
    )
}

/// What an attempt takes, if that was counted.
fn cost(row: &Row) -> String {
    let mut out = String::new();
    if let Some(cost) = row.cost {
        let algorithm = if row.domain.ends_with(RDCSS) { RDCSS } else { "" };
        out += &format!(
            "  an attempt in adr{algorithm}: {:.2} swaps, {:.2} flushes, {:.2} fences, {:.2} words and {:.2} lines written, {:.2} lines read\n",
            cost.swaps,
            cost.flushes,
            cost.fences,
            cost.words_written,
            cost.lines_written,
            cost.lines_read,
        );
    }
    out
}
