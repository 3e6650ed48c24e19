//! Who may do what: users, their passwords, and the rules of Redis's ACL.
//!
//! * `rules.rs`: what a user may do, and the words that say so.
//! * `access.rs`: what a command does with each of its keys.
//! * `log.rs`: what was denied lately.
//!
//! A connection holds its user. Whether that user may do everything is one flag, so for the default
//! user of a server without rules the check is a load and a branch. Else the rules are looked at
//! under a lock for reading. What is set of a user holds for its connections at once.

pub(crate) mod access;
mod log;
pub(crate) mod rules;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::catalog::Catalog;

pub(crate) use self::access::words as access_words;
pub(crate) use self::log::{Entry, Log};
use self::rules::{Denied, Rules};
use crate::spec::{Arguments, Spec};

/// The user that nobody has to name.
pub const DEFAULT: &str = "default";

/// A user.
#[derive(Debug)]
pub(crate) struct User {
    /// Its name.
    pub name: String,
    rules: RwLock<Rules>,
    /// Whether the rules allow everything.
    is_unrestricted: AtomicBool,
    /// Whether anybody is this user without a password.
    is_open: AtomicBool,
}

impl User {
    fn new(name: &str, rules: Rules) -> Self {
        let user = Self {
            name: name.to_owned(),
            rules: RwLock::new(rules.clone()),
            is_unrestricted: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
        };
        user.set(rules);
        user
    }

    /// A user who may do everything and needs no password.
    pub(crate) fn unrestricted(catalog: &'static Catalog) -> Self {
        Self::new(DEFAULT, Rules::of_everyone(catalog))
    }

    fn set(&self, rules: Rules) {
        let mut kept = self.rules.write();
        self.is_unrestricted.store(rules.is_unrestricted(), Ordering::Release);
        self.is_open.store(rules.is_open(), Ordering::Release);
        *kept = rules;
    }

    /// Its rules.
    pub(crate) fn rules(&self) -> Rules {
        self.rules.read().clone()
    }

    /// Whether it may do everything.
    #[inline]
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.is_unrestricted.load(Ordering::Acquire)
    }

    /// Whether it may run a command with these arguments.
    pub(crate) fn check(
        &self,
        command: &'static Spec,
        arguments: &Arguments<'_>,
    ) -> Result<(), Denied> {
        if self.is_unrestricted() {
            return Ok(());
        }
        self.rules.read().check(command, arguments)
    }
}

/// All users, and what was denied.
#[derive(Debug)]
pub struct Acl {
    catalog: &'static Catalog,
    default: Arc<User>,
    users: Mutex<BTreeMap<String, Arc<User>>>,
    /// What was denied lately.
    pub(crate) log: Mutex<Log>,
}

impl Acl {
    /// That of a new server: its default user may do everything.
    pub(crate) fn new(catalog: &'static Catalog) -> Self {
        let default = Arc::new(User::unrestricted(catalog));
        let users = BTreeMap::from([(DEFAULT.to_owned(), Arc::clone(&default))]);
        Self { catalog, default, users: Mutex::new(users), log: Mutex::default() }
    }

    /// The user that a connection is at first.
    pub(crate) fn default_user(&self) -> Arc<User> {
        Arc::clone(&self.default)
    }

    /// Whether a client has to say who it is.
    #[inline]
    pub fn asks_for_password(&self) -> bool {
        !self.default.is_open.load(Ordering::Acquire)
    }

    /// The user of that name.
    pub(crate) fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.lock().get(name).cloned()
    }

    /// All users, by name.
    pub(crate) fn users(&self) -> Vec<Arc<User>> {
        self.users.lock().values().cloned().collect()
    }

    /// The user of that name, if it is on and the password is one of its own.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = std::str::from_utf8(name).ok().and_then(|name| self.user(name));
        // The hash is computed in any case, so that time does not tell which users there are.
        let hash = rules::hash(password);
        user.filter(|user| user.rules.read().admits(&hash))
    }

    /// Changes a user, or makes a new one; all rules or none.
    ///
    /// # Errors
    ///
    /// The rule that is wrong, and why.
    pub(crate) fn set_user(&self, name: &str, rules: &[&[u8]]) -> Result<(), (Vec<u8>, String)> {
        let joined = rules::join_selectors(rules)?;
        let mut users = self.users.lock();
        let known = users.get(name).cloned();
        let mut set = known.as_ref().map_or_else(|| Rules::new(self.catalog), |user| user.rules());
        for rule in joined {
            set.apply(&rule).map_err(|why| (rule, why))?;
        }
        match known {
            Some(user) => user.set(set),
            None => {
                users.insert(name.to_owned(), Arc::new(User::new(name, set)));
            }
        }
        Ok(())
    }

    /// Removes a user; whether it was there.
    pub(crate) fn remove_user(&self, name: &str) -> bool {
        let removed = self.users.lock().remove(name);
        // Whoever holds it may do nothing any more.
        removed.map(|user| user.set(Rules::new(self.catalog))).is_some()
    }

    /// Makes `password` the default user's only one; with an empty one, nobody needs one.
    pub fn set_default_password(&self, password: &[u8]) {
        let mut set = self.default.rules();
        set.set_only_password(password);
        self.default.set(set);
    }

    /// Makes what a file says the users, in place of all that there are.
    ///
    /// # Errors
    ///
    /// What is wrong, with the lines' numbers; then nothing has changed.
    pub fn load(&self, text: &str) -> Result<(), String> {
        let (mut loaded, mut errors) = (BTreeMap::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_line(line, self.catalog) {
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
        let mut users = self.users.lock();
        for (name, user) in std::mem::take(&mut *users) {
            if name != DEFAULT && !loaded.contains_key(&name) {
                user.set(Rules::new(self.catalog));
            } else {
                users.insert(name, user);
            }
        }
        if !loaded.contains_key(DEFAULT) {
            self.default.set(Rules::of_everyone(self.catalog));
        }
        for (name, rules) in loaded {
            match users.get(&name) {
                Some(user) => user.set(rules),
                None => {
                    let user = Arc::new(User::new(&name, rules));
                    users.insert(name, user);
                }
            }
        }
        Ok(())
    }

    /// All users, a line each, as [`load`](Self::load) reads them.
    pub(crate) fn save(&self) -> String {
        let lines = self.users();
        lines
            .iter()
            .map(|user| format!("user {} {}\n", user.name, user.rules().describe()))
            .collect()
    }
}

/// Replaces a file of users, as a whole or not at all.
pub(crate) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let beside = PathBuf::from(name);
    let mut options = OpenOptions::new();
    // Hashes of passwords are nobody else's business.
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

fn parse_line(line: &str, catalog: &'static Catalog) -> Result<(String, Rules), String> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("user") {
        return Err("a line begins with the word 'user' and a name".into());
    }
    let name = words.next().ok_or("the user's name is missing")?;
    let mut rules = Rules::new(catalog);
    for word in words {
        rules.apply(word.as_bytes()).map_err(|why| format!("{word}: {why}"))?;
    }
    Ok((name.to_owned(), rules))
}
