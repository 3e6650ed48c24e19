//! The config parameters: one table, with the allowed values of each. CONFIG GET and CONFIG SET
//! follow from it.
//!
//! The number of a parameter is an atomic, so a request reads it by one load. Parameters that Redis
//! also has are named as in Redis. Some parameters have no meaning here, but clients and tools read
//! them when they connect. They have the true value, and cannot be changed.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};

use pando_keyspace::SyncMode;
use pando_keyspace::memory::EvictionPolicy;
use parking_lot::Mutex;

/// The allowed values of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A number from the first to the last.
    Number(i64, i64),
    /// A number of bytes, from the first to the last. A text such as `64mb` is allowed.
    Bytes(i64, i64),
    /// `yes` or `no`; its number is 1 or 0.
    Switch,
    /// One of these texts; its number is the index.
    Choice(&'static [&'static str]),
    /// A text of at most this number of bytes.
    Text(usize),
    /// Only the default, for this reason.
    Only(&'static str),
}

/// A config parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The allowed values.
    pub kind: Kind,
    /// The default, in the form of CONFIG GET.
    pub default: &'static str,
    /// Whether CONFIG SET may change it.
    pub is_settable: bool,
    /// The option of `pando serve` that sets it, if only an option does.
    pub option: Option<&'static str>,
}

const fn at_any_time(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, kind, default, is_settable: true, option: None }
}

/// A parameter of Redis that clients and tools set, and that has no effect here. Its value is
/// checked and kept.
const fn without_effect(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    at_any_time(name, kind, default)
}

const fn at_start(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, kind, default, is_settable: false, option: None }
}

const fn by_option(name: &'static str, kind: Kind, option: &'static str) -> Parameter {
    Parameter { name, kind, default: "", is_settable: false, option: Some(option) }
}

const LOG_OF_POOL: Kind =
    Kind::Only("a pool has a log, or has none, from its creation on (`pando --log DIR`)");
const NO_DUMP: Kind =
    Kind::Only("each acknowledged write is already durable, whatever happens to snapshots");
const GIB: i64 = 1 << 30;

