//! Sends the same commands to our server and to Debian's Redis, and compares the replies.
//!
//! Commands come from a seed, in cases. Each case begins with empty databases. The first different
//! reply ends the case. Then earlier commands are left out one by one, as long as the replies still
//! differ, and the rest is printed. `PANDO_ORACLE_SEED` repeats one case, and `PANDO_ORACLE_CASES`
//! is the number of cases.

use std::time::{Duration, Instant};

use super::programs::{self, Running};
use super::random::Random;
use super::wire::{Client, Reply, Value, Words, words};

/// The required equality of two replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equal {
    /// Every byte.
    Bytes,
    /// The same elements in any order (for a map: pairs), at all depths.
    Elements,
    /// The same, except for integers: times, with this many units in a second. They may differ by
    /// as much as the two servers' clocks can when they run the commands.
    Times(i64),
    /// The same, except for integers that are not negative.
    Numbers,
    /// Only the same kind.
    Kind,
}

impl Equal {
    /// Whether our reply is allowed beside Redis's, if each server ran each command within
    /// `pause` of the other.
    pub fn holds(self, ours: &Reply, theirs: &Reply, pause: Duration) -> bool {
        ours.bytes == theirs.bytes || self.holds_of(&ours.value, &theirs.value, pause)
    }

    fn holds_of(self, ours: &Value, theirs: &Value, pause: Duration) -> bool {
        let apart = match self {
            // One more, because each server rounds.
            Self::Times(units) => Some(1 + (pause.as_secs_f64() * units as f64).ceil() as u64),
            Self::Numbers => Some(u64::MAX),
            _ => None,
        };
        if let Some(apart) = apart
            && let (Value::Line(b':', _), Value::Line(b':', _)) = (ours, theirs)
            && let (Some(one), Some(other)) = (ours.number(), theirs.number())
        {
            // A negative number is no time. It says why there is none.
            return one == other || one >= 0 && other >= 0 && one.abs_diff(other) <= apart;
        }
        match (self, ours, theirs) {
            (Self::Elements, ours, theirs) => sorted(ours) == sorted(theirs),
            (Self::Kind, Value::Line(one, ours), Value::Line(other, theirs)) => {
                one == other && (*one != b'-' || ours == theirs)
            }
            (Self::Kind, Value::Bytes(one, _), Value::Bytes(other, _)) => one == other,
            (Self::Kind, Value::Values(one, _), Value::Values(other, _)) => one == other,
            (_, Value::Values(one, ours), Value::Values(other, theirs)) => {
                let pairs = ours.iter().zip(theirs);
                one == other
                    && ours.len() == theirs.len()
                    && pairs.into_iter().all(|(ours, theirs)| self.holds_of(ours, theirs, pause))
            }
            (_, ours, theirs) => ours == theirs,
        }
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Values(b'%', values) => {
            let mut pairs: Vec<_> =
                values.chunks(2).map(|pair| pair.iter().map(sorted).collect::<Vec<_>>()).collect();
            pairs.sort();
            Value::Values(b'%', pairs.concat())
        }
        Value::Values(kind, values) => {
            let mut values: Vec<_> = values.iter().map(sorted).collect();
            values.sort();
            Value::Values(*kind, values)
        }
        other => other.clone(),
    }
}

/// A command, and the required equality of its replies.
#[derive(Clone, Debug)]
pub struct Step {
    pub words: Words,
    pub equal: Equal,
}

impl From<(Words, Equal)> for Step {
    fn from((words, equal): (Words, Equal)) -> Self {
        Self { words, equal }
    }
}

/// Both servers, each with a connection.
pub struct Oracle {
    ours: Client,
    theirs: Client,
    /// The number of commands that are sent together.
    together: usize,
    _servers: [Running; 2],
}

/// The place of the first different reply.
struct Difference {
    at: usize,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

impl Oracle {
    /// Starts both servers.
    pub fn start() -> Self {
        let (ours, theirs) = (programs::pando(), programs::redis());
        let (ours_to, theirs_to) = (ours.connect(), theirs.connect());
        Self { ours: ours_to, theirs: theirs_to, together: 1, _servers: [ours, theirs] }
    }

    /// Starts both servers, for sending `together` commands at once.
    pub fn start_with_pipelines(together: usize) -> Self {
        Self { together, ..Self::start() }
    }

