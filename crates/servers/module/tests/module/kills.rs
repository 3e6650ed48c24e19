//! Kills of a server: at each step of the protocol, and at random times under load.

use std::collections::{BTreeMap, BTreeSet};

use crate::server::{Server, Site, eventually, info, say};
use crate::wire::Client;

/// What is before a command, the command, and what may be after a kill inside it: the state before
/// or after.
struct Case {
    command: &'static str,
    places: &'static [&'static str],
    before: &'static [(&'static str, &'static str)],
    after: &'static [(&'static str, &'static str)],
}

const CASES: &[Case] = &[
    Case {
        command: "PANDO.MSET m a 2 b 3",
        places: &["change before commit:1", "change after commit:1"],
        before: &[("PANDO.RANGE m - +", "a 1 x 1")],
        after: &[("PANDO.RANGE m - +", "a 2 b 3 x 1")],
    },
    Case {
        command: "PANDO.SET fresh a 2",
        places: &["change before commit:1", "change after commit:1"],
        before: &[("EXISTS fresh", "0")],
        after: &[("PANDO.RANGE fresh - +", "a 2")],
    },
    Case {
        command: "PANDO.POPMIN m 5",
        places: &["change before commit:1", "change after commit:1"],
        before: &[("PANDO.COUNT m", "2")],
        after: &[("EXISTS m", "0")],
    },
    Case {
        command: "PANDO.APPLY 2 m n RECEIPT s 1 SET 1 a 2 DEL 2 y",
        places: &["change before commit:1", "change after commit:1"],
        before: &[("PANDO.GET m a", "1"), ("PANDO.GET n y", "1")],
        after: &[("PANDO.GET m a", "2"), ("EXISTS n", "0")],
    },
    Case {
        command: "RENAME m n",
        places: &["names before commit:1", "names after commit:1"],
        before: &[("PANDO.COUNT m", "2"), ("PANDO.COUNT n", "1")],
        after: &[("EXISTS m", "0"), ("PANDO.COUNT n", "2")],
    },
    Case {
        command: "UNLINK m",
        places: &["names before commit:1", "names after commit:1", "garbage:1"],
        before: &[("PANDO.COUNT m", "2")],
        after: &[("EXISTS m", "0")],
    },
    Case {
        command: "COPY m n REPLACE",
        places: &["fill:1", "names before commit:1", "names after commit:1"],
        before: &[("PANDO.COUNT m", "2"), ("PANDO.COUNT n", "1")],
        after: &[("PANDO.COUNT m", "2"), ("PANDO.COUNT n", "2")],
    },
    Case {
        command: "EXPIREAT m 4000000000",
        places: &["names before commit:1", "names after commit:1"],
        before: &[("EXPIRETIME m", "-1")],
        after: &[("EXPIRETIME m", "4000000000")],
    },
    Case {
        command: "FLUSHALL ASYNC",
        places: &["flush before commit:1", "flush after commit:1", "garbage:1", "garbage:2"],
        before: &[("PANDO.COUNT m", "2"), ("PANDO.COUNT n", "1")],
        after: &[("DBSIZE", "0")],
    },
    Case {
        command: "SWAPDB 0 1",
        places: &["swap before commit:1", "swap after commit:1"],
        before: &[("PANDO.COUNT m", "2")],
        after: &[("EXISTS m", "0"), ("SELECT 1", "OK"), ("PANDO.COUNT m", "2"), ("SELECT 0", "OK")],
    },
    Case {
        command: "MOVE m 1",
        places: &["names before commit:1", "names after commit:1"],
        before: &[("PANDO.COUNT m", "2")],
        after: &[("EXISTS m", "0"), ("SELECT 1", "OK"), ("PANDO.COUNT m", "2"), ("SELECT 0", "OK")],
    },
    Case {
        command: "SET m text",
        places: &["names before commit:1", "names after commit:1"],
        before: &[("PANDO.COUNT m", "2")],
        // The string is in no file yet: see docs/module.md.
        after: &[("EXISTS m", "0")],
    },
];