/// All parameters, in order of their names.
pub(crate) static PARAMETERS: &[Parameter] = &[
    by_option("aclfile", Kind::Text(4096), "--acl-file"),
    at_any_time("acllog-max-len", Kind::Number(0, 1 << 20), "128"),
    without_effect("active-expire-effort", Kind::Number(1, 10), "1"),
    without_effect("activerehashing", Kind::Switch, "yes"),
    Parameter {
        is_settable: true,
        ..by_option("appendfsync", Kind::Choice(&SyncMode::NAMES), "--sync")
    },
    at_any_time("appendonly", LOG_OF_POOL, "no"),
    by_option("bind", Kind::Text(4096), "--bind"),
    at_any_time("client-output-buffer-limit", NO_BUFFER_CLASSES, OUTPUT_LIMITS),
    at_any_time("client-query-buffer-limit", Kind::Bytes(1 << 20, i64::MAX), "1073741824"),
    at_start("databases", Kind::Only("the number of databases is fixed"), "16"),
    at_start("enable-debug-command", Kind::Choice(&["no", "yes", "local"]), "no"),
    without_effect("hash-max-listpack-entries", ANY_NUMBER, "512"),
    without_effect("hash-max-listpack-value", ANY_NUMBER, "64"),
    without_effect("hash-max-ziplist-entries", ANY_NUMBER, "512"),
    without_effect("hash-max-ziplist-value", ANY_NUMBER, "64"),
    without_effect("hll-sparse-max-bytes", ANY_NUMBER, "3000"),
    without_effect("hz", Kind::Number(1, 500), "10"),
    at_any_time("latency-monitor-threshold", Kind::Only("latency is not sampled by event"), "0"),
    at_any_time("latency-tracking", Kind::Only("latency is always tracked"), "yes"),
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
    at_start("tcp-backlog", Kind::Only("the backlog of connections is fixed"), "1024"),
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

const ALWAYS_LAZY: &str = "dropped values are always removed in the background";
const OUTPUT_LIMITS: &str = "normal 0 0 0 slave 0 0 0 pubsub 0 0 0";
const NO_BUFFER_CLASSES: Kind = Kind::Only(
    "there is no limit per class: a client's next request waits until its replies are sent",
);

/// The index of a parameter in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterId(usize);

/// The ID of the parameter with this name. A missing name is an error at compile time.
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

/// When a reply to a write is sent, if the pool has a log: an index of [`SyncMode::NAMES`].
pub(crate) const APPEND_FSYNC: ParameterId = id_of("appendfsync");
/// The number of entries that the log of the ACL keeps.
pub(crate) const ACL_LOG_MAX_LEN: ParameterId = id_of("acllog-max-len");
/// The file of users.
pub(crate) const ACL_FILE: ParameterId = id_of("aclfile");
/// The bytes of requests that may wait for one client.
pub(crate) const QUERY_BUFFER_LIMIT: ParameterId = id_of("client-query-buffer-limit");
/// Whether DEBUG is allowed: 0 is no, 1 is yes, 2 is only for clients on this machine.
pub(crate) const ENABLE_DEBUG: ParameterId = id_of("enable-debug-command");
/// The most clients at a time.
pub const MAX_CLIENTS: ParameterId = id_of("maxclients");
/// The memory limit in bytes; 0 is the pool's size.
pub(crate) const MAX_MEMORY: ParameterId = id_of("maxmemory");
/// Why the memory limit and its policy cannot be set if the keys are in a record store.
pub const MEMORY_OF_STORE: &str =
    "the keys are in a store; --memory limits its pages in memory, and no keys are evicted";
/// The policy at the memory limit: an index of [`EvictionPolicy::NAMES`].
pub(crate) const MAX_MEMORY_POLICY: ParameterId = id_of("maxmemory-policy");
/// The number of sampled keys for each eviction.
pub(crate) const MAX_MEMORY_SAMPLES: ParameterId = id_of("maxmemory-samples");
/// The port of the Redis protocol.
pub(crate) const PORT: ParameterId = id_of("port");
/// The longest argument, in bytes.
pub(crate) const MAX_BULK_BYTES: ParameterId = id_of("proto-max-bulk-len");
/// Whether only clients on this machine are accepted while there is no password.
pub const PROTECTED_MODE: ParameterId = id_of("protected-mode");
/// The default user's password. Only the ACL keeps it, as a hash; this is the text for CONFIG GET.
pub const REQUIRE_PASS: ParameterId = id_of("requirepass");
/// The least microseconds of a command in the slow log. Negative: the log is off.
pub(crate) const SLOW_LOG_SLOWER_THAN: ParameterId = id_of("slowlog-log-slower-than");
/// The seconds between two periodic snapshots; 0 for none.
pub(crate) const SNAPSHOT_EVERY: ParameterId = id_of("snapshot-every");
/// The number of snapshots that are kept.
pub(crate) const SNAPSHOTS: ParameterId = id_of("snapshots");
/// The number of entries that the slow log keeps.
pub(crate) const SLOW_LOG_MAX_LEN: ParameterId = id_of("slowlog-max-len");
/// The seconds between two probes of a silent connection; 0 for none.
pub const TCP_KEEPALIVE: ParameterId = id_of("tcp-keepalive");
/// The seconds after which a silent client is disconnected; 0 for never.
pub const TIMEOUT: ParameterId = id_of("timeout");

/// The values of the parameters.
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

/// An allowed value of a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    number: i64,
    /// In the form of CONFIG GET.
    text: String,
}

impl Parsed {
    /// In the form of CONFIG GET.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The place of the value among the choices of its parameter.
    pub(crate) fn place(&self) -> usize {
        usize::try_from(self.number).unwrap_or(0)
    }
}

impl Config {
    /// A parameter's number.
    #[inline]
    pub fn number(&self, id: ParameterId) -> i64 {
        // Relaxed: each number is independent of the others.
        self.numbers[id.0].load(Ordering::Relaxed)
    }

    /// A parameter's number, as a count or a size.
    #[inline]
    pub fn size(&self, id: ParameterId) -> usize {
        usize::try_from(self.number(id)).unwrap_or(0)
    }

