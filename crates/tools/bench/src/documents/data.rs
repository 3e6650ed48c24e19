//! The file of a figure: a header line, then the rows.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::table::Row;
use crate::conditions::Conditions;
use crate::error::Error;
use crate::report;

/// Rises when the header changes.
const VERSION: u32 = 1;

/// Where, when and by which commands a figure was measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// The figure's name.
    pub figure: String,
    /// The processor, as it names itself.
    pub cpu_model: String,
    /// Cores that the process could use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The commit that the program was built from.
    pub commit: String,
    /// The day, as in 2026-01-31, in UTC.
    pub date: String,
    /// The commands whose rows follow.
    pub commands: Vec<String>,
    /// The hash of each folder of sources that the figure depends on, as git makes it.
    pub sources: BTreeMap<String, String>,
}

/// A figure's data.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The first line.
    pub header: Header,
    /// All others.
    pub rows: Vec<Row>,
}

impl Header {
    /// The header of a figure that is measured now, on this machine.
    pub fn now(
        figure: &str,
        commit: &str,
        commands: &[&str],
        sources: BTreeMap<String, String>,
    ) -> Self {
        let here = Conditions::here(Path::new("/"));
        let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
        Self {
            version: VERSION,
            figure: figure.to_owned(),
            cpu_model: here.cpu_model,
            cores: here.cores,
            kernel: here.kernel,
            commit: commit.to_owned(),
            date: now.chars().take("2026-01-31".len()).collect(),
            commands: commands.iter().map(|&command| command.to_owned()).collect(),
            sources,
        }
    }

    /// Where, when and how, for the line below a table.
    pub fn caption(&self) -> String {
        let Self { cpu_model, cores, kernel, commit, date, .. } = self;
        format!("{cpu_model}, {cores} cores, Linux {kernel}; {date}, commit {commit}")
    }
}

impl Data {
    /// The rows that commands wrote as `lines`, without what the header says of all of them.
    pub fn of(header: Header, lines: &str, path: &Path) -> Result<Self, Error> {
        let mut rows = Vec::new();
        for (number, line) in lines.lines().enumerate() {
            let mut row: Row = parse(path, number + 1, line)?;
            for field in ["cpu_model", "cores", "kernel", "commit"] {
                row.remove(field);
            }
            rows.push(row);
        }
        Ok(Self { header, rows })
    }

    /// Reads the figure called `name` from `path`.
    pub fn read(path: &Path, name: &str) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::File { path: path.to_path_buf(), source })?;
        let bad = |line, what: String| Error::Line { path: path.to_path_buf(), line, what };
        let mut lines = text.lines().enumerate();
        let Some((_, first)) = lines.next() else {
            return Err(bad(1, "the file is empty; measure the figure again".to_owned()));
        };
        let header: Header = parse(path, 1, first)?;
        if header.version != VERSION || header.figure != name {
            let Header { version, figure, .. } = header;
            let found = format!("the header of version {version} of the figure {figure}");
            return Err(bad(1, format!("{found}; expected version {VERSION} of {name}")));
        }
        let rows: Vec<Row> =
            lines.map(|(number, line)| parse(path, number + 1, line)).collect::<Result<_, _>>()?;
        match rows.is_empty() {
            true => Err(bad(2, "the figure has no row; measure it again".to_owned())),
            false => Ok(Self { header, rows }),
        }
    }

    /// Writes the figure to `path`.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut text = line(&self.header);
        self.rows.iter().for_each(|row| text += &line(row));
        report::write(path, &text)
    }
}

fn line(value: &impl Serialize) -> String {
    // Text, numbers and maps with text as keys: JSON can say all of it.
    serde_json::to_value(value).unwrap_or(Value::Null).to_string() + "\n"
}

fn parse<T: for<'text> Deserialize<'text>>(
    path: &Path,
    number: usize,
    line: &str,
) -> Result<T, Error> {
    serde_json::from_str(line).map_err(|error| Error::Line {
        path: path.to_path_buf(),
        line: number,
        what: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Data, Header};

    #[test]
    fn a_figure_is_read_as_it_was_written_and_damage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.jsonl");
        let sources = BTreeMap::from([("crates/core".to_owned(), "abc".to_owned())]);
        let header = Header::now("f", "123", &["costs"], sources);
        assert_eq!(header.date.len(), 10, "{}", header.date);
        let data = Data::of(header, "{\"a\":1,\"cores\":2}\n{\"a\":2}\n", &path).unwrap();
        assert_eq!(data.rows[0].len(), 1, "{:?}", data.rows[0]);
        data.write(&path).unwrap();
        assert_eq!(Data::read(&path, "f").unwrap(), data);

        let text = std::fs::read_to_string(&path).unwrap();
        for (text, says) in [
            (String::new(), "line 1: the file is empty"),
            (text.replace("\"version\":1", "\"version\":9"), "expected version 1 of f"),
            (text.replace("\"figure\":\"f\"", "\"figure\":\"g\""), "of the figure g; expected"),
            (text.lines().next().unwrap().to_owned(), "line 2: the figure has no row"),
            (text.replace("{\"a\":2}", "{\"a\":"), "line 3: EOF"),
        ] {
            std::fs::write(&path, text).unwrap();
            let refused = Data::read(&path, "f").unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }
}
