//! Bugs planted into a copy of the project, all in one build, each behind a switch of its own.
//!
//! The copy lies in `target/planted`. Its `pando-pmem` has one module more, which says which bug
//! this process has (`PANDO_PLANTED`, a number); nothing of that is in the project itself.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::progress;

/// The bugs, as a person reads them.
const TEXT: &str = include_str!("planted.txt");

/// What stands before the package and the test program that look for a bug that no trial sees.
const TEST: &str = "test:";

/// How much longer than it was told to a program with a bug may run.
const PATIENCE: Duration = Duration::from_secs(60);

/// One bug.
#[derive(Clone, Debug)]
pub struct Bug {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// The file that it is planted into, from the root of the project.
    pub file: &'static str,
    /// The subject that looks for it, perhaps its scenario, and its domain; all, if none is named. Or the package and the
    /// test program that do, behind [`TEST`].
    pub trial: Option<&'static str>,
    /// The text as it is.
    pub sound: &'static str,
    /// The text with the bug.
    pub planted: &'static str,
}

/// All bugs, in order.
pub fn bugs() -> Result<Vec<Bug>, String> {
    let parse = |block: &'static str| {
        let (title, rest) = block.split_once('\n')?;
        let (name, what) = title.split_once(": ")?;
        let (place, rest) = rest.split_once('\n')?;
        let (file, trial) = match place.split_once(' ') {
            Some((file, trial)) => (file, Some(trial)),
            None => (place, None),
        };
        let (sound, planted) = rest.split_once("\n->\n")?;
        Some(Bug { name, what, file, trial, sound, planted: planted.trim_end() })
    };
    let blocks = TEXT.split("\n== ").skip(1);
    blocks
        .map(|block| parse(block).ok_or_else(|| format!("no bug is described by: {block}")))
        .collect()
}

impl Bug {
    /// The package and the test program that look for it, if no trial does.
    fn test(&self) -> Option<(&'static str, &'static str)> {
        self.trial?.strip_prefix(TEST)?.split_once('/')
    }
}

/// The root of the project, from which this program was built.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of every file with all of its bugs; fails unless each sound text is there once.
pub fn plant(root: &Path, bugs: &[Bug]) -> Result<BTreeMap<&'static str, String>, String> {
    let mut files: BTreeMap<&'static str, String> = BTreeMap::new();
    for (number, bug) in bugs.iter().enumerate() {
        let read = || fs::read_to_string(root.join(bug.file));
        let text = match files.remove(bug.file) {
            Some(text) => text,
            None => read().map_err(|error| format!("{}: {error}", bug.file))?,
        };
        let times = text.matches(bug.sound).count();
        if times != 1 {
            let name = bug.name;
            return Err(format!(
                "{name}: its sound text is {times} times in {}, not once",
                bug.file
            ));
        }
        let home = if bug.file.starts_with("crates/pmem/") { "crate" } else { "pando_pmem" };
        let switch = format!("{home}::planted::on({number})");
        let planted = switched(bug.planted, &switch);
        files.insert(bug.file, text.replace(bug.sound, &planted));
    }
    Ok(files)
}

/// `text` with `switch` in place of each word `ON`; names like `CONTROL_BITS` stay.
fn switched(text: &str, switch: &str) -> String {
    let is_of_a_name =
        |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, word) in text.match_indices("ON") {
        let (before, behind) = (&text.as_bytes()[..at], &text.as_bytes()[at + word.len()..]);
        if !is_of_a_name(before.last()) && !is_of_a_name(behind.first()) {
            parts.push(&text[from..at]);
            from = at + word.len();
        }
    }
    parts.push(&text[from..]);
    parts.join(switch)
}

const SWITCH: &str = "//! Which bug this process has.\n\
    #![allow(missing_docs)]\n\
    use std::sync::LazyLock;\n\
    static BUG: LazyLock<Option<usize>> =\n\
    LazyLock::new(|| std::env::var(\"PANDO_PLANTED\").ok()?.parse().ok());\n\
    pub fn on(bug: usize) -> bool { *BUG == Some(bug) }\n";

/// Makes the copy and builds it; the program.
fn build(bugs: &[Bug]) -> Result<PathBuf, Failure> {
    let (root, home) = (root(), root().join("target/planted"));
    let trouble =
        |action: &'static str| move |error: std::io::Error| Failure::trouble(action, error);
    let source = home.join("source");
    copy(&root.join("crates"), &source.join("crates")).map_err(trouble("copy the project"))?;
    for file in ["Cargo.toml", "Cargo.lock"] {
        write_if_other(&source.join(file), &fs::read(root.join(file)).map_err(trouble("read"))?)
            .map_err(trouble("copy the project"))?;
    }
    let mut files = plant(&root, bugs).map_err(Failure::Trouble)?;
    let lib = root.join("crates/pmem/src/lib.rs");
    let lib = fs::read_to_string(lib).map_err(trouble("read the project"))?;
    files.insert("crates/pmem/src/lib.rs", format!("{lib}\npub mod planted;\n"));
    files.insert("crates/pmem/src/planted.rs", SWITCH.into());
    for (file, text) in &files {
        write_if_other(&source.join(file), text.as_bytes()).map_err(trouble("plant the bugs"))?;
    }
    cargo_succeeds(cargo("build").args(["-p", "pando-crashlab"]))?;
    Ok(home.join("target/release/pando-crashlab"))
}

