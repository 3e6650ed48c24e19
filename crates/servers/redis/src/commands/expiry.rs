//! Expiry times and the current time.
//!
//! Keys expire by the store's clock. Points in time in requests and replies are of the system's
//! clock.

use pando_keyspace::failure::{Result, fail, fail_with};

use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::errors::NOT_AN_INTEGER;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["generic": (WRITE | FAST | ONLY_CHANGES), ONE]
    "expire", -3, "1.0.0", expire::<1000, true>, "Set a key's time to live in seconds";
    "pexpire", -3, "2.6.0", expire::<1, true>, "Set a key's time to live in milliseconds";
    "expireat", -3, "1.2.0", expire::<1000, false>,
        "Set the expiration for a key as a UNIX timestamp";
    "pexpireat", -3, "2.6.0", expire::<1, false>,
        "Set the expiration for a key as a UNIX timestamp specified in milliseconds";
    "persist", 2, "2.2.0", persist, "Remove the expiration from a key";
    ["generic": (READ | FAST), ONE]
    "ttl", 2, "1.0.0", ttl, "Get the time to live for a key in seconds";
    "pttl", 2, "2.6.0", pttl, "Get the time to live for a key in milliseconds";
    "expiretime", 2, "7.0.0", expiretime, "Get the expiration Unix timestamp for a key";
    "pexpiretime", 2, "7.0.0", pexpiretime,
        "Get the expiration Unix timestamp for a key in milliseconds";
    ["server": (FAST | ANYTIME), NONE]
    "time", 1, "2.6.0", time, "Return the current server time";
};

/// The conditions of EXPIRE and similar commands.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    is_nx: bool,
    is_xx: bool,
    is_gt: bool,
    is_lt: bool,
}

impl Conditions {
    fn read(words: &[&[u8]]) -> Result<Self> {
        let mut conditions = Self::default();
        for word in words {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => conditions.is_nx = true,
                b"xx" => conditions.is_xx = true,
                b"gt" => conditions.is_gt = true,
                b"lt" => conditions.is_lt = true,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(fail_with(format!("ERR Unsupported option {word}")));
                }
            }
        }
        let Self { is_nx, is_xx, is_gt, is_lt } = conditions;
        if is_nx && (is_xx || is_gt || is_lt) {
            return Err(fail(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if is_gt && is_lt {
            return Err(fail("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// Whether the expiry time `former` may become `at_ms`.
    fn hold(self, former: Option<u64>, at_ms: i64) -> bool {
        let former = former.map(|former| former as i64);
        !(self.is_nx && former.is_some()
            || self.is_xx && former.is_none()
            || self.is_gt && former.is_none_or(|former| at_ms <= former)
            || self.is_lt && former.is_some_and(|former| at_ms >= former))
    }
}

fn expire<const UNIT_MS: i64, const IS_RELATIVE: bool>(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
) -> Result<()> {
    let key = arguments[1];
    let conditions = Conditions::read(&arguments[3..])?;
    let time = decimal::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)?;
    let now_ms = context.transaction.now_ms();
    let at_ms = match time.checked_mul(UNIT_MS) {
        Some(time_ms) if IS_RELATIVE => time_ms.checked_add(now_ms as i64),
        Some(time_ms) => Some(context.transaction.store().clock().by_store(time_ms)),
        None => None,
    };
    let at_ms = at_ms.ok_or_else(|| {
        let name = String::from_utf8_lossy(arguments[0]).to_ascii_lowercase();
        fail_with(format!("ERR invalid expire time in '{name}' command"))
    })?;
    let former =
        context.transaction.head(context.space, key, |head| head.map(|head| head.expires_at))?;
    let is_done = former.is_some_and(|former| conditions.hold(former, at_ms));
    if is_done {
        match u64::try_from(at_ms).ok().filter(|&at_ms| at_ms > now_ms) {
            Some(at_ms) => {
                context.transaction.change_expiry(context.space, key, Some(at_ms))?;
            }
            None => {
                context.transaction.remove_head(context.space, key)?;
            }
        }
    }
    context.reply.integer(i64::from(is_done));
    Ok(())
}

fn ttl(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    reply_time(context, arguments, |context, at_ms| {
        let left_ms = at_ms.saturating_sub(context.transaction.now_ms());
        (left_ms.saturating_add(500) / 1000) as i64
    })
}

fn pttl(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    reply_time(context, arguments, |context, at_ms| {
        at_ms.saturating_sub(context.transaction.now_ms()) as i64
    })
}

fn expiretime(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    reply_time(context, arguments, |context, at_ms| {
        context.transaction.store().clock().by_system(at_ms).saturating_add(500) / 1000
    })
}

fn pexpiretime(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    reply_time(context, arguments, |context, at_ms| {
        context.transaction.store().clock().by_system(at_ms)
    })
}

/// Replies the result of `time` on the expiry time; -1 for a key without one, -2 without a key.
fn reply_time(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    time: impl FnOnce(&Context<'_, '_>, u64) -> i64,
) -> Result<()> {
    let expires_at = context
        .transaction
        .head(context.space, arguments[1], |head| head.map(|head| head.expires_at))?;
    let time = match expires_at {
        Some(Some(at_ms)) => time(context, at_ms),
        Some(None) => -1,
        None => -2,
    };
    context.reply.integer(time);
    Ok(())
}

fn persist(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let expires = context.transaction.head(context.space, arguments[1], |head| {
        head.is_some_and(|head| head.expires_at.is_some())
    })?;
    if expires {
        context.transaction.change_expiry(context.space, arguments[1], None)?;
    }
    context.reply.integer(i64::from(expires));
    Ok(())
}

fn time(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    context.reply.array(2);
    context.reply.bulk(now.as_secs().to_string().as_bytes());
    context.reply.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}
