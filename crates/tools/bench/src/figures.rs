//! Figures without rounds, as a table and bars. The terminal and the page show the same figures.

use crate::spread::Spread;

/// A table with a heading, and plots of it.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// A short title.
    pub title: String,
    /// A line that describes the figures.
    pub about: String,
    /// The headings of the columns; the first is that of the rows' names.
    pub columns: Vec<String>,
    /// The rows, each with as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
    /// The plots.
    pub plots: Vec<Bars>,
}

/// A plot of bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The unit of all bars.
    pub unit: &'static str,
    /// The name of each bar, and its median with the least and the greatest figure.
    pub bars: Vec<(String, Spread)>,
}

impl Figures {
    /// A table with a line for each of the `rows`, and no plot.
    pub fn new<R>(
        title: &str,
        about: impl Into<String>,
        columns: &[&str],
        rows: &[R],
        line: impl Fn(&R) -> Vec<String>,
    ) -> Self {
        Self {
            title: title.to_owned(),
            about: about.into(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: rows.iter().map(line).collect(),
            plots: Vec::new(),
        }
    }

    /// The same with one more plot.
    pub fn with_plot(
        mut self,
        title: &str,
        unit: &'static str,
        bars: impl IntoIterator<Item = (String, Spread)>,
    ) -> Self {
        let (title, bars) = (title.to_owned(), bars.into_iter().collect());
        self.plots.push(Bars { title, unit, bars });
        self
    }

    /// The table as text; names are aligned left, figures right.
    pub fn text(&self) -> String {
        let lines = || [&self.columns].into_iter().chain(&self.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut out = format!("{}: {}\n", self.title, self.about);
        for line in lines() {
            let mut row = String::from(" ");
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                row += &match column {
                    0 => format!(" {cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            out += row.trim_end();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "1"], ["longer", "10.5"]];
        let line = |cells: &[&str; 2]| cells.map(str::to_owned).to_vec();
        let figures = Figures::new("Title", "about", &["system", "µs"], &rows, line);
        assert_eq!(
            figures.text(),
            "Title: about\n  system    µs\n  a          1\n  longer  10.5\n"
        );
    }
}
