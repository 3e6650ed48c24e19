//! A cluster of three primaries and three replicas: slots move under writes, and primaries are
//! killed. `PANDO_CLUSTER_MAPS` and `PANDO_CLUSTER_RECORDS` make it larger (`.ci/long module`).

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::server::{Server, Site, eventually, info, say};
use crate::wire::{Client, Value, words};

const NODES: usize = 6;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The six nodes.
struct Cluster {
    sites: Vec<Site>,
}

impl Cluster {
    fn ports(&self) -> Vec<u16> {
        self.sites.iter().map(|site| site.port.expect("a port")).collect()
    }

    fn cli(&self, words: &[&str]) {
        let mut command = Command::new("redis-cli");
        let output = command.args(words).output().expect("redis-cli, of Debian's redis-tools");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{words:?}: {said}");
    }

    /// A connection to the node at a port, if it is there.
    fn connect(&self, port: u16) -> Option<Client> {
        let site = self.sites.iter().find(|site| site.port == Some(port))?;
        Client::connect(&site.path("s")).ok()
    }

    /// Sends a command to the node of its key, and follows redirections.
    fn ask(&self, known: &mut Known, command: &[Vec<u8>]) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut port = known.port;
        let mut is_asking = false;
        loop {
            assert!(Instant::now() < deadline, "no node answers {command:?}");
            let client = match known.clients.get_mut(&port) {
                Some(client) => Some(client),
                None => {
                    self.connect(port).map(|client| known.clients.entry(port).or_insert(client))
                }
            };
            let reply = client.map(|client| {
                if is_asking {
                    client.ask(&words("ASKING"))?;
                }
                client.ask(command)
            });
            is_asking = false;
            let value = match reply {
                Some(Ok(reply)) => reply.value,
                // It is down: its replica takes over.
                _ => {
                    known.clients.remove(&port);
                    let ports = self.ports();
                    let at = ports.iter().position(|&other| other == port).unwrap_or(0);
                    port = ports[(at + 1) % NODES];
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            let text = String::from_utf8_lossy(value.bytes()).into_owned();
            let redirected = text.rsplit(':').next().and_then(|port| port.parse().ok());
            match redirected {
                Some(new) if value.is_error() && text.starts_with("MOVED ") => port = new,
                Some(new) if value.is_error() && text.starts_with("ASK ") => {
                    port = new;
                    is_asking = true;
                }
                _ if value.is_error()
                    && ["CLUSTERDOWN", "TRYAGAIN", "LOADING"]
                        .iter()
                        .any(|of| text.starts_with(of)) =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => {
                    known.port = port;
                    return value;
                }
            }
        }
    }
}

/// The connections of a client.
#[derive(Default)]
struct Known {
    clients: BTreeMap<u16, Client>,
    port: u16,
}

fn set(map: usize, field: usize, value: usize) -> Vec<Vec<u8>> {
    words(&format!("PANDO.SET map{map} {field:06} {value}"))
}

#[test]
fn slots_move_under_writes_and_a_killed_primary_loses_nothing_that_a_replica_has() {
    let maps = number("PANDO_CLUSTER_MAPS", 20);
    let records = number("PANDO_CLUSTER_RECORDS", 50);
    let kills = number("PANDO_CLUSTER_KILLS", 1);
    let options = [
        "--appendonly",
        "yes",
        "--save",
        "",
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "1500",
        "--repl-diskless-sync-delay",
        "0",
    ];
    let cluster = Cluster { sites: (0..NODES).map(|_| Site::at_port(&options)).collect() };
    let mut servers: Vec<Option<Server>> =
        cluster.sites.iter().map(|site| Some(site.start())).collect();
    let addresses: Vec<_> =
        cluster.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(addresses.iter().map(String::as_str));
    create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    cluster.cli(&create);
    let mut first: Client = servers[0].as_ref().expect("it runs").connect();
    eventually("the cluster", || {
        say(&mut first, "CLUSTER INFO").contains("cluster_state:ok")
            && say(&mut first, "CLUSTER NODES").matches("slave").count() == NODES / 2
    });

    let mut known = Known { port: cluster.ports()[0], ..Known::default() };
    for map in 0..maps {
        let mut command = words(&format!("PANDO.MSET map{map}"));
        for field in 0..records {
            command.extend([format!("{field:06}").into_bytes(), b"0".to_vec()]);
        }
        assert_eq!(cluster.ask(&mut known, &command).number(), Some(records as i64));
    }

    // Slots of the first node go to another one, while a client writes.
    let ids: Vec<_> = say(&mut first, "CLUSTER NODES")
        .lines()
        .filter(|line| line.contains("master"))
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    let mine = say(&mut first, "CLUSTER MYID");
    let other = ids.iter().find(|id| **id != mine).expect("another primary");
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut known = Known { port: cluster.ports()[1], ..Known::default() };
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                round += 1;
                for map in 0..maps {
                    let command = set(map, round % records, round);
                    assert_eq!(cluster.ask(&mut known, &command).number(), Some(0));
                }
            }
            round
        });
        // If it fails, the writer ends too.
        let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cluster.cli(&[
                "--cluster",
                "reshard",
                &addresses[0],
                "--cluster-from",
                &mine,
                "--cluster-to",
                other,
                "--cluster-slots",
                "2700",
                "--cluster-yes",
            ])
        }));
        is_over.store(true, Ordering::Relaxed);
        moved.expect("the reshard");
        writer.join().expect("the writer")
    });
    let expected: Vec<_> = (0..records)
        .map(|field| {
            (0..=written).rev().find(|round| round % records == field && *round > 0).unwrap_or(0)
        })
        .collect();
    let check = |known: &mut Known| {
        for map in 0..maps {
            let all = cluster.ask(known, &words(&format!("PANDO.RANGE map{map} - +")));
            let found: Vec<_> = all.values().iter().skip(1).step_by(2).map(Value::number).collect();
            let wanted: Vec<_> = expected.iter().map(|&value| Some(value as i64)).collect();
            assert_eq!(found, wanted, "map{map}");
        }
    };
    check(&mut known);

    // Primaries are killed when their replicas have everything.
    for kill in 0..kills {
        for server in servers.iter().flatten() {
            let mut client = server.connect();
            if info(&mut client, "role") == "master" && info(&mut client, "connected_slaves") != "0"
            {
                eventually("WAIT", || say(&mut client, "WAIT 1 1000") == "1");
            }
        }
        let at = (0..NODES)
            .filter(|&at| {
                servers[at].as_ref().is_some_and(|server| {
                    let mut client = server.connect();
                    info(&mut client, "role") == "master"
                        && info(&mut client, "connected_slaves") == "1"
                })
            })
            .nth(kill % 3)
            .expect("a primary with a replica");
        servers[at] = None;
        known.clients.remove(&cluster.ports()[at]);
        known.port = cluster.ports()[(at + 1) % NODES];
        check(&mut known);
        // It comes back from its pool, as a replica, and gets a full sync.
        servers[at] = Some(cluster.sites[at].start());
        let mut client = servers[at].as_ref().expect("it runs").connect();
        eventually("the return as a replica", || {
            info(&mut client, "role") == "slave" && info(&mut client, "master_link_status") == "up"
        });
    }

    // Each replica is equal to its primary.
    for server in servers.iter().flatten() {
        let mut client = server.connect();
        if info(&mut client, "role") == "slave" {
            let port = info(&mut client, "master_port").parse().expect("a port");
            let mut primary = cluster.connect(port).expect("its primary");
            eventually("equality", || {
                say(&mut client, "DEBUG DIGEST") == say(&mut primary, "DEBUG DIGEST")
            });
        }
    }
}

