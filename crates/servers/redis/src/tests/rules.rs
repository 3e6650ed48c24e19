//! Rules and their effects.

use pando_net::access::hash;

use crate::acl::Rules;
use crate::acl::rules::{apply, describe, everything};
use crate::commands::CATALOG;

fn described(words: &[&str]) -> String {
    let mut rules = Rules::default();
    for word in words {
        apply(&mut rules, &CATALOG, word.as_bytes()).unwrap();
    }
    describe(&rules)
}

#[test]
fn rules_are_described_as_they_are_said() {
    assert_eq!(describe(&everything(&CATALOG)), "on nopass ~* &* +@all");
    for (words, text) in [
        (&[][..], "off resetchannels -@all"),
        (&["on", "nopass", "allcommands"], "on nopass resetchannels +@all"),
        (&["%RW~a", "%W~b", "%R~c", "&x"], "off ~a %W~b %R~c resetchannels &x -@all"),
        (&["+select|0", "+SELECT|A", "+select|0"], "off resetchannels -@all +select|0 +select|A"),
        (&["+select|0", "+select"], "off resetchannels -@all +select"),
        (&["+select", "+select|0"], "off resetchannels -@all +select"),
        (&["+@connection", "+select|0"], "off resetchannels -@all +@connection"),
        (&["+get", "-get", "+get"], "off resetchannels -@all +get"),
        (&["+@all", "-set", "+@all"], "off resetchannels +@all"),
        (&["+get", "reset"], "off sanitize-payload resetchannels -@all"),
    ] {
        assert_eq!(described(words), text, "{words:?}");
    }
}

#[test]
fn wrong_rules_are_refused() {
    for word in [
        "foo",
        "+nosuch",
        "+@nosuch",
        "-select|0",
        "+select|",
        "+select|0|1",
        "+config|get|x",
        "+config|nosuch",
        "%~a",
        "%X~a",
        "~a b",
        "#abc",
        "<no",
        "(",
    ] {
        assert!(apply(&mut Rules::default(), &CATALOG, word.as_bytes()).is_err(), "{word}");
    }
    let mut rules = everything(&CATALOG);
    assert!(
        apply(&mut rules, &CATALOG, b"~x").is_err() && apply(&mut rules, &CATALOG, b"&x").is_err()
    );
}

#[test]
fn passwords_are_hashed() {
    let mut rules = Rules::default();
    for word in ["on", ">p1"] {
        apply(&mut rules, &CATALOG, word.as_bytes()).unwrap();
    }
    let known = "f64551fcd6f07823cb87971cfb91446425da18286b3ab1ef935e0cbd7a69f68a";
    assert_eq!(rules.passwords.hashes(), [known]);
    assert!(rules.admits(&hash(b"p1")) && !rules.admits(&hash(b"p2")));
    apply(&mut rules, &CATALOG, b"<p1").unwrap();
    assert!(!rules.admits(&hash(b"p1")));
}
