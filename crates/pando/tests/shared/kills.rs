//! Workers that are killed at any instruction, while others go on.

use std::time::Duration;

use pando::{Map, MapOptions, Pool};

use crate::worker::{WINDOW, Worker, count_of, count_of_all, key};
use crate::{check_alone, open, shared, wait_until};

/// How many workers write, how many kills there are, and the time between two of them.
struct Run {
    workers: u8,
    kills: u64,
    pause: fn(u64) -> Duration,
}

const SHORT: Run =
    Run { workers: 4, kills: 40, pause: |kill| Duration::from_millis(5 + kill % 30) };

/// What is known of a worker between its processes.
#[derive(Clone, Copy)]
struct Known {
    /// The last complete round.
    last: u64,
    /// Its count.
    count: u64,
}

/// Checks the keys of a worker whose process is dead.
fn check(map: &Map, number: u8, before: Known, last: u64) -> Known {
    let complete = last - before.last;
    let count = count_of(map, number);
    let counted = count - before.count;
    // The round in which it died may have come so far, or not.
    assert!((complete..=complete + 1).contains(&counted), "{counted} of {complete} rounds");
    for round in last.saturating_sub(WINDOW - 2).max(1)..=last {
        let value = map.get(key(number, round)).unwrap();
        let value = value.unwrap_or_else(|| panic!("worker {number} has lost round {round}"));
        assert_eq!(value, vec![number; 20 + (round % 200) as usize]);
    }
    let removed = last.saturating_sub(WINDOW);
    for round in removed.saturating_sub(3 * WINDOW).max(1)..=removed {
        assert!(map.get(key(number, round)).unwrap().is_none(), "round {round} is back");
    }
    Known { last, count }
}

fn kill_again_and_again(index: &str, Run { workers: count, kills, pause }: Run) {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("shared.pool");
    let pool = Pool::create(&path, &shared()).unwrap();
    let map = pool.map_with("main", &MapOptions::new().index(index)).unwrap();
    let mut known = vec![Known { last: 0, count: 0 }; usize::from(count)];
    let mut workers: Vec<_> =
        (0..count).map(|number| Some(Worker::start(&path, number, 1))).collect();
    assert_eq!(pool.processes().unwrap().len(), 1 + usize::from(count));
    let mut size_bytes = Vec::new();
    for kill in 0..kills {
        std::thread::sleep(pause(kill));
        if kill % (kills / 10).max(1) == 0 {
            size_bytes.push(pool.size_bytes());
            println!("{kill} kills of {kills}, {} MiB", pool.size_bytes() >> 20);
        }
        let number = (kill % u64::from(count)) as usize;
        let last = workers[number].take().unwrap().kill();
        known[number] = check(&map, number as u8, known[number], last);
        workers[number] = Some(Worker::start(&path, number as u8, last + 1));
    }
    for worker in workers.into_iter().flatten() {
        let number = worker.number;
        let last = worker.kill();
        known[usize::from(number)] = check(&map, number, known[usize::from(number)], last);
    }
    wait_until("dead processes stay", || pool.processes().unwrap().len() == 1);
    // Each round counts once for all, but for those in which a worker died.
    let rounds: u64 = known.iter().map(|known| known.count).sum();
    let deaths = kills + u64::from(count);
    let all = count_of_all(&map);
    assert!(all <= rounds && all + deaths >= rounds, "{all} of {rounds}");
    assert!(rounds > 0, "no round was made");
    println!("{deaths} kills, {rounds} rounds, {} MiB", pool.size_bytes() >> 20);
    if kills > 1000 {
        let (half, end) = (size_bytes[5], pool.size_bytes());
        assert!(end <= half + half / 4, "the pool grows: {size_bytes:?}, {end}");
    }
    drop(map);
    pool.close().unwrap();
    check_alone(&path);
}

#[test]
fn killed_processes_lose_nothing_and_hold_up_nobody_in_a_bztree() {
    kill_again_and_again("bztree", SHORT);
}

#[test]
fn killed_processes_lose_nothing_and_hold_up_nobody_in_a_skiplist() {
    kill_again_and_again("skiplist", SHORT);
}