    /// Runs `cases` cases of `steps` steps from `generate`, in RESP2 and in RESP3.
    pub fn compare(
        &mut self,
        cases: u64,
        steps: usize,
        mut generate: impl FnMut(&mut Random) -> Step,
    ) {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let only: Option<u64> = number("PANDO_ORACLE_SEED");
        let cases = if only.is_some() { 1 } else { number("PANDO_ORACLE_CASES").unwrap_or(cases) };
        // Each start has other cases, so a later run may find other differences.
        let first = only.unwrap_or_else(|| Random::new(seed_of_now()).number() >> 16);
        for version in ["2", "3"] {
            if !self.begin_version(version) {
                eprintln!("our server does not support RESP{version} yet");
                continue;
            }
            for seed in first..first + cases {
                let mut random = Random::new(seed);
                let steps: Vec<Step> = (0..steps).map(|_| generate(&mut random)).collect();
                if let Some(difference) = self.run(&steps) {
                    let steps = self.shorten(steps, difference.at);
                    let again = self.run(&steps).unwrap_or(difference);
                    panic!("RESP{version}, PANDO_ORACLE_SEED={seed}\n{}", report(&steps, &again));
                }
            }
        }
    }

    /// Runs the commands of these lines in RESP2 and in RESP3. Their replies must be equal byte for
    /// byte.
    pub fn compare_lines<'line>(&mut self, lines: impl IntoIterator<Item = &'line str>) {
        let steps: Vec<Step> =
            lines.into_iter().map(|line| (words(line), Equal::Bytes).into()).collect();
        self.compare_steps(&steps);
    }

    /// Runs these steps in RESP2 and in RESP3.
    pub fn compare_steps(&mut self, steps: &[Step]) {
        for version in ["2", "3"] {
            if self.begin_version(version)
                && let Some(difference) = self.run(steps)
            {
                panic!("RESP{version}\n{}", report(&steps[..=difference.at], &difference));
            }
        }
    }

    /// Whether our server has a command.
    pub fn has(&mut self, command: &str) -> bool {
        let reply = self.ours.say(command);
        !(reply.is_error() && reply.bytes().starts_with(b"ERR unknown command"))
    }

    /// Both connections, ours first, for single requests.
    pub fn clients(&mut self) -> [&mut Client; 2] {
        [&mut self.ours, &mut self.theirs]
    }

    fn begin_version(&mut self, version: &str) -> bool {
        let hello = words(&format!("HELLO {version}"));
        let ours = self.ours.ask(&hello).expect("our reply");
        if ours.value.is_error() {
            return version == "2";
        }
        self.theirs.ask(&hello).expect("Redis's reply");
        true
    }

    fn empty(&mut self) {
        for client in [&mut self.ours, &mut self.theirs] {
            for line in ["DISCARD", "UNWATCH", "SELECT 0", "FLUSHALL"] {
                client.say(line);
            }
        }
    }

    /// The first step with a different reply.
    fn run(&mut self, steps: &[Step]) -> Option<Difference> {
        self.empty();
        let mut longest = Duration::ZERO;
        for (number, together) in steps.chunks(self.together).enumerate() {
            let begin = number * self.together;
            let shown = || shown(&steps[..begin + together.len()]);
            let mut ask = |client: fn(&mut Self) -> &mut Client, name: &str| -> Vec<Reply> {
                let client = client(self);
                let sent = client.send_all(together.iter().map(|step| step.words.as_slice()));
                let replies =
                    sent.and_then(|()| together.iter().map(|_| client.receive()).collect());
                replies.unwrap_or_else(|error| panic!("{name} server failed: {error}\n{}", shown()))
            };
            let start = Instant::now();
            let ours = ask(|oracle| &mut oracle.ours, "our");
            let theirs = ask(|oracle| &mut oracle.theirs, "Redis's");
            longest = longest.max(start.elapsed());
            // A server may still have the clock of the commands before.
            let pause = 2 * longest;
            for (place, (step, (ours, theirs))) in
                together.iter().zip(ours.into_iter().zip(theirs)).enumerate()
            {
                if !step.equal.holds(&ours, &theirs, pause) {
                    let at = begin + place;
                    return Some(Difference { at, ours: ours.bytes, theirs: theirs.bytes });
                }
            }
        }
        None
    }

    /// Removes the steps that the difference does not need.
    fn shorten(&mut self, mut steps: Vec<Step>, last: usize) -> Vec<Step> {
        steps.truncate(last + 1);
        let mut at = steps.len() - 1;
        while at > 0 {
            at -= 1;
            let mut fewer = steps.clone();
            fewer.remove(at);
            if self.run(&fewer).is_some_and(|difference| difference.at == fewer.len() - 1) {
                steps = fewer;
            }
        }
        steps
    }
}

fn seed_of_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64)
}

fn report(steps: &[Step], difference: &Difference) -> String {
    format!(
        "{}\n    Redis: {}\n    ours:  {}",
        shown(steps),
        difference.theirs.escape_ascii(),
        difference.ours.escape_ascii()
    )
}

fn shown(steps: &[Step]) -> String {
    let line = |step: &Step| {
        let words: Vec<String> =
            step.words.iter().map(|word| format!("\"{}\"", word.escape_ascii())).collect();
        format!("  {}", words.join(" "))
    };
    steps.iter().map(line).collect::<Vec<_>>().join("\n")
}
