//! The header, the library and the examples, by the C compilers of the machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shared library, which cargo has built beside this test.
fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libpando_c.so");
    assert!(path.exists(), "there is no {}", path.display());
    path
}

/// Runs a command that must succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// The compilers of a language that are there. `cc` always must be; with `PANDO_REQUIRE` all must.
fn compilers(names: [&'static str; 2]) -> Vec<&'static str> {
    let is_required = std::env::var_os("PANDO_REQUIRE").is_some();
    let is_there = |name: &&str| {
        let found = Command::new(name).arg("--version").output().is_ok();
        assert!(found || !(is_required || *name == "cc"), "there is no {name}");
        if !found {
            eprintln!("skipped: there is no {name}");
        }
        found
    };
    names.into_iter().filter(is_there).collect()
}

const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];

/// Compiles a program against the header and the library.
fn compile(compiler: &str, standard: &str, source: &Path, folder: &Path) -> PathBuf {
    let program = folder.join("program");
    // The name that it has where it is installed.
    let installed = folder.join("libpando.so");
    if !installed.exists() {
        std::os::unix::fs::symlink(library(), installed).unwrap();
    }
    run(Command::new(compiler)
        .args([standard, "-g", "-D_POSIX_C_SOURCE=200809L"])
        .args(STRICT)
        .arg("-I")
        .arg(root().join("include"))
        .arg(source)
        .arg("-L")
        .arg(folder)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(["-lpando", "-o"])
        .arg(&program));
    program
}

fn runs(compiler: &str, standard: &str, source: &str) {
    let folder = TempDir::new().unwrap();
    let program = compile(compiler, standard, &root().join(source), folder.path());
    run(Command::new(program).arg(folder.path()));
}

#[test]
fn the_header_compiles_alone_without_warnings() {
    let folder = TempDir::new().unwrap();
    let languages = [
        (["cc", "clang"], "c", ["c99", "c11", "c2x"], "pando.h"),
        (["c++", "clang++"], "cpp", ["c++17", "c++20", "c++2b"], "pando.hpp"),
    ];
    for (names, ending, standards, header) in languages {
        let source = folder.path().join(format!("alone.{ending}"));
        fs::write(&source, format!("#include \"{header}\"\n")).unwrap();
        for compiler in compilers(names) {
            for standard in standards {
                run(Command::new(compiler)
                    .args([&format!("-std={standard}"), "-fsyntax-only"])
                    .args(STRICT)
                    .arg("-I")
                    .arg(root().join("include"))
                    .arg(&source));
            }
        }
    }
}

#[test]
fn the_examples_run() {
    for compiler in compilers(["cc", "clang"]) {
        runs(compiler, "-std=c99", "examples/words.c");
        runs(compiler, "-std=c99", "examples/accounts.c");
    }
    for compiler in compilers(["c++", "clang++"]) {
        runs(compiler, "-std=c++17", "examples/words.cpp");
    }
}

/// The keys of the test vectors that all languages share, by the functions of the example.
#[test]
fn typed_keys_of_c_have_the_bytes_of_the_test_vectors() {
    let vectors = root().join("../../crates/pando/tests/fixtures/typed-keys.tsv");
    for compiler in compilers(["cc", "clang"]) {
        let folder = TempDir::new().unwrap();
        let source = root().join("examples/keys.c");
        let program = compile(compiler, "-std=c99", &source, folder.path());
        let printed = run(Command::new(program).arg(folder.path()).arg(&vectors));
        assert!(printed.contains(" keys, 4 refused"), "{printed}");
    }
}

#[test]
fn the_program_of_the_page_runs() {
    let page = fs::read_to_string(root().join("../../docs/c.md")).unwrap();
    let program = page.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("words.c");
    fs::write(&source, program).unwrap();
    let program = compile("cc", "-std=c99", &source, folder.path());
    // The second time the pool is there.
    for _ in 0..2 {
        let printed = run(Command::new(&program).current_dir(folder.path()));
        assert_eq!(printed, "one organism, many trees\n".repeat(2));
    }
}

#[test]
fn wrong_handles_null_double_frees_and_forks_are_errors() {
    runs("cc", "-std=c99", "tests/misuse.c");
}

#[test]
fn a_child_of_a_fork_waits_for_no_thread_of_its_parent() {
    let folder = TempDir::new().unwrap();
    let program = compile("cc", "-std=c99", &root().join("tests/forks.c"), folder.path());
    // One run sees a wait about every second time.
    for _ in 0..5 {
        run(&mut Command::new(&program));
    }
}

#[test]
fn a_store_on_a_full_file_system_has_the_code_of_no_room() {
    let folder = TempDir::new().unwrap();
    let program = compile("cc", "-std=c99", &root().join("tests/full.c"), folder.path());
    let mounted = |command: &Path| {
        let mut run = Command::new("unshare");
        let mount = "mount -t tmpfs -o size=64m tmpfs \"$1\"; \"$2\" \"$1\"";
        run.args(["-rm", "sh", "-ec", mount, "sh"]).arg(folder.path().join("disk")).arg(command);
        run
    };
    fs::create_dir(folder.path().join("disk")).unwrap();
    if !mounted(Path::new("true")).status().is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("PANDO_REQUIRE").is_none(), "this user may not mount");
        eprintln!("skipped: this user may not mount a file system");
        return;
    }
    run(&mut mounted(&program));
}

/// The functions that the header declares.
fn functions() -> Vec<String> {
    let header = fs::read_to_string(root().join("include/pando.h")).unwrap();
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let mut found = Vec::new();
    for line in header.lines().filter(|line| !line.trim_start().starts_with(['*', '/', '#', ' '])) {
        let Some((before, _)) = line.split_once('(') else { continue };
        let name: String = before.chars().rev().take_while(|letter| is_name(*letter)).collect();
        let name: String = name.chars().rev().collect();
        if name.starts_with("pando_") {
            found.push(name);
        }
    }
    assert!(found.len() > 70, "only {} functions are seen", found.len());
    found
}

#[test]
fn an_example_calls_each_function() {
    let read = |name: &str| fs::read_to_string(root().join("examples").join(name)).unwrap();
    let examples = read("words.c") + &read("accounts.c");
    let missing: Vec<_> =
        functions().into_iter().filter(|name| !examples.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "no example calls {missing:?}");
}

/// The functions of the header, and no other, are the symbols of the library.
#[test]
fn the_library_exports_the_functions_of_the_header() {
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let mut exported: Vec<_> =
        symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    let mut declared = functions();
    declared.sort_unstable();
    assert_eq!(exported, declared);
}
