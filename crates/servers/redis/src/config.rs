//! The server's parameters: one table, from which follow CONFIG GET and SET, and what each may be.
//!
//! A parameter's number is an atomic, so that to ask for one in the way of a request costs a load.
//! The names are Redis's, where Redis has the parameter; those that clients and tools ask for on
//! connecting, and that say nothing here, answer with what is true here and refuse to be anything
//! else.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};

use pando_keyspace::memory::EvictionPolicy;
use parking_lot::Mutex;

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A number from the first to the last.
    Number(i64, i64),
    /// A number of bytes, which may be said as `64mb`, from the first to the last.
    Bytes(i64, i64),
    /// `yes` or `no`, a number 1 or 0.
    Switch,
    /// One of these, a number by its place.
    Choice(&'static [&'static str]),
    /// Any text of so many bytes at most.
    Text(usize),
    /// This alone, for a reason.
    Only(&'static str),
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is unless something else is said, as CONFIG GET tells it.
    pub default: &'static str,
    /// Whether CONFIG SET may change it.
    pub is_settable: bool,
    /// The option of `pando serve` that alone sets it, if one does.
    pub option: Option<&'static str>,
}

const fn at_any_time(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, kind, default, is_settable: true, option: None }
}

/// A parameter of Redis's that clients and tools set, and that changes nothing here: it is checked
/// and told.
const fn without_effect(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    at_any_time(name, kind, default)
}

const fn at_start(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, kind, default, is_settable: false, option: None }
}

const fn by_option(name: &'static str, kind: Kind, option: &'static str) -> Parameter {
    Parameter { name, kind, default: "", is_settable: false, option: Some(option) }
}

const NO_LOG: Kind =
    Kind::Only("each write is durable when it is acknowledged; no log is written beside the store");
const NO_DUMP: Kind =
    Kind::Only("each write is durable when it is acknowledged; nothing is dumped by the clock");
const GIB: i64 = 1 << 30;

/// All parameters, by name.
pub(crate) static PARAMETERS: &[Parameter] = &[
    by_option("aclfile", Kind::Text(4096), "--acl-file"),
    at_any_time("acllog-max-len", Kind::Number(0, 1 << 20), "128"),
    without_effect("active-expire-effort", Kind::Number(1, 10), "1"),
    without_effect("activerehashing", Kind::Switch, "yes"),
    at_any_time("appendfsync", NO_LOG, "no"),
    at_any_time("appendonly", NO_LOG, "no"),
    by_option("bind", Kind::Text(4096), "--bind"),
    at_any_time("client-output-buffer-limit", NO_BUFFER_CLASSES, OUTPUT_LIMITS),
    at_any_time("client-query-buffer-limit", Kind::Bytes(1 << 20, i64::MAX), "1073741824"),
    at_start("databases", Kind::Only("the store has so many"), "16"),
    at_start("enable-debug-command", Kind::Choice(&["no", "yes", "local"]), "no"),
    without_effect("hash-max-listpack-entries", ANY_NUMBER, "512"),
    without_effect("hash-max-listpack-value", ANY_NUMBER, "64"),
    without_effect("hash-max-ziplist-entries", ANY_NUMBER, "512"),
    without_effect("hash-max-ziplist-value", ANY_NUMBER, "64"),
    without_effect("hll-sparse-max-bytes", ANY_NUMBER, "3000"),
    without_effect("hz", Kind::Number(1, 500), "10"),
    at_any_time("latency-monitor-threshold", Kind::Only("latency is not sampled by event"), "0"),
    at_any_time("latency-tracking", Kind::Only("latency is always counted"), "yes"),
    at_any_time("lazyfree-lazy-expire", Kind::Only(ALWAYS_LAZY), "yes"),
    at_any_time("lazyfree-lazy-user-del", Kind::Only(ALWAYS_LAZY), "yes"),
    at_any_time("lazyfree-lazy-user-flush", Kind::Only(ALWAYS_LAZY), "yes"),
    without_effect("lfu-decay-time", ANY_NUMBER, "1"),
    without_effect("lfu-log-factor", ANY_NUMBER, "10"),
    without_effect("list-compress-depth", ANY_NUMBER, "0"),
    without_effect("list-max-listpack-size", Kind::Number(i32::MIN as i64, i32::MAX as i64), "-2"),
    without_effect("list-max-ziplist-size", Kind::Number(i32::MIN as i64, i32::MAX as i64), "-2"),
    at_any_time("maxclients", Kind::Number(1, u32::MAX as i64), "10000"),
    at_any_time("maxmemory", Kind::Bytes(0, i64::MAX), "0"),
    at_any_time("maxmemory-policy", Kind::Choice(&EvictionPolicy::NAMES), "noeviction"),
    at_any_time("maxmemory-samples", Kind::Number(1, 64), "5"),
    at_any_time("notify-keyspace-events", Kind::Only("there is no publish and subscribe"), ""),
    by_option("port", Kind::Number(0, 65_535), "--port"),
    at_any_time("protected-mode", Kind::Switch, "yes"),
    at_any_time("proto-max-bulk-len", Kind::Bytes(1 << 20, GIB - (1 << 20)), "536870912"),
    at_any_time("requirepass", Kind::Text(512), ""),
    at_any_time("save", NO_DUMP, ""),
    without_effect("set-max-intset-entries", ANY_NUMBER, "512"),
    at_any_time("slowlog-log-slower-than", Kind::Number(-1, i64::MAX), "10000"),
    at_any_time("slowlog-max-len", Kind::Number(0, 1 << 20), "128"),
    at_any_time("snapshot-every", Kind::Number(0, 366 * 86_400), "0"),
    at_any_time("snapshots", Kind::Number(1, 99), "1"),
    at_any_time("stop-writes-on-bgsave-error", NO_DUMP, "no"),
    without_effect("stream-node-max-bytes", ANY_NUMBER, "4096"),
    without_effect("stream-node-max-entries", ANY_NUMBER, "100"),
    at_start("tcp-backlog", Kind::Only("the server asks for so many"), "1024"),
    at_any_time("tcp-keepalive", Kind::Number(0, i32::MAX as i64), "300"),
    at_any_time("timeout", Kind::Number(0, i32::MAX as i64), "0"),
    by_option("tls-port", Kind::Number(0, 65_535), "--tls-port"),
    by_option("unixsocket", Kind::Text(4096), "--unix"),
    without_effect("zset-max-listpack-entries", ANY_NUMBER, "128"),
    without_effect("zset-max-listpack-value", ANY_NUMBER, "64"),
    without_effect("zset-max-ziplist-entries", ANY_NUMBER, "128"),
    without_effect("zset-max-ziplist-value", ANY_NUMBER, "64"),
];