/// A node that loses a slot deletes its keys, and tells modules of it only by `unlink`. The names
/// are more than one commit has room for, and do not come back.
#[test]
fn a_lost_slot_of_many_maps_does_not_come_back() {
    let options = ["--appendonly", "yes", "--save", "", "--cluster-enabled", "yes"];
    let [site, other] = [(); 2].map(|()| Site::at_port(&options));
    let (mut server, taker) = (site.start(), other.start());
    let (mut client, mut taking) = (server.connect(), taker.connect());
    assert_eq!(say(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
    let port = site.port.expect("a port");
    assert_eq!(say(&mut taking, &format!("CLUSTER MEET 127.0.0.1 {port}")), "OK");
    for client in [&mut client, &mut taking] {
        eventually("the cluster", || {
            say(client, "CLUSTER NODES").matches("master").count() == 2
                && say(client, "CLUSTER INFO").contains("cluster_state:ok")
        });
    }
    let slot = say(&mut client, "CLUSTER KEYSLOT {t}");
    let name = |map: usize| format!("{{t}}{map:0240}").into_bytes();
    for first in (0..80_000).step_by(1000) {
        let mut command = vec![b"PANDO.APPLY".to_vec(), b"1000".to_vec()];
        command.extend((first..first + 1000).map(name));
        for place in 1..=1000 {
            let set = ["SET", &place.to_string(), "a", "1"].map(|word| word.as_bytes().to_vec());
            command.extend(set);
        }
        assert!(!client.ask(&command).expect("a reply").value.is_error());
    }
    assert_eq!(say(&mut client, "PANDO.SET stays a 1"), "1");
    let [from, to] = [&mut client, &mut taking].map(|client| say(client, "CLUSTER MYID"));
    assert_eq!(say(&mut taking, &format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), "OK");
    assert_eq!(say(&mut taking, &format!("CLUSTER SETSLOT {slot} NODE {to}")), "OK");
    eventually("the loss of the slot", || say(&mut client, "DBSIZE") == "1");
    eventually("the names", || info(&mut client, "pando_names_not_stored") == "0");
    drop(server);
    server = site.start();
    assert_eq!(say(&mut server.connect(), "DBSIZE"), "1");
}
