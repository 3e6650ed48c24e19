//! Users: their rights, their passwords, and the file of users.

use crate::acl::{Acl, Denied, lines, load, new, rules, set_user};
use crate::commands::{CATALOG, find};

fn run(acl: &Acl, user: &str, words: &[&str]) -> Result<(), Denied> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let command = find(words[0]).unwrap();
    rules::check(&acl.user(user).unwrap(), &CATALOG, &command.spec, &words)
}

#[test]
fn a_user_may_do_what_its_rules_say() {
    let acl = new(&CATALOG);
    set_user(&acl, &CATALOG, "ann", &[b"on", b">secret", b"+get", b"+set", b"~a:*", b"%R~b:*"])
        .unwrap();
    assert_eq!(run(&acl, "ann", &["get", "a:1"]), Ok(()));
    assert_eq!(run(&acl, "ann", &["get", "b:1"]), Ok(()));
    assert_eq!(run(&acl, "ann", &["set", "a:1", "v"]), Ok(()));
    assert_eq!(run(&acl, "ann", &["set", "b:1", "v"]), Err(Denied::Key(1)));
    assert_eq!(run(&acl, "ann", &["get", "c"]), Err(Denied::Key(1)));
    assert_eq!(run(&acl, "ann", &["mset", "a:1", "v"]), Err(Denied::Command));
    assert!(acl.authenticate(b"ann", b"secret").is_some());
    assert!(acl.authenticate(b"ann", b"Secret").is_none());
    assert!(acl.authenticate(b"bob", b"secret").is_none());
    set_user(&acl, &CATALOG, "ann", &[b"off"]).unwrap();
    assert!(acl.authenticate(b"ann", b"secret").is_none());
}

#[test]
fn rules_are_set_all_or_none() {
    let acl = new(&CATALOG);
    let (rule, _) = set_user(&acl, &CATALOG, "ann", &[b"on", b"+get", b"+nosuch"]).unwrap_err();
    assert_eq!(rule, b"+nosuch");
    assert!(acl.user("ann").is_none());
}

#[test]
fn the_default_user_is_everyone_until_it_has_a_password() {
    let acl = new(&CATALOG);
    assert!(!acl.needs_password());
    acl.set_default_password(b"secret");
    assert!(acl.needs_password());
    assert!(acl.authenticate(b"default", b"secret").is_some());
    assert!(acl.default_user().is_unrestricted());
    acl.set_default_password(b"");
    assert!(!acl.needs_password());
}

#[test]
fn users_come_back_from_a_file() {
    let acl = new(&CATALOG);
    set_user(&acl, &CATALOG, "ann", &[b"on", b">secret", b"+@read", b"-get", b"~a:*", b"&c"])
        .unwrap();
    set_user(&acl, &CATALOG, "bob", &[b"nopass", b"allcommands", b"allkeys", b"-@dangerous"])
        .unwrap();
    let saved = lines(&acl);
    let again = new(&CATALOG);
    load(&again, &CATALOG, &saved.join("\n")).unwrap();
    assert_eq!(lines(&again), saved);
    let held = again.user("ann").unwrap();
    let error = load(&again, &CATALOG, "user carol on\nuser carol off\nnobody\nuser dan +nosuch")
        .unwrap_err();
    assert!(
        error.contains("2: duplicate") && error.contains("3: ") && error.contains("4: +nosuch")
    );
    assert_eq!(lines(&again), saved, "a wrong file changes nothing");
    load(&again, &CATALOG, "user bob on nopass").unwrap();
    assert!(again.user("ann").is_none());
    let get = find(b"get").unwrap();
    assert_eq!(rules::check(&held, &CATALOG, &get.spec, &[b"get", b"a:1"]), Err(Denied::Command));
}