/// For `MINUTES` minutes, ten if it is not set.
#[test]
#[ignore = "takes long; `.ci/long process-kills` runs it"]
fn sixteen_processes_write_while_one_is_killed_every_100_ms() {
    let minutes = std::env::var("MINUTES").map_or(10, |minutes| minutes.parse().unwrap());
    let pause = |_| Duration::from_millis(100);
    kill_again_and_again("bztree", Run { workers: 16, kills: minutes * 600, pause });
}

/// All processes are killed at once.
#[test]
fn after_the_death_of_all_processes_the_pool_opens_as_after_any_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.pool");
    let pool = Pool::create(&path, &shared()).unwrap();
    drop(pool.map("main").unwrap());
    pool.close().unwrap();
    let workers: Vec<_> = (0..3).map(|number| Worker::start(&path, number, 1)).collect();
    std::thread::sleep(Duration::from_millis(200));
    let last: Vec<_> = workers.into_iter().map(|worker| (worker.number, worker.kill())).collect();
    let pool = open(&path);
    assert_eq!(pool.processes().unwrap().len(), 1);
    let map = pool.open_map("main").unwrap();
    for (number, last) in last {
        check(&map, number, Known { last: 0, count: 0 }, last);
    }
    drop((map, pool));
    check_alone(&path);
}

/// A stopped process is not dead: it goes on when it is continued.
#[test]
fn a_stopped_process_holds_up_nobody_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.pool");
    let pool = Pool::create(&path, &shared()).unwrap();
    let map = pool.map("main").unwrap();
    let stopped = Worker::start(&path, 0, 1);
    let other = Worker::start(&path, 1, 1);
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(7));
        let checked = pool.check_online().unwrap();
        assert!(checked.is_consistent() && checked.maps == 1, "{checked:?}");
        stopped.signal("STOP");
        let before = count_of(&map, 1);
        wait_until("the other worker waits", || count_of(&map, 1) > before + 100);
        let processes = pool.processes().unwrap();
        let seen = processes.iter().find(|seen| seen.pid == stopped.pid()).unwrap();
        assert!(seen.is_alive, "{seen:?}");
        let before = count_of(&map, 0);
        stopped.signal("CONT");
        wait_until("the stopped worker does not go on", || count_of(&map, 0) > before);
    }
    for worker in [stopped, other] {
        let number = worker.number;
        let last = worker.kill();
        check(&map, number, Known { last: 0, count: 0 }, last);
    }
}

/// A stopped process holds the space of removed blocks back, until it is evicted.
#[test]
fn a_stopped_process_can_be_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.pool");
    let pool = Pool::create(&path, &shared()).unwrap();
    let map = pool.map("main").unwrap();
    let mut held_back = None;
    for first in 1..200 {
        let worker = Worker::start(&path, 0, first * 1_000_000);
        std::thread::sleep(Duration::from_millis(first % 7));
        worker.signal("STOP");
        // It holds space back if it was stopped inside a call, and the epoch rises after that.
        for key in 0..500_u32 {
            map.upsert(key.to_be_bytes(), [1; 100]).unwrap();
            map.remove(key.to_be_bytes()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
        let processes = pool.processes().unwrap();
        let seen = processes.iter().find(|seen| seen.pid == worker.pid()).unwrap();
        held_back = seen.holds_space_back_ms;
        pool.evict(worker.pid()).unwrap();
        assert!(pool.processes().unwrap().iter().all(|seen| seen.pid != worker.pid()));
        let last = worker.kill();
        let last_key = map.get(key(0, last)).unwrap();
        assert!(last < first * 1_000_000 || last_key.is_some(), "a write is lost");
        if held_back.is_some() {
            break;
        }
    }
    assert!(held_back.is_some_and(|ms| ms > 0), "{held_back:?}: no process held space back");
    // Nothing is held back any more.
    for key in 0..500_u32 {
        map.upsert(key.to_be_bytes(), [1; 100]).unwrap();
        map.remove(key.to_be_bytes()).unwrap();
    }
    let is_held =
        || pool.processes().unwrap().iter().any(|seen| seen.holds_space_back_ms.is_some());
    wait_until("space stays held back", || !is_held());
    drop((map, pool));
    check_alone(&path);
}
