//! The table of commands against Redis's own. For each command that Redis also has, the arity, the
//! flags, the categories and the keys must be equal.

use std::collections::BTreeMap;

use crate::common::oracle::Oracle;
use crate::common::wire::Value;

/// Arity, flags, key places and categories of a command, as text.
fn table(value: &Value, into: &mut BTreeMap<String, String>) {
    for command in value.values() {
        let fields = command.values();
        let text = |value: &Value| String::from_utf8_lossy(value.bytes()).into_owned();
        let words = |value: &Value| {
            let mut words: Vec<String> = value.values().iter().map(text).collect();
            words.sort();
            words.join(" ")
        };
        let number = |at: usize| fields[at].number().expect("a number");
        let line = format!(
            "arity {}; {}; keys {} {} {}; {}",
            number(1),
            words(&fields[2]),
            number(3),
            number(4),
            number(5),
            words(&fields[6])
        );
        into.insert(text(&fields[0]), line);
        table(&fields[9], into);
    }
}

#[test]
fn every_command_is_as_redis_has_it() {
    let mut oracle = Oracle::start();
    let [ours, theirs] = oracle.clients();
    let (mut mine, mut redis) = (BTreeMap::new(), BTreeMap::new());
    table(&ours.say("COMMAND"), &mut mine);
    table(&theirs.say("COMMAND"), &mut redis);
    let mut differences = Vec::new();
    for (name, line) in &mine {
        match redis.get(name) {
            Some(theirs) if theirs != line => {
                differences.push(format!("{name}\n    Redis: {theirs}\n    ours:  {line}"));
            }
            _ => {}
        }
    }
    assert!(mine.len() > 60, "{} commands", mine.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// `docs/commands.md` uses this list for the missing commands.
#[test]
fn the_list_of_rediss_commands_is_whole() {
    let mut oracle = Oracle::start();
    let [_, theirs] = oracle.clients();
    let text = |value: &Value| String::from_utf8_lossy(value.bytes()).into_owned();
    let listed = theirs.say("COMMAND LIST");
    let mut names: Vec<_> = listed.values().iter().map(text).collect();
    names.retain(|name| !name.contains('|'));
    names.sort();
    let kept = include_str!("../../../../redis/src/commands/redis_7_0.txt");
    let mut kept: Vec<_> = kept.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    kept.sort_unstable();
    assert_eq!(kept, names);
}
