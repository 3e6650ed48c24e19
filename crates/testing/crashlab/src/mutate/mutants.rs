//! Mutants: deliberate bugs in the sources. One build contains all of them, and a process has one.
//!
//! [`mutant!`](pando_pmem::mutant) marks the place of each mutant. `mutants.txt` lists all of them,
//! with the trials or the test that must find each. Their build uses the folder `target/mutants`.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pando_pmem::mutants::VARIABLE;

use super::source::root;
use crate::failure::Failure;
use crate::progress;

/// The list of mutants.
const TEXT: &str = include_str!("mutants.txt");

/// How much longer than its time limit a program with a mutant may run.
const PATIENCE: Duration = Duration::from_secs(60);

/// One mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// A description.
    pub what: &'static str,
    /// The trials or the test that must find it.
    hunter: Hunter,
}

/// The trials or the test that must find a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hunter {
    /// Trials: of this subject, and of its scenario and domain if named; `None`: all trials.
    Trials(Option<&'static str>),
    /// The test program of a package.
    Test { package: &'static str, program: &'static str },
}

/// All mutants, in order.
pub fn mutants() -> Result<Vec<Mutant>, String> {
    let is_text = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines: Vec<&'static str> = TEXT.lines().filter(is_text).collect();
    lines
        .chunks(2)
        .map(|entry| parse(entry).ok_or_else(|| format!("mutants.txt: not a mutant: {entry:?}")))
        .collect()
}

fn parse(entry: &[&'static str]) -> Option<Mutant> {
    let &[title, hunter] = entry else { return None };
    let (name, what) = title.split_once(": ")?;
    let hunter = match hunter.strip_prefix("    ")?.split_once(' ')? {
        ("every", "trial") => Hunter::Trials(None),
        ("trial", trial) => Hunter::Trials(Some(trial)),
        ("test", test) => {
            let (package, program) = test.split_once('/')?;
            Hunter::Test { package, program }
        }
        _ => return None,
    };
    Some(Mutant { name, what, hunter })
}

/// Builds the crash lab with the mutants; the path of the program.
fn build() -> Result<PathBuf, Failure> {
    cargo_succeeds(cargo("build").args(["-p", "pando-crashlab"]))?;
    Ok(target().join("release/pando-crashlab"))
}

fn target() -> PathBuf {
    root().join("target/mutants")
}

/// A call of cargo that builds with the mutants.
fn cargo(verb: &str) -> Command {
    let mut command = Command::new("cargo");
    command
        .args([verb, "--release", "--quiet", "--features", "pando-pmem/mutants"])
        .current_dir(root())
        .env("CARGO_TARGET_DIR", target())
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    command
}

fn cargo_succeeds(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| Failure::trouble("run cargo", error))?;
    if !status.success() {
        return Err(Failure::Trouble("the project does not compile with its mutants".into()));
    }
    Ok(())
}

/// Tries each mutant whose name contains `only`. Returns the verb that saw it and the fault, or
/// `None`.
pub fn hunt(only: &str, seed: u64, minutes: f64) -> Result<Vec<(Mutant, Option<String>)>, Failure> {
    let mut wanted = mutants().map_err(Failure::Trouble)?;
    wanted.retain(|mutant| mutant.name.contains(only));
    let limit = Duration::from_secs_f64(minutes * 60.0) + PATIENCE;
    println!("building the project with its mutants");
    let program = build()?;
    let bar = progress::bar(wanted.len() as u64);
    let mut verdicts = Vec::new();
    for mutant in wanted {
        bar.set_message(mutant.name);
        let mut seen = None;
        for (verb, mut command) in searches(&program, &mutant, seed, minutes)? {
            command.env(VARIABLE, mutant.name);
            let (is_success, said) = run(&mut command, limit)
                .map_err(|error| Failure::trouble("run the program with a mutant", error))?;
            if !is_success {
                let line = said.lines().find(|line| line.starts_with("pando-crashlab: "));
                let line = line.unwrap_or("it died").trim_start_matches("pando-crashlab: ");
                seen = Some(format!("{verb}: {}", super::sites::gist(line)));
                break;
            }
        }
        bar.inc(1);
        verdicts.push((mutant, seen));
    }
    bar.finish_and_clear();
    Ok(verdicts)
}

