//! `bench figures`: measures the figures of the documents, writes their tables and plots, and
//! checks that they were not edited by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, Subcommand};

use super::catalog::{Figure, figure};
use super::checkout::{Checkout, FOLDER};
use super::data::{Data, Header};
use super::page;
use crate::error::{Error, Failure};
use crate::page::plots;
use crate::report;

/// Arguments of `figures`.
#[derive(Args, Debug)]
pub struct FiguresArgs {
    /// What to do
    #[command(subcommand)]
    pub command: FiguresCommand,
    /// Folder in the git checkout whose documents are used
    #[arg(long, value_name = "FOLDER", default_value = ".", global = true)]
    pub checkout: PathBuf,
}

/// What to do with figures.
#[derive(Debug, Subcommand)]
pub enum FiguresCommand {
    /// Run the commands of these figures, store their rows, and write tables and plots
    Measure {
        /// Figures; `check` lists those that are older than the code
        #[arg(required = true, value_delimiter = ',', value_parser = figure)]
        figures: Vec<&'static Figure>,
    },
    /// Write the tables and plots of all figures from their data
    Write,
    /// Fail if a table or a plot differs from its data or has no data; list the figures that are
    /// older than the code
    Check,
}

/// Does what `args` ask for; `prefix` is what stands before the arguments when this program runs
/// itself.
pub fn run(args: &FiguresArgs, prefix: &[&str]) -> Result<(), Failure> {
    let folder = &args.checkout;
    let folder =
        folder.canonicalize().map_err(|source| Error::File { path: folder.clone(), source })?;
    let checkout = Checkout::around(&folder)?;
    match &args.command {
        FiguresCommand::Measure { figures } => {
            for figure in figures {
                measure(&checkout, figure, prefix)?;
            }
            write(&checkout)
        }
        FiguresCommand::Write => write(&checkout),
        FiguresCommand::Check => check(&checkout),
    }
}

/// Runs the figure's commands one after the other, and keeps their rows.
fn measure(checkout: &Checkout, figure: &Figure, prefix: &[&str]) -> Result<(), Failure> {
    let (commit, sources) = sources_of(checkout, figure)?;
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("rows.jsonl");
    let mut lines = String::new();
    for command in figure.commands {
        eprintln!("{}: {}", figure.name, shown(command));
        let status = Command::new(std::env::current_exe()?)
            .args(prefix)
            .args(command.split_whitespace())
            .arg("--json")
            .arg(&json)
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            let why = format!("the command of the figure {} failed: {command}", figure.name);
            return Err(Error::Usage(why).into());
        }
        lines += &std::fs::read_to_string(&json)
            .map_err(|source| Error::File { path: json.clone(), source })?;
    }
    let path = data_path(checkout, figure.name);
    let header = Header::now(figure.name, commit, figure.commands, sources);
    Ok(Data::of(header, &lines, &path)?.write(&path)?)
}

/// The commit that this program was built from, and the hashes of the figure's sources. An error
/// if the sources in the checkout are others.
fn sources_of(
    checkout: &Checkout,
    figure: &Figure,
) -> Result<(&'static str, BTreeMap<String, String>), Error> {
    let refused =
        |why: String| Error::Usage(format!("the figure {} cannot be measured: {why}", figure.name));
    let commit = option_env!("PANDO_BENCH_COMMIT")
        .ok_or_else(|| refused("this program was not built in a git checkout".to_owned()))?;
    let hashes = |commit| checkout.hashes(commit, figure.sources);
    let Some(built) = hashes(commit) else {
        return Err(refused(format!("git does not know the commit {commit} of this program")));
    };
    if hashes("HEAD").as_ref() != Some(&built) {
        let why = format!("this program is of commit {commit}, and the code has changed since");
        return Err(refused(format!("{why}; build it again")));
    }
    let changed = checkout.changed(figure.sources).unwrap_or_default();
    if !changed.is_empty() {
        let files = changed.join(", ");
        return Err(refused(format!("these files are not committed: {files}")));
    }
    let folders = figure.sources.iter().map(|&folder| folder.to_owned());
    Ok((commit, folders.zip(built).collect()))
}

/// Writes the tables into the pages, and the plots; nothing if a page names a figure that cannot be
/// shown, since its table would be lost.
fn write(checkout: &Checkout) -> Result<(), Failure> {
    let Generated { files, faults, .. } = generated(checkout)?;
    if !faults.is_empty() {
        return Err(Error::Usage(faults.join("\n")).into());
    }
    for (path, due) in files {
        let path = checkout.path(&path);
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&due) {
            report::write(&path, &due)?;
            println!("written: {}", path.display());
        }
    }
    Ok(())
}

/// Compares all that is generated with what is there.
fn check(checkout: &Checkout) -> Result<(), Failure> {
    let Generated { files, shown, mut faults } = generated(checkout)?;
    for (path, due) in &files {
        if std::fs::read_to_string(checkout.path(path)).ok().as_ref() != Some(due) {
            faults.push(format!("{path} is not what the data says; run `bench figures write`"));
        }
        if path.ends_with(".md") {
            let by_hand = page::tables_without_data(due);
            faults.extend(by_hand.iter().map(|line| {
                format!("{path}, line {line}: a table has measured numbers and no data")
            }));
        }
    }
    for name in files_of_figures(checkout)? {
        let is_known = name.split_once('.').is_some_and(|(name, _)| shown.contains(name));
        if !is_known {
            faults.push(format!("{FOLDER}/{name} is of no figure that a page shows"));
        }
    }
    for name in &shown {
        if let Ok(old) = changed_since(checkout, name) {
            println!("{name}: {old}");
        }
    }
    match faults.is_empty() {
        true => {
            println!("{} figures are what their data says", shown.len());
            Ok(())
        }
        false => Err(Error::Usage(faults.join("\n")).into()),
    }
}