const ANY_NUMBER: Kind = Kind::Number(0, i64::MAX);

const ALWAYS_LAZY: &str = "what was dropped is always removed in the background";
const OUTPUT_LIMITS: &str = "normal 0 0 0 slave 0 0 0 pubsub 0 0 0";
const NO_BUFFER_CLASSES: Kind = Kind::Only(
    "replies wait in the socket: the next request is carried out when the last reply was taken",
);

/// A parameter's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterId(usize);

/// The place of the parameter of that name; there must be one, which is found out as this is
/// compiled.
const fn id_of(name: &str) -> ParameterId {
    let mut at = 0;
    while at < PARAMETERS.len() {
        if is_equal(PARAMETERS[at].name.as_bytes(), name.as_bytes()) {
            return ParameterId(at);
        }
        at += 1;
    }
    panic!("no parameter of that name");
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Entries of the ACL's log that are kept.
pub(crate) const ACL_LOG_MAX_LEN: ParameterId = id_of("acllog-max-len");
/// The file that the users are in.
pub(crate) const ACL_FILE: ParameterId = id_of("aclfile");
/// Bytes of requests that may wait for one client.
pub(crate) const QUERY_BUFFER_LIMIT: ParameterId = id_of("client-query-buffer-limit");
/// Whether DEBUG is there: 0 for no, 1 for yes, 2 for clients on this machine.
pub(crate) const ENABLE_DEBUG: ParameterId = id_of("enable-debug-command");
/// Clients at a time.
pub const MAX_CLIENTS: ParameterId = id_of("maxclients");
/// Bytes that clients' data may take; 0 for as many as the pool has.
pub(crate) const MAX_MEMORY: ParameterId = id_of("maxmemory");
/// What happens when they are taken: a place in [`EvictionPolicy::NAMES`].
pub(crate) const MAX_MEMORY_POLICY: ParameterId = id_of("maxmemory-policy");
/// Keys that are looked at for one that is evicted.
pub(crate) const MAX_MEMORY_SAMPLES: ParameterId = id_of("maxmemory-samples");
/// The port of the Redis protocol.
pub(crate) const PORT: ParameterId = id_of("port");
/// Longest argument.
pub(crate) const MAX_BULK_BYTES: ParameterId = id_of("proto-max-bulk-len");
/// Whether only this machine's clients are let in as long as there is no password.
pub const PROTECTED_MODE: ParameterId = id_of("protected-mode");
/// The default user's password. It is kept by the ACL alone, hashed; what is here is what CONFIG
/// GET tells.
pub const REQUIRE_PASS: ParameterId = id_of("requirepass");
/// Microseconds from which on a command is in the slow log; negative: none is.
pub(crate) const SLOW_LOG_SLOWER_THAN: ParameterId = id_of("slowlog-log-slower-than");
/// Seconds between two snapshots that are written by the clock; 0 for none.
pub(crate) const SNAPSHOT_EVERY: ParameterId = id_of("snapshot-every");
/// Snapshots that are kept.
pub(crate) const SNAPSHOTS: ParameterId = id_of("snapshots");
/// Entries of the slow log.
pub(crate) const SLOW_LOG_MAX_LEN: ParameterId = id_of("slowlog-max-len");
/// Seconds between two probes of a silent connection; 0 for none.
pub const TCP_KEEPALIVE: ParameterId = id_of("tcp-keepalive");
/// Seconds after which a silent client is let go; 0 for never.
pub const TIMEOUT: ParameterId = id_of("timeout");

/// The parameters' values.
#[derive(Debug)]
pub struct Config {
    numbers: Box<[AtomicI64]>,
    texts: Mutex<Box<[String]>>,
}

impl Default for Config {
    fn default() -> Self {
        let numbers = PARAMETERS.iter().map(|parameter| {
            AtomicI64::new(
                parse(parameter.kind, parameter.default).map_or(0, |parsed| parsed.number),
            )
        });
        let texts = PARAMETERS.iter().map(|parameter| parameter.default.to_owned());
        Self { numbers: numbers.collect(), texts: Mutex::new(texts.collect()) }
    }
}

/// A value that a parameter may have.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    number: i64,
    /// As CONFIG GET tells it.
    text: String,
}