fn holds(client: &mut Client, state: &[(&str, &str)]) -> bool {
    state.iter().all(|(line, reply)| say(client, line) == *reply)
}

/// The garbage is gone, so every record of the pool is of a map with a name.
fn no_garbage(client: &mut Client) {
    eventually("the removal of garbage", || info(client, "pando_garbage") == "0");
}

#[test]
fn a_kill_at_each_step_leaves_the_state_before_or_after_the_command() {
    for case in CASES {
        for place in case.places {
            let site = Site::with_aof();
            let server = site.start();
            for line in ["PANDO.MSET m a 1 x 1", "PANDO.SET n y 1"] {
                assert!(!server.connect().say(line).is_error());
            }
            drop(server);
            let server = site.start_to_die_at(place, &[]);
            let words = crate::wire::words(case.command);
            let mut client = server.connect();
            // Garbage is removed beside the reply, and its thread kills the server.
            if client.ask(&words).is_ok() {
                eventually("the kill", || client.ask(&crate::wire::words("PING")).is_err());
            }
            drop(server);
            let server = site.start();
            let client = &mut server.connect();
            let is_before = holds(client, case.before);
            let is_after = holds(client, case.after);
            assert!(is_before != is_after, "{} killed at {place}", case.command);
            let must_be_after = !place.contains("before") && !place.contains("fill");
            assert!(is_after || !must_be_after, "{} is lost at {place}", case.command);
            no_garbage(client);
        }
    }
}

/// The same for RESTORE over a map, whose payload is not text.
#[test]
fn a_kill_in_a_restore_leaves_the_old_map_or_the_new_one() {
    for place in ["fill:1", "names before commit:1", "names after commit:1"] {
        let site = Site::with_aof();
        let server = site.start();
        let mut client = server.connect();
        assert_eq!(say(&mut client, "PANDO.MSET m a 1 b 2"), "2");
        assert_eq!(say(&mut client, "PANDO.SET n old 1"), "1");
        let mut command = crate::wire::words("RESTORE n 0");
        command.push(client.say("DUMP m").bytes().to_vec());
        command.push(b"REPLACE".to_vec());
        drop(server);
        let server = site.start_to_die_at(place, &[]);
        assert!(server.connect().ask(&command).is_err(), "{place}");
        drop(server);
        let server = site.start();
        let client = &mut server.connect();
        let found = say(client, "PANDO.RANGE n - +");
        let wanted = if place.contains("after") { "a 1 b 2" } else { "old 1" };
        assert_eq!(found, wanted, "{place}");
        assert_eq!(say(client, "PANDO.RANGE m - +"), "a 1 b 2");
        no_garbage(client);
    }
}

/// A kill while the stubs are rebuilt, or a child saves, loses nothing.
#[test]
fn a_kill_in_a_start_or_a_save_loses_nothing() {
    let site = Site::with_aof();
    let server = site.start_with(&["--pando.save-after-start", "no"]);
    for map in 0..10 {
        assert_eq!(say(&mut server.connect(), &format!("PANDO.SET m{map} a {map}")), "1");
    }
    drop(server);
    site.dies("rebuild:5", &[]);
    // The child of the save that follows the start.
    site.dies("save:3", &[]);
    let server = site.start();
    let client = &mut server.connect();
    for map in 0..10 {
        assert_eq!(say(client, &format!("PANDO.GET m{map} a")), map.to_string());
    }
}

/// A kill while files are loaded, with the files having precedence, gives them precedence again.
#[test]
fn a_kill_in_a_load_of_files_gives_them_precedence_again() {
    let site = Site::with_aof();
    let server = site.start();
    let client = &mut server.connect();
    for map in 0..10 {
        assert_eq!(say(client, &format!("PANDO.SET m{map} a {map}")), "1");
    }
    client.say("BGREWRITEAOF");
    eventually("the rewrite", || {
        info(client, "aof_rewrite_in_progress") == "0" && info(client, "aof_rewrites") != "0"
    });
    drop(server);
    std::fs::remove_file(site.path("pando.pool")).expect("no pool");
    site.dies("fill:5", &[]);
    let server = site.start();
    let client = &mut server.connect();
    assert!(site.log().contains("a load of files was interrupted"));
    for map in 0..10 {
        assert_eq!(say(client, &format!("PANDO.GET m{map} a")), map.to_string());
    }
    no_garbage(client);
}