    /// A parameter's text.
    pub fn text(&self, id: ParameterId) -> String {
        self.texts.lock()[id.0].clone()
    }

    /// The parameters that `is_wanted` selects, with their values.
    pub(crate) fn select(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let texts = self.texts.lock();
        let all = PARAMETERS.iter().zip(texts.iter());
        let wanted = all.filter(|(parameter, _)| is_wanted(parameter.name));
        wanted.map(|(parameter, text)| (parameter.name, text.clone())).collect()
    }

    /// Sets a parsed value.
    pub(crate) fn set(&self, id: ParameterId, parsed: Parsed) {
        self.set_and_apply(id, parsed, |_| ());
    }

    /// Sets a parsed value, and calls `apply` with it before another value can be set.
    pub(crate) fn set_and_apply(
        &self,
        id: ParameterId,
        parsed: Parsed,
        apply: impl FnOnce(&Parsed),
    ) {
        let mut texts = self.texts.lock();
        self.numbers[id.0].store(parsed.number, Ordering::Relaxed);
        apply(&parsed);
        texts[id.0] = parsed.text;
    }

    /// Sets a parameter at the start of the server, from `--set`.
    ///
    /// # Errors
    ///
    /// There is no such parameter, another option sets it, or the value is not allowed: the reason
    /// and the allowed values.
    pub fn set_at_start(&self, name: &str, value: &str) -> Result<(), String> {
        let id = find(name).ok_or_else(|| "there is no such config parameter".to_owned())?;
        let Parameter { kind, default, option, .. } = *id.parameter();
        if let Some(option) = option {
            return Err(format!("only the option {option} sets it"));
        }
        if let (Kind::Only(reason), true) = (kind, value != default) {
            return Err(format!("{reason}; only the value '{default}' is allowed"));
        }
        self.set(id, parse(kind, value)?);
        Ok(())
    }

    /// Sets the value that another option or the pool determines.
    ///
    /// # Errors
    ///
    /// The reason why the value is not allowed.
    pub fn set_by_option(&self, name: &str, value: &str) -> Result<(), String> {
        let id = find(name).ok_or_else(|| "there is no such config parameter".to_owned())?;
        self.set(id, parse(id.parameter().kind, value)?);
        Ok(())
    }
}

impl ParameterId {
    /// The parameter with this ID.
    pub(crate) fn parameter(self) -> &'static Parameter {
        &PARAMETERS[self.0]
    }
}

/// Finds a parameter by its name, in any case.
pub(crate) fn find(name: &str) -> Option<ParameterId> {
    let at = PARAMETERS.iter().position(|parameter| parameter.name.eq_ignore_ascii_case(name));
    at.map(ParameterId)
}

/// Parses a value for a parameter of `kind`.
///
/// # Errors
///
/// The reason, in Redis's words, why the value is not allowed.
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

/// Parses a number of bytes with an optional unit: 1k is 1,000 and 1kb is 1,024.
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
            // Options are given again at each start.
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
            ("appendfsync", "always", "only the option --sync sets it"),
            ("bind", "1.2.3.4", "only the option --bind sets it"),
            ("port", "1", "only the option --port sets it"),
            ("databases", "17", "the number of databases is fixed; only the value '16' is allowed"),
        ] {
            assert_eq!(config.set_at_start(name, value), Err(why.to_owned()));
        }
        for (name, value) in [("appendonly", "yes"), ("save", "1 1")] {
            let why = config.set_at_start(name, value).unwrap_err();
            assert!(why.contains("only the value"), "{name}: {why}");
            assert!(!config.select(|one| one == name).iter().any(|(_, text)| text == value));
        }
        config.set_at_start("databases", "16").unwrap();
        assert_eq!(config.number(MAX_CLIENTS), 10_000);
        config.set_at_start("MAXCLIENTS", "7").unwrap();
        assert_eq!((config.number(MAX_CLIENTS), config.text(MAX_CLIENTS)), (7, "7".to_owned()));
        config.set_at_start("maxmemory-policy", "volatile-ttl").unwrap();
        assert_eq!(EvictionPolicy::NAMES[config.size(MAX_MEMORY_POLICY)], "volatile-ttl");
    }
}