/// The commands that must find a mutant: two verbs of the program, half of `minutes` each, or a
/// test, which is compiled here.
fn searches(
    program: &Path,
    mutant: &Mutant,
    seed: u64,
    minutes: f64,
) -> Result<Vec<(&'static str, Command)>, Failure> {
    let trial = match mutant.hunter {
        Hunter::Trials(trial) => trial,
        Hunter::Test { package, program } => {
            let of_library = ["-p", package, "--lib"];
            let of_program = ["-p", package, "--test", program];
            let named = if program == "lib" { &of_library[..] } else { &of_program[..] };
            cargo_succeeds(cargo("test").arg("--no-run").args(named))?;
            let mut command = cargo("test");
            command.args(named);
            return Ok(vec![(program, command)]);
        }
    };
    let selection: Vec<&str> = ["--index", "--scenario", "--domain"]
        .into_iter()
        .zip(trial.into_iter().flat_map(|trial| trial.split('/')))
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

/// Runs the program: whether it succeeded, and its standard error. A mutant may let the program run
/// endlessly outside the steps that are counted. So after `limit` it is killed, with all processes
/// that it has started: one of them would keep the pipe open.
fn run(command: &mut Command, limit: Duration) -> std::io::Result<(bool, String)> {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let pipe = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        // After a failure, the part that was read is enough for a report.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut said));
        String::from_utf8_lossy(&said).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > limit {
            let group = format!("-{}", child.id());
            Command::new("kill").args(["-KILL", "--", &group]).status()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = reader.join().unwrap_or_default();
    Ok(match status {
        Some(status) => (status.success(), said),
        None => (false, "pando-crashlab: it did not end in time".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::all_sources;
    use super::*;

    #[test]
    fn what_does_not_end_is_killed_with_its_children() {
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]);
        let (is_success, said) = run(&mut command, Duration::from_millis(50)).expect("runs");
        assert!(!is_success && said.contains("did not end in time"), "{said}");
        assert!(start.elapsed() < Duration::from_secs(300), "it waited for the child's child");
    }

    /// The names at all `mutant!("name")` of the sources, sorted.
    fn names_in_sources() -> Vec<String> {
        let mut names = Vec::new();
        for file in
            all_sources().iter().filter(|file| !file.starts_with("crates/testing/crashlab/"))
        {
            let text = std::fs::read_to_string(root().join(file)).expect("a source file");
            for (_, behind) in
                text.match_indices("mutant!(").map(|(at, call)| text.split_at(at + call.len()))
            {
                let name =
                    behind.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'));
                names.push(
                    name.unwrap_or_else(|| panic!("{file}: a mutant without a name")).0.to_owned(),
                );
            }
        }
        names.sort();
        names
    }

    #[test]
    fn every_mutant_of_the_list_is_once_in_the_sources_and_no_other() {
        let mut listed: Vec<String> =
            mutants().expect("well-formed").iter().map(|mutant| mutant.name.to_owned()).collect();
        listed.sort();
        assert!(listed.len() >= 20);
        assert_eq!(listed, names_in_sources());
    }

    #[test]
    fn what_hunts_a_mutant_is_read() {
        let hunter = |line| parse(&["name: what it is", line]).map(|mutant| mutant.hunter);
        assert_eq!(hunter("    every trial"), Some(Hunter::Trials(None)));
        assert_eq!(
            hunter("    trial bztree/insert/adr"),
            Some(Hunter::Trials(Some("bztree/insert/adr")))
        );
        let test = Hunter::Test { package: "pando-kv", program: "corruption" };
        assert_eq!(hunter("    test pando-kv/corruption"), Some(test));
        assert_eq!(hunter("    test pando-kv"), None);
        assert_eq!(hunter("    some other text"), None);
    }
}
