//! Random picks: their number, their source, and repetitions. The picks themselves are free.

use std::collections::BTreeSet;

use crate::common::programs;
use crate::common::wire::{Client, words};

fn picks(client: &mut Client, line: &str) -> Vec<Vec<u8>> {
    client.say(line).values().iter().map(|value| value.bytes().to_vec()).collect()
}

fn check(client: &mut Client, command: &str, key: &str, count: usize) {
    let is_field = |name: &[u8]| {
        let number = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix('m'));
        number.and_then(|number| number.parse::<usize>().ok()).is_some_and(|number| number < count)
    };
    for wanted in [0, 1, 3, count / 20, count / 2, count - 1, count, 2 * count] {
        let found = picks(client, &format!("{command} {key} {wanted}"));
        assert_eq!(found.len(), wanted.min(count), "{command} {key} {wanted}");
        assert!(found.iter().all(|name| is_field(name)));
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len());
        let found = picks(client, &format!("{command} {key} -{wanted}"));
        assert_eq!(found.len(), wanted, "{command} {key} -{wanted}");
        assert!(found.iter().all(|name| is_field(name)));
    }
    let mut seen = BTreeSet::new();
    for _ in 0..2000 {
        let name = client.say(&format!("{command} {key}")).bytes().to_vec();
        assert!(is_field(&name));
        seen.insert(name);
    }
    assert!(seen.len() >= count.min(700), "{command} {key}: {} of {count}", seen.len());
    let reply = client.say(&format!("{command} {key} -9223372036854775807"));
    assert!(reply.is_error(), "a reply without end");
}

#[test]
fn picks_are_fields_and_as_many_as_asked_for() {
    let server = programs::pando();
    let mut client = server.connect();
    for count in [5, 100, 6000] {
        for number in 0..count {
            client.say(&format!("SADD s{count} m{number}"));
            client.say(&format!("HSET h{count} m{number} {number}"));
            client.say(&format!("ZADD z{count} {number} m{number}"));
        }
        check(&mut client, "SRANDMEMBER", &format!("s{count}"), count);
        check(&mut client, "HRANDFIELD", &format!("h{count}"), count);
        check(&mut client, "ZRANDMEMBER", &format!("z{count}"), count);
        let mut popped = BTreeSet::new();
        popped.insert(client.say(&format!("SPOP s{count}")).bytes().to_vec());
        let mut left = count - 1;
        while left > 0 {
            let wanted = left.div_ceil(3);
            popped.extend(picks(&mut client, &format!("SPOP s{count} {wanted}")));
            left -= wanted;
            assert_eq!(client.say(&format!("SCARD s{count}")).number(), Some(left as i64));
        }
        assert_eq!(popped.len(), count);
        assert_eq!(client.say(&format!("SMEMBERS s{count}")).values().len(), 0);
    }
}

#[test]
fn scans_return_everything_once() {
    let server = programs::pando();
    let mut client = server.connect();
    for number in 0..1000 {
        client.say(&format!("HSET h m{number} {number}"));
        client.say(&format!("SADD s m{number}"));
        client.say(&format!("ZADD z {number} m{number}"));
    }
    for (line, words_each) in [("HSCAN h", 2), ("SSCAN s", 1), ("ZSCAN z", 2)] {
        for count in [1, 10, 333, 5000] {
            let mut cursor = "0".to_owned();
            let mut seen = Vec::new();
            loop {
                let reply = client.say(&format!("{line} {cursor} COUNT {count}"));
                let [next, found] = reply.values() else { panic!("{reply:?}") };
                let found = found.values().chunks(words_each);
                seen.extend(found.map(|words| words[0].bytes().to_vec()));
                cursor = String::from_utf8(next.bytes().to_vec()).expect("a cursor");
                if cursor == "0" {
                    break;
                }
                // A concurrent insert is harmless.
                client.ask(&words("HSET h other 1")).expect("a reply");
                client.ask(&words("HDEL h other")).expect("a reply");
            }
            assert_eq!(seen.len(), 1000, "{line} COUNT {count}");
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 1000);
        }
    }
}