/// A call of cargo in the copy.
fn cargo(verb: &str) -> Command {
    let home = root().join("target/planted");
    let mut command = Command::new("cargo");
    command
        .args([verb, "--release", "--quiet"])
        .current_dir(home.join("source"))
        .env("CARGO_TARGET_DIR", home.join("target"))
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("RUSTFLAGS", "--cap-lints allow");
    command
}

fn cargo_succeeds(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| Failure::trouble("run cargo", error))?;
    if !status.success() {
        return Err(Failure::Trouble("the project with its planted bugs does not build".into()));
    }
    Ok(())
}

/// Writes a file, unless it is the same already: cargo goes by the time of the change.
fn write_if_other(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}

/// Makes `to` hold what `from` does; the switch of the bugs stays.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(to).into_iter().flatten() {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() && entry.file_name() != "planted.rs" {
            let path = entry.path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }?;
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if !to.join(entry.file_name()).ends_with("planted.rs") || from.ends_with("mutate") {
            write_if_other(&target, &fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Plants each bug whose name contains `only`, and lets the trials look for it: what saw it, or
/// `None`.
pub fn hunt(only: &str, seed: u64, minutes: f64) -> Result<Vec<(Bug, Option<String>)>, Failure> {
    let all = bugs().map_err(Failure::Trouble)?;
    println!("building the project with {} planted bugs", all.len());
    let program = build(&all)?;
    let wanted: Vec<(usize, Bug)> =
        all.into_iter().enumerate().filter(|(_, bug)| bug.name.contains(only)).collect();
    let bar = progress::bar(wanted.len() as u64);
    let mut verdicts = Vec::new();
    for (number, bug) in wanted {
        bar.set_message(bug.name);
        let mut seen = None;
        for (verb, mut command) in searches(&program, &bug, seed, minutes)? {
            command.env("PANDO_PLANTED", number.to_string());
            let (is_success, said) = run(&mut command, minutes)
                .map_err(|error| Failure::trouble("run the program with a bug", error))?;
            if !is_success {
                let line = said.lines().find(|line| line.starts_with("pando-crashlab: "));
                let line = line.unwrap_or("it died").trim_start_matches("pando-crashlab: ");
                seen = Some(format!("{verb}: {}", super::sites::gist(line)));
                break;
            }
        }
        bar.inc(1);
        verdicts.push((bug, seen));
    }
    bar.finish_and_clear();
    Ok(verdicts)
}

/// What looks for a bug: two verbs of the program, half of `minutes` each, or a test, which is built here.
fn searches(
    program: &Path,
    bug: &Bug,
    seed: u64,
    minutes: f64,
) -> Result<Vec<(&'static str, Command)>, Failure> {
    if let Some((package, test)) = bug.test() {
        let named = ["-p", package, "--test", test];
        cargo_succeeds(cargo("test").arg("--no-run").args(named))?;
        let mut command = cargo("test");
        command.args(named);
        return Ok(vec![(test, command)]);
    }
    let trial = bug.trial.into_iter().flat_map(|trial| trial.split('/'));
    let selection: Vec<&str> = ["--index", "--scenario", "--domain"]
        .into_iter()
        .zip(trial)
        .flat_map(<[&str; 2]>::from)
        .collect();
    let search = |verb| {
        let mut command = Command::new(program);
        command.arg(verb).args(["--seed", &seed.to_string()]);
        command.args(["--minutes", &(minutes / 2.0).to_string()]);
        command.args(&selection);
        (verb, command)
    };
    Ok(["schedule", "explore"].map(search).into())
}

/// Runs the program, which is to take half of `minutes`, to its end: whether it succeeded, and what
/// it wrote to standard error. A bug may keep it from coming to an end, before there are steps to
/// be counted; then it is killed.
fn run(command: &mut Command, minutes: f64) -> std::io::Result<(bool, String)> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let pipe = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        // What was read before a failure is good enough for a report.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut said));
        String::from_utf8_lossy(&said).into_owned()
    });
    let start = Instant::now();
    let limit = Duration::from_secs_f64(minutes * 60.0) + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = reader.join().unwrap_or_default();
    Ok(match status {
        Some(status) => (status.success(), said),
        None => (false, "pando-crashlab: it did not come to an end".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_is_a_switch() {
        let planted = switched("if ON { old } else { new & !CONTROL_BITS } && !ON", "on(1)");
        assert_eq!(planted, "if on(1) { old } else { new & !CONTROL_BITS } && !on(1)");
    }

    #[test]
    fn every_bug_finds_its_place_in_the_project() {
        let bugs = bugs().expect("well-formed");
        assert!(bugs.len() >= 20);
        plant(&root(), &bugs).expect("each sound text is there once");
    }
}
