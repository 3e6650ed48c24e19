//! Users with the rules of Redis's ACL. The layer below, `pando_net::access`, does not know the
//! names of commands.
//!
//! * `rules.rs`: the words of rules, and the check of a command.
//! * `access.rs`: the access of a command to each of its keys.

pub(crate) mod access;
pub(crate) mod rules;

use std::collections::BTreeMap;

use pando_net::access::Users;

pub(crate) use self::access::words as access_words;
use self::rules::Words;
pub(crate) use self::rules::{Denied, Rules, User};
use crate::catalog::Catalog;

/// The users of a server.
pub(crate) type Acl = Users<Words>;

/// The users of a new server: only the default user, who may do everything.
pub(crate) fn new(catalog: &Catalog) -> Acl {
    Users::new(rules::everything(catalog))
}

/// Changes a user, or creates one. Applies all rules or none.
///
/// # Errors
///
/// The wrong rule, and the reason.
pub(crate) fn set_user(
    acl: &Acl,
    catalog: &Catalog,
    name: &str,
    rules: &[&[u8]],
) -> Result<(), (Vec<u8>, String)> {
    let joined = rules::join_selectors(rules)?;
    acl.change(name, |rights| {
        let mut apply =
            |rule: Vec<u8>| rules::apply(rights, catalog, &rule).map_err(|why| (rule, why));
        joined.into_iter().try_for_each(&mut apply)
    })
}

/// Replaces all users by those of a file's text.
///
/// # Errors
///
/// The wrong lines with their numbers; then nothing has changed.
pub(crate) fn load(acl: &Acl, catalog: &Catalog, text: &str) -> Result<(), String> {
    let (mut loaded, mut errors) = (BTreeMap::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse_line(line, catalog) {
            Ok((name, _)) if loaded.contains_key(&name) => {
                errors.push(format!("{}: duplicate user '{name}'", number + 1));
            }
            Ok((name, rules)) => {
                loaded.insert(name, rules);
            }
            Err(why) => errors.push(format!("{}: {why}", number + 1)),
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("; "));
    }
    acl.replace_all(loaded);
    Ok(())
}

fn parse_line(line: &str, catalog: &Catalog) -> Result<(String, Rules), String> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("user") {
        return Err("each line must begin with 'user' and a name".into());
    }
    let name = words.next().ok_or("the user's name is missing")?;
    let mut rules = Rules::default();
    for word in words {
        rules::apply(&mut rules, catalog, word.as_bytes())
            .map_err(|why| format!("{word}: {why}"))?;
    }
    Ok((name.to_owned(), rules))
}

/// All users, one line each, in the form of ACL LIST and [`load`].
pub(crate) fn lines(acl: &Acl) -> Vec<String> {
    let users = acl.all();
    let line = |user: &std::sync::Arc<User>| {
        format!("user {} {}", user.name, user.with_rights(rules::describe))
    };
    users.iter().map(line).collect()
}