/// What is made from the data.
struct Generated {
    /// Pages and plots: paths from the root, and what they should hold.
    files: Vec<(String, String)>,
    /// The figures that pages show.
    shown: BTreeSet<String>,
    /// Figures that a page names and that cannot be shown.
    faults: Vec<String>,
}

fn generated(checkout: &Checkout) -> Result<Generated, Failure> {
    let mut found = Generated { files: Vec::new(), shown: BTreeSet::new(), faults: Vec::new() };
    let pages = checkout.pages()?;
    for path in pages {
        let file = checkout.path(&path);
        let text = std::fs::read_to_string(&file)
            .map_err(|source| Error::File { path: file.clone(), source })?;
        let show = |name: &str| -> Result<String, Failure> {
            match shown_figure(checkout, name, &path) {
                Ok((table, plot)) => {
                    if found.shown.insert(name.to_owned()) {
                        found.files.push((format!("{FOLDER}/{name}.svg"), plot));
                    }
                    Ok(table)
                }
                Err(why) => {
                    found.faults.push(format!("{path}: the figure {name}: {why}"));
                    Ok(String::new())
                }
            }
        };
        let new = page::filled(&text, show).map_err(|why| format!("{path}, {why}"))?;
        found.files.push((path, new));
    }
    Ok(found)
}

/// The table with its caption, for the page at `page`, and the plot.
fn shown_figure(checkout: &Checkout, name: &str, page: &str) -> Result<(String, String), Failure> {
    let figure = figure(name)?;
    let path = data_path(checkout, name);
    let Data { header, rows } = Data::read(&path, name)?;
    let above = page.matches('/').count();
    let folder = match page.strip_prefix("docs/") {
        Some(_) => format!("{}figures", "../".repeat(above - 1)),
        None => FOLDER.to_owned(),
    };
    let mut table = format!("{}\n\n{}\n", wrapped(figure.about), figure.table.markdown(&rows)?);
    let files = format!("([plot]({folder}/{name}.svg), [data]({folder}/{name}.jsonl)):");
    table += &format!("{}\n{files}\n\n", wrapped(&header.caption()));
    for command in &header.commands {
        table += &format!("    {}\n", shown(command));
    }
    Ok((table, plots::sheet(&figure.table.plots(&rows)?)?))
}

/// Longest line of prose.
const COLUMNS: usize = 100;

fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        let is_full = width + 1 + length > COLUMNS;
        out += match (width, is_full) {
            (0, _) => "",
            (_, true) => "\n",
            (_, false) => " ",
        };
        width = if is_full || width == 0 { length } else { width + 1 + length };
        out += word;
    }
    out
}

/// A figure's command as a reader types it.
fn shown(command: &str) -> String {
    let words: Vec<_> = command.split_whitespace().collect();
    let mut features: Vec<_> = words
        .iter()
        .flat_map(|word| word.split(','))
        .filter_map(|system| system.split(':').next())
        .filter(|name| PEERS_OF_FEATURES.contains(name))
        .collect();
    features.sort_unstable();
    features.dedup();
    let features = match features.as_slice() {
        [] => String::new(),
        features => format!("--features {} ", features.join(",")),
    };
    format!("cargo run --release {features}-- bench {}", words.join(" "))
}

/// The systems that only a build with the feature of that name has.
const PEERS_OF_FEATURES: [&str; 3] = ["berkeleydb", "lmdb", "rocksdb"];

fn data_path(checkout: &Checkout, name: &str) -> PathBuf {
    checkout.path(FOLDER).join(format!("{name}.jsonl"))
}

fn files_of_figures(checkout: &Checkout) -> Result<Vec<String>, Error> {
    let folder = checkout.path(FOLDER);
    let failed = |source| Error::File { path: folder.clone(), source };
    let names = std::fs::read_dir(&folder).map_err(failed)?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<Result<Vec<_>, std::io::Error>>().map_err(failed)?;
    Ok(names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect())
}

/// Which sources have changed since the figure was measured.
fn changed_since(checkout: &Checkout, name: &str) -> Result<String, Failure> {
    let Header { sources, commit, commands, .. } =
        Data::read(Path::new(&data_path(checkout, name)), name)?.header;
    let figure = figure(name)?;
    let now = checkout.hashes("HEAD", figure.sources).ok_or("git does not know the sources")?;
    // A folder that the header lacks was not a source of the figure when it was measured.
    let mut changed: Vec<_> = figure
        .sources
        .iter()
        .zip(&now)
        .filter(|(folder, now)| sources.get(**folder) != Some(*now))
        .map(|(folder, _)| *folder)
        .collect();
    if !figure.commands.iter().eq(&commands) {
        changed.push("its command");
    }
    match changed.is_empty() {
        true => Err("nothing has changed".into()),
        false => Ok(format!("measured at commit {commit}; changed since: {}", changed.join(", "))),
    }
}
