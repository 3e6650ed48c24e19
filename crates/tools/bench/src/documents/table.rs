//! How rows of JSON become a table and bars.

use serde_json::{Map, Value};

use crate::figures::Bars;
use crate::spread::Spread;
use crate::units;

/// A row, as a command wrote it.
pub type Row = Map<String, Value>;

/// The shape of a table.
#[derive(Debug)]
pub struct Table {
    /// The columns that tell one line from another.
    pub keys: &'static [Column],
    /// If it is set, the values of this field become the columns' headings, with one cell each.
    pub across: Option<&'static str>,
    /// The columns with figures.
    pub cells: &'static [Column],
}

/// A column: its heading, the field of its cells, and how they are shown.
#[derive(Debug)]
pub struct Column {
    /// The heading.
    pub heading: &'static str,
    /// The field of the row.
    pub field: &'static str,
    /// How its value is shown.
    pub show: Show,
}

impl Column {
    /// A column of text, or of whole numbers.
    pub const fn plain(heading: &'static str, field: &'static str) -> Self {
        Self { heading, field, show: Show::Plain }
    }
}

/// How a value is shown.
#[derive(Clone, Copy, Debug)]
pub enum Show {
    /// Text as it is; a whole number with a suffix, as in 10M.
    Plain,
    /// A number, divided, with so many digits behind the point.
    Number { divisor: f64, digits: usize },
    /// `{median, min, max}`, divided, with so many digits behind the point.
    Spread { divisor: f64, digits: usize },
    /// `{median, mean}`: the median, and the mean in brackets.
    MedianAndMean,
    /// `ratio_to_first` with `ratio_min` and `ratio_max`, in bold where it is above 1. The base,
    /// whose ratio is 1 by definition, has no cell.
    Ratio,
}

/// A cell: what a reader sees, and what a bar shows.
#[derive(Clone, Debug)]
struct Cell {
    text: String,
    bar: Option<Spread>,
}

/// A table that is filled in: a line is its key and its cells.
struct Grid {
    headings: Vec<String>,
    lines: Vec<(Vec<String>, Vec<Option<Cell>>)>,
}

/// What a row lacks for its table.
#[derive(Debug, thiserror::Error)]
#[error("a row has no {what} in its field {field}")]
pub struct Missing {
    field: &'static str,
    what: &'static str,
}

impl Table {
    /// The table in Markdown.
    pub fn markdown(&self, rows: &[Row]) -> Result<String, Missing> {
        let grid = self.grid(rows)?;
        let headings = self.keys.iter().map(|key| key.heading).map(str::to_owned);
        let mut out = line(headings.chain(grid.headings.iter().cloned()));
        let rules = self.keys.iter().map(|_| "---").chain(grid.headings.iter().map(|_| "---:"));
        out += &line(rules.map(str::to_owned));
        for (key, cells) in grid.lines {
            let cells = cells.into_iter().map(|cell| cell.map_or(String::new(), |cell| cell.text));
            out += &line(key.into_iter().chain(cells));
        }
        Ok(out)
    }

    /// A plot for each column that has numbers.
    pub fn plots(&self, rows: &[Row]) -> Result<Vec<Bars>, Missing> {
        let grid = self.grid(rows)?;
        let plot = |(place, heading): (usize, &String)| {
            let bars: Vec<_> = grid
                .lines
                .iter()
                .filter_map(|(key, cells)| Some((key.join(", "), cells.get(place)?.as_ref()?.bar?)))
                .collect();
            (!bars.is_empty()).then(|| Bars { title: heading.clone(), unit: "", bars })
        };
        Ok(grid.headings.iter().enumerate().filter_map(plot).collect())
    }

    fn grid(&self, rows: &[Row]) -> Result<Grid, Missing> {
        let mut grid = Grid {
            headings: match self.across {
                Some(_) => Vec::new(),
                None => self.cells.iter().map(|cell| cell.heading.to_owned()).collect(),
            },
            lines: Vec::new(),
        };
        for row in rows {
            let cells: Vec<_> =
                self.cells.iter().map(|cell| cell.cell(row)).collect::<Result<_, _>>()?;
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let key: Vec<_> = self
                .keys
                .iter()
                .map(|key| Ok(key.cell(row)?.map_or(String::new(), |cell| cell.text)))
                .collect::<Result<_, Missing>>()?;
            let at = match grid.lines.iter().position(|(other, _)| *other == key) {
                Some(at) => at,
                None => {
                    grid.lines.push((key, Vec::new()));
                    grid.lines.len() - 1
                }
            };
            match self.across {
                None => grid.lines[at].1 = cells,
                Some(field) => {
                    let text = row.get(field).and_then(Value::as_str);
                    let heading = text.ok_or(Missing { field, what: "text" })?.to_owned();
                    let place = match grid.headings.iter().position(|known| *known == heading) {
                        Some(place) => place,
                        None => {
                            grid.headings.push(heading);
                            grid.headings.len() - 1
                        }
                    };
                    let line = &mut grid.lines[at].1;
                    line.resize(line.len().max(place + 1), None);
                    line[place] = cells.into_iter().next().flatten();
                }
            }
        }
        let width = grid.headings.len();
        grid.lines.iter_mut().for_each(|(_, cells)| cells.resize(width, None));
        Ok(grid)
    }
}