/// Random numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

type Model = BTreeMap<String, BTreeMap<String, String>>;

/// A random command, which is applied to the model too.
fn step(random: &mut Random, model: &mut Model) -> String {
    let key = |random: &mut Random| format!("k{}", random.below(6));
    let name = key(random);
    let field = format!("f{}", random.below(20));
    match random.below(20) {
        0 => {
            model.remove(&name);
            format!("UNLINK {name}")
        }
        1 => {
            let to = key(random);
            if let Some(map) = model.remove(&name) {
                model.insert(to.clone(), map);
            }
            format!("RENAME {name} {to}")
        }
        2 => {
            let to = key(random);
            if name != to
                && let Some(map) = model.get(&name).cloned()
            {
                model.insert(to.clone(), map);
            }
            format!("COPY {name} {to} REPLACE")
        }
        3 => {
            let Some(map) = model.get_mut(&name) else { return format!("PANDO.POPMIN {name}") };
            map.pop_first();
            if map.is_empty() {
                model.remove(&name);
            }
            format!("PANDO.POPMIN {name}")
        }
        4 if random.below(10) == 0 => {
            model.clear();
            "FLUSHALL".to_owned()
        }
        _ => {
            let value = random.below(1000).to_string();
            model.entry(name.clone()).or_default().insert(field.clone(), value.clone());
            format!("PANDO.SET {name} {field} {value}")
        }
    }
}

fn found(server: &Server) -> Model {
    let client = &mut server.connect();
    let mut model = Model::new();
    for name in say(client, "KEYS *").split_whitespace() {
        let all = say(client, &format!("PANDO.RANGE {name} - +"));
        let words: Vec<_> = all.split_whitespace().map(str::to_owned).collect();
        let records = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        model.insert(name.to_owned(), records.collect());
    }
    model
}

/// Random commands over kills: what was replied to is there, and of the commands that were sent
/// without a reply, each prefix may be.
#[test]
fn what_was_replied_to_is_there_after_kills_at_random_times() {
    let seed = 0x9e37_79b9_7f4a_7c15;
    let mut random = Random(seed);
    let site = Site::with_aof();
    let mut model = Model::new();
    for kill in 0..8 {
        let server = site.start();
        assert_eq!(found(&server), model, "seed {seed}, kill {kill}");
        let mut client = server.connect();
        for _ in 0..random.below(150) {
            let line = step(&mut random, &mut model);
            client.say(&line);
        }
        // These are sent at once, and the server is killed beside them.
        let mut states = vec![model.clone()];
        let lines: Vec<_> = (0..200)
            .map(|_| {
                let line = step(&mut random, &mut model);
                states.push(model.clone());
                crate::wire::words(&line)
            })
            .collect();
        client.send_all(lines.iter().map(Vec::as_slice)).expect("sent");
        let mut replies = 0;
        for _ in 0..random.below(60) {
            replies += usize::from(client.receive().is_ok());
        }
        drop(server);
        while client.receive().is_ok() {
            replies += 1;
        }
        let server = site.start();
        let after = found(&server);
        let place = states[replies..].iter().position(|state| *state == after);
        assert!(place.is_some(), "seed {seed}, kill {kill}, {replies} replies: {after:?}");
        let numbers: BTreeSet<_> = after
            .keys()
            .map(|name| say(&mut server.connect(), &format!("PANDO.STAT {name}")))
            .collect();
        assert_eq!(numbers.len(), after.len(), "each map has its own number");
        no_garbage(&mut server.connect());
        model = after;
    }
}
