//! A slice of `kill`: each phase once or more.

use std::path::Path;
use std::process::Command;

#[test]
fn kills_in_every_phase_lose_nothing_acknowledged() {
    let own = env!("CARGO_BIN_EXE_pando-crashlab");
    let mut command = Command::new(own);
    command.args(["kill", "--count", "30"]);
    // A build of the whole workspace includes the command. Otherwise the verb builds it.
    let pando = Path::new(own).with_file_name("pando");
    if pando.exists() {
        command.env("PANDO", pando);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for phase in ["create", "grow", "write", "recover", "close", "catalog", "load"] {
        assert!(said.contains(phase), "no kill in phase {phase}: {said}");
    }
    assert!(!said.contains("; 0 acknowledged transactions"), "{said}");
    println!("{said}");
}