impl Column {
    /// The cell of `row`; `None` if the row has nothing to show there.
    fn cell(&self, row: &Row) -> Result<Option<Cell>, Missing> {
        let missing = |what| Missing { field: self.field, what };
        let value = row.get(self.field).ok_or(missing("value"))?;
        if value.is_null() {
            return Ok(None);
        }
        let number = |field: &Value| field.as_f64().ok_or(missing("number"));
        let spread = |object: &Value| {
            let [median, min, max] =
                ["median", "min", "max"].map(|field| number(object.get(field).unwrap_or(object)));
            Ok::<_, Missing>(Spread { median: median?, min: min?, max: max? })
        };
        let plain = |text: String| Cell { text, bar: None };
        Ok(Some(match self.show {
            Show::Plain => match (value.as_str(), value.as_u64()) {
                (Some(text), _) => plain(text.to_owned()),
                (_, Some(count)) => plain(units::count(count)),
                _ => return Err(missing("text or whole number")),
            },
            Show::Number { divisor, digits } => {
                let figure = number(value)? / divisor;
                Cell { text: format!("{figure:.digits$}"), bar: Some(Spread::of(&[figure])) }
            }
            Show::Spread { divisor, digits } => spread_cell(spread(value)?, divisor, digits),
            Show::MedianAndMean => {
                let [median, mean] = ["median", "mean"]
                    .map(|field| value.get(field).map_or(Err(missing("median or mean")), number));
                let (median, mean) = (median?, mean?);
                Cell { text: format!("{median} ({mean:.1})"), bar: Some(Spread::of(&[mean])) }
            }
            Show::Ratio => {
                if row.get("system") == row.get("base") {
                    return Ok(None);
                }
                let [median, min, max] = ["ratio_to_first", "ratio_min", "ratio_max"]
                    .map(|field| row.get(field).map_or(Err(missing("ratio")), number));
                let spread = Spread { median: median?, min: min?, max: max? };
                let cell = spread_cell(spread, 1.0, 2);
                match spread.median > 1.0 {
                    true => Cell { text: format!("**{}**", cell.text), ..cell },
                    false => cell,
                }
            }
        }))
    }
}

fn spread_cell(spread: Spread, divisor: f64, digits: usize) -> Cell {
    let Spread { median, min, max } = spread;
    let [median, min, max] = [median, min, max].map(|figure| figure / divisor);
    let text = match min == max {
        true => format!("{median:.digits$}"),
        false => format!("{median:.digits$} ({min:.digits$} to {max:.digits$})"),
    };
    Cell { text, bar: Some(Spread { median, min, max }) }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let mut out = String::from("|");
    for cell in cells {
        out += &format!(" {cell} |");
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(values: &[Value]) -> Vec<Row> {
        values.iter().map(|value| value.as_object().unwrap().clone()).collect()
    }

    const THREADS: Column = Column::plain("threads", "threads");
    const RATIO: Column = Column { heading: "", field: "ratio_to_first", show: Show::Ratio };

    #[test]
    fn systems_become_columns_and_the_base_has_none() {
        let row = |system: &str, threads: u64, ratio: f64| {
            json!({ "system": system, "base": "a", "threads": threads, "ratio_to_first": ratio,
                    "ratio_min": ratio - 0.5, "ratio_max": ratio + 0.5 })
        };
        let table = Table { keys: &[THREADS], across: Some("system"), cells: &[RATIO] };
        let rows = rows(&[row("a", 1, 1.0), row("b", 1, 1.5), row("c", 2, 0.75)]);
        assert_eq!(
            table.markdown(&rows).unwrap(),
            "| threads | b | c |\n| --- | ---: | ---: |\n| 1 | **1.50 (1.00 to 2.00)** |  |\n\
             | 2 |  | 0.75 (0.25 to 1.25) |\n"
        );
        let plots = table.plots(&rows).unwrap();
        assert_eq!(plots.len(), 2);
        assert_eq!((plots[1].title.as_str(), plots[1].bars[0].0.as_str()), ("c", "2"));
    }

    #[test]
    fn each_kind_of_value_is_shown_in_its_way() {
        let column = |field, show| Column { heading: "h", field, show };
        let row = json!({ "n": 2_000_000, "spread": { "median": 1500.0, "min": 1000.0, "max": 2000.0 },
                          "cost": { "median": 2.0, "mean": 2.44 }, "none": null });
        let rows = rows(&[row]);
        let cell = |column: Column| column.cell(&rows[0]).map(|cell| cell.map(|cell| cell.text));
        let shown = |column| cell(column).unwrap().unwrap_or("none".to_owned());
        assert_eq!(shown(column("n", Show::Plain)), "2M");
        assert_eq!(shown(column("n", Show::Number { divisor: 1e6, digits: 1 })), "2.0");
        let spread = Show::Spread { divisor: 1e3, digits: 1 };
        assert_eq!(shown(column("spread", spread)), "1.5 (1.0 to 2.0)");
        assert_eq!(shown(column("cost", Show::MedianAndMean)), "2 (2.4)");
        assert_eq!(shown(column("none", Show::Plain)), "none");
        let whole = Show::Number { divisor: 1.0, digits: 0 };
        for (field, show) in [("absent", Show::Plain), ("cost", Show::Plain), ("spread", whole)] {
            let refused = cell(column(field, show)).unwrap_err().to_string();
            assert!(refused.contains(field), "{refused}");
        }
    }
}
