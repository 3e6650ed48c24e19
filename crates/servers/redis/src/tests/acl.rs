//! Users: what they may do, their passwords, and the file that keeps them.

use crate::acl::Acl;
use crate::acl::rules::Denied;
use crate::commands::{CATALOG, find};

fn run(acl: &Acl, user: &str, words: &[&str]) -> Result<(), Denied> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let command = find(words[0]).unwrap();
    acl.user(user).unwrap().check(&command.spec, &words)
}

#[test]
fn a_user_may_do_what_its_rules_say() {
    let acl = Acl::new(&CATALOG);
    acl.set_user("ann", &[b"on", b">secret", b"+get", b"+set", b"~a:*", b"%R~b:*"]).unwrap();
    assert_eq!(run(&acl, "ann", &["get", "a:1"]), Ok(()));
    assert_eq!(run(&acl, "ann", &["get", "b:1"]), Ok(()));
    assert_eq!(run(&acl, "ann", &["set", "a:1", "v"]), Ok(()));
    assert_eq!(run(&acl, "ann", &["set", "b:1", "v"]), Err(Denied::Key(1)));
    assert_eq!(run(&acl, "ann", &["get", "c"]), Err(Denied::Key(1)));
    assert_eq!(run(&acl, "ann", &["mset", "a:1", "v"]), Err(Denied::Command));
    assert!(acl.authenticate(b"ann", b"secret").is_some());
    assert!(acl.authenticate(b"ann", b"Secret").is_none());
    assert!(acl.authenticate(b"bob", b"secret").is_none());
    acl.set_user("ann", &[b"off"]).unwrap();
    assert!(acl.authenticate(b"ann", b"secret").is_none());
}

#[test]
fn rules_are_set_all_or_none() {
    let acl = Acl::new(&CATALOG);
    let (rule, _) = acl.set_user("ann", &[b"on", b"+get", b"+nosuch"]).unwrap_err();
    assert_eq!(rule, b"+nosuch");
    assert!(acl.user("ann").is_none());
}

#[test]
fn the_default_user_is_everyone_until_it_has_a_password() {
    let acl = Acl::new(&CATALOG);
    assert!(!acl.asks_for_password());
    acl.set_default_password(b"secret");
    assert!(acl.asks_for_password());
    assert!(acl.authenticate(b"default", b"secret").is_some());
    assert!(acl.default_user().is_unrestricted());
    acl.set_default_password(b"");
    assert!(!acl.asks_for_password());
}

#[test]
fn users_come_back_from_a_file() {
    let acl = Acl::new(&CATALOG);
    acl.set_user("ann", &[b"on", b">secret", b"+@read", b"-get", b"~a:*", b"&c"]).unwrap();
    acl.set_user("bob", &[b"nopass", b"allcommands", b"allkeys", b"-@dangerous"]).unwrap();
    let saved = acl.save();
    let again = Acl::new(&CATALOG);
    again.load(&saved).unwrap();
    assert_eq!(again.save(), saved);
    let held = again.user("ann").unwrap();
    let error = again.load("user carol on\nuser carol off\nnobody\nuser dan +nosuch").unwrap_err();
    assert!(
        error.contains("2: duplicate") && error.contains("3: ") && error.contains("4: +nosuch")
    );
    assert_eq!(again.save(), saved, "a wrong file changes nothing");
    again.load("user bob on nopass").unwrap();
    assert!(again.user("ann").is_none());
    let get = find(b"get").unwrap();
    assert_eq!(held.check(&get.spec, &[b"get", b"a:1"]), Err(Denied::Command));
}