impl Parsed {
    /// As CONFIG GET tells it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl Config {
    /// A parameter's number.
    #[inline]
    pub fn number(&self, id: ParameterId) -> i64 {
        // Relaxed: each stands for itself.
        self.numbers[id.0].load(Ordering::Relaxed)
    }

    /// A parameter's number of things or bytes.
    #[inline]
    pub fn size(&self, id: ParameterId) -> usize {
        usize::try_from(self.number(id)).unwrap_or(0)
    }

    /// A parameter's text.
    pub fn text(&self, id: ParameterId) -> String {
        self.texts.lock()[id.0].clone()
    }

    /// The parameters that `is_wanted`, with their values.
    pub(crate) fn select(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let texts = self.texts.lock();
        let all = PARAMETERS.iter().zip(texts.iter());
        let wanted = all.filter(|(parameter, _)| is_wanted(parameter.name));
        wanted.map(|(parameter, text)| (parameter.name, text.clone())).collect()
    }

    /// Sets what was parsed.
    pub(crate) fn set(&self, id: ParameterId, parsed: Parsed) {
        self.numbers[id.0].store(parsed.number, Ordering::Relaxed);
        self.texts.lock()[id.0] = parsed.text;
    }

    /// Sets a parameter as somebody who starts the server says.
    ///
    /// # Errors
    ///
    /// There is none of that name, another option sets it, or it may not be this: why, and what is
    /// allowed.
    pub fn set_at_start(&self, name: &str, value: &str) -> Result<(), String> {
        let id = find(name).ok_or_else(|| "there is no such parameter".to_owned())?;
        let Parameter { kind, default, option, .. } = *id.parameter();
        if let Some(option) = option {
            return Err(format!("{option} says what it is"));
        }
        if let (Kind::Only(reason), true) = (kind, value != default) {
            return Err(format!("{reason}; it may only be '{default}'"));
        }
        self.set(id, parse(kind, value)?);
        Ok(())
    }

    /// Sets what another option says, or what the pool does.
    ///
    /// # Errors
    ///
    /// It may not be this: why.
    pub fn set_by_option(&self, name: &str, value: &str) -> Result<(), String> {
        let id = find(name).ok_or_else(|| "there is no such parameter".to_owned())?;
        self.set(id, parse(id.parameter().kind, value)?);
        Ok(())
    }
}

impl ParameterId {
    /// The parameter there.
    pub(crate) fn parameter(self) -> &'static Parameter {
        &PARAMETERS[self.0]
    }
}

/// The place of the parameter of that name, in any case.
pub(crate) fn find(name: &str) -> Option<ParameterId> {
    let at = PARAMETERS.iter().position(|parameter| parameter.name.eq_ignore_ascii_case(name));
    at.map(ParameterId)
}

