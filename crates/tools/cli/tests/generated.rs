//! Completions and man pages.

mod common;

use common::Folder;

#[test]
fn each_shell_has_completions() {
    let folder = Folder::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = folder.ok(&["completions", shell]);
        assert!(script.contains("rename") && script.contains("keys-only"), "{shell}");
    }
    folder.fails(2, &["completions", "csh"]);
}

#[test]
fn each_command_has_a_man_page() {
    let folder = Folder::new();
    assert!(folder.ok(&["man"]).contains(".TH"));
    folder.ok(&["man", "pages"]);
    for page in ["pando", "pando-load", "pando-serve", "pando-maps-rename", "pando-log-verify"] {
        let page = std::fs::read_to_string(folder.path(&format!("pages/{page}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(!folder.path("pages/pando-tour-writer.1").exists());
    // The text of a command has more than its first line.
    let load = std::fs::read_to_string(folder.path("pages/pando-load.1")).unwrap();
    assert!(load.contains("After a kill"), "{load}");
    let nowhere = folder.fails(3, &["man", "no/such"]);
    assert!(nowhere.contains("cannot create no/such"), "{nowhere}");
}
