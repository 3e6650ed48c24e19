//! A slice of `powercut`: a cut in each mode, and the refusal of a pool that is not on persistent
//! memory. Where the machine cannot be had it is skipped, and says why (`--nocapture` shows it).

use std::process::Command;

#[test]
fn a_power_cut_in_each_mode_loses_nothing_acknowledged() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando-crashlab"));
    let output = command.args(["powercut", "--cycles", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("skipped") || said.matches("power cuts").count() == 2, "{said}");
    println!("{said}");
}