/// A value for a parameter of `kind`.
///
/// # Errors
///
/// Why it is none, in Redis's words.
pub(crate) fn parse(kind: Kind, value: &str) -> Result<Parsed, String> {
    let number = |number: i64| Parsed { number, text: number.to_string() };
    let within = |value: i64, low: i64, high: i64| match (low..=high).contains(&value) {
        true => Ok(number(value)),
        false => Err(format!("argument must be between {low} and {high} inclusive")),
    };
    match kind {
        Kind::Number(low, high) => match crate::decimal::parse_i64(value.as_bytes()) {
            Some(value) => within(value, low, high),
            None => Err("argument couldn't be parsed into an integer".into()),
        },
        Kind::Bytes(low, high) => match parse_bytes(value) {
            Some(value) => within(value, low, high),
            None => Err("argument must be a memory value".into()),
        },
        Kind::Switch => match value.to_ascii_lowercase().as_str() {
            "yes" => Ok(Parsed { number: 1, text: "yes".into() }),
            "no" => Ok(Parsed { number: 0, text: "no".into() }),
            _ => Err("argument must be 'yes' or 'no'".into()),
        },
        Kind::Choice(choices) => {
            match choices.iter().position(|choice| choice.eq_ignore_ascii_case(value)) {
                Some(at) => Ok(Parsed { number: at as i64, text: choices[at].to_owned() }),
                None => {
                    let mut words = "argument(s) must be one of the following: ".to_owned();
                    let _ = write!(words, "{}", choices.join(", "));
                    Err(words)
                }
            }
        }
        Kind::Text(most) if value.len() > most => {
            Err(format!("argument must have at most {most} bytes"))
        }
        Kind::Text(_) | Kind::Only(_) => Ok(Parsed {
            number: crate::decimal::parse_i64(value.as_bytes()).unwrap_or(0),
            text: value.to_owned(),
        }),
    }
}

/// A number of bytes, perhaps with a unit: 1k is 1,000 and 1kb is 1,024.
fn parse_bytes(value: &str) -> Option<i64> {
    let end = value.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(value.len());
    let (digits, unit) = value.split_at(end);
    let unit: i64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_default_is_what_its_setting_may_be() {
        for parameter in PARAMETERS {
            let parsed = parse(parameter.kind, parameter.default);
            // What an option says is said at each start.
            if parameter.option.is_none() {
                let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", parameter.name));
                assert_eq!(parsed.text, parameter.default);
            }
        }
        assert!(PARAMETERS.is_sorted_by_key(|parameter| parameter.name));
    }

    #[test]
    fn the_page_names_what_has_no_effect() {
        let page = include_str!("../../../../docs/serve.md");
        for name in ["hash-max-listpack-entries", "activerehashing", "hz", "zset-max-ziplist-value"]
        {
            assert!(find(name).is_some() && page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn sizes_have_units() {
        let cases =
            [("0", Some(0)), ("1k", Some(1000)), ("64MB", Some(64 << 20)), ("1gb", Some(1 << 30))];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), bytes);
        }
        for text in ["", "1x", "-1", "mb", "99999999999999999gb"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused() {
        let config = Config::default();
        assert!(config.set_at_start("maxclients", "0").is_err());
        assert!(config.set_at_start("nosuch", "0").is_err());
        for (name, value, why) in [
            ("bind", "1.2.3.4", "--bind says what it is"),
            ("port", "1", "--port says what it is"),
            ("databases", "17", "the store has so many; it may only be '16'"),
        ] {
            assert_eq!(config.set_at_start(name, value), Err(why.to_owned()));
        }
        for (name, value) in [("appendonly", "yes"), ("appendfsync", "always"), ("save", "1 1")] {
            let why = config.set_at_start(name, value).unwrap_err();
            assert!(why.contains("it may only be"), "{name}: {why}");
            assert!(!config.select(|one| one == name).iter().any(|(_, told)| told == value));
        }
        config.set_at_start("databases", "16").unwrap();
        assert_eq!(config.number(MAX_CLIENTS), 10_000);
        config.set_at_start("MAXCLIENTS", "7").unwrap();
        assert_eq!((config.number(MAX_CLIENTS), config.text(MAX_CLIENTS)), (7, "7".to_owned()));
        config.set_at_start("maxmemory-policy", "volatile-ttl").unwrap();
        assert_eq!(EvictionPolicy::NAMES[config.size(MAX_MEMORY_POLICY)], "volatile-ttl");
    }
}
