//! Users: their passwords, what they may do, and what was refused to them. It knows no protocol: a
//! command is a number, and the words in which a protocol states rules are kept and not read.
//!
//! * `passwords.rs`: passwords, as hashes.
//! * `grants.rs`: the commands and keys that a user may use.
//! * `refusals.rs`: the log of refused accesses.
//!
//! A connection holds its user. One flag says whether that user may do everything, so the check of
//! the default user of a server without rules costs a load and a branch. The rights of other users
//! are read under a lock. A change of a user applies to its connections at once.

mod grants;
mod passwords;
mod refusals;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

pub use self::grants::{Access, Grants, KeyPattern};
pub use self::passwords::{Passwords, hash};
pub use self::refusals::{Refusal, Refusals};

/// The user of a connection that names none.
pub const DEFAULT: &str = "default";

/// What one user may do; by default nothing.
#[derive(Clone, Debug, Default)]
pub struct Rights<Words> {
    /// Whether a client may become this user.
    pub is_on: bool,
    /// The user's passwords.
    pub passwords: Passwords,
    /// The commands and keys that the user may use.
    pub grants: Grants,
    /// What the protocol keeps so that it can state the rules again.
    pub words: Words,
}

impl<Words> Rights<Words> {
    /// Whether every client may be this user without a password.
    pub fn is_open(&self) -> bool {
        self.is_on && self.passwords.is_none_needed()
    }

    /// Whether a client with a password of this hash may be this user.
    pub fn admits(&self, hash: &str) -> bool {
        // The hash is compared first, so that the time taken is the same for a user that is off.
        let is_right = self.passwords.admits(hash);
        self.is_on && is_right
    }
}

/// A user.
#[derive(Debug)]
pub struct User<Words> {
    /// Its name.
    pub name: String,
    rights: RwLock<Rights<Words>>,
    is_unrestricted: AtomicBool,
    is_open: AtomicBool,
}

impl<Words: Clone> User<Words> {
    fn new(name: &str, rights: Rights<Words>) -> Self {
        Self {
            name: name.to_owned(),
            is_unrestricted: AtomicBool::new(rights.grants.is_unrestricted()),
            is_open: AtomicBool::new(rights.is_open()),
            rights: RwLock::new(rights),
        }
    }

    fn set(&self, rights: Rights<Words>) {
        let mut kept = self.rights.write();
        self.is_unrestricted.store(rights.grants.is_unrestricted(), Ordering::Release);
        self.is_open.store(rights.is_open(), Ordering::Release);
        *kept = rights;
    }

    /// A copy of its rights.
    pub fn rights(&self) -> Rights<Words> {
        self.rights.read().clone()
    }

    /// Lends its rights, under a lock for reading.
    pub fn with_rights<Answer>(&self, look: impl FnOnce(&Rights<Words>) -> Answer) -> Answer {
        look(&self.rights.read())
    }

    /// Whether it may do everything.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted.load(Ordering::Acquire)
    }
}

/// All users, and the log of what was refused to them.
#[derive(Debug)]
pub struct Users<Words> {
    everything: Rights<Words>,
    default: Arc<User<Words>>,
    users: Mutex<BTreeMap<String, Arc<User<Words>>>>,
    /// What was refused lately.
    pub refusals: Mutex<Refusals>,
}

impl<Words: Clone + Default> Users<Words> {
    /// The users of a new server: the default user, who has `everything`.
    pub fn new(everything: Rights<Words>) -> Self {
        let default = Arc::new(User::new(DEFAULT, everything.clone()));
        let users = BTreeMap::from([(DEFAULT.to_owned(), Arc::clone(&default))]);
        Self { everything, default, users: Mutex::new(users), refusals: Mutex::default() }
    }

    /// The user of a new connection.
    pub fn default_user(&self) -> Arc<User<Words>> {
        Arc::clone(&self.default)
    }

    /// Whether a client must authenticate before it may do anything.
    #[inline]
    pub fn needs_password(&self) -> bool {
        !self.default.is_open.load(Ordering::Acquire)
    }

    /// The user of that name.
    pub fn user(&self, name: &str) -> Option<Arc<User<Words>>> {
        self.users.lock().get(name).cloned()
    }

    /// All users, by name.
    pub fn all(&self) -> Vec<Arc<User<Words>>> {
        self.users.lock().values().cloned().collect()
    }

    /// The user of that name, if it is on and the password is one of its own.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User<Words>>> {
        let user = std::str::from_utf8(name).ok().and_then(|name| self.user(name));
        // The hash is computed in any case, so that the time taken does not show which users exist.
        let hash = hash(password);
        user.filter(|user| user.rights.read().admits(&hash))
    }

    /// Changes the rights of a user, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// Those of `change`; then nothing has changed.
    pub fn change<E>(
        &self,
        name: &str,
        change: impl FnOnce(&mut Rights<Words>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut users = self.users.lock();
        let known = users.get(name).cloned();
        let mut rights = known.as_ref().map_or_else(Rights::default, |user| user.rights());
        change(&mut rights)?;
        match known {
            Some(user) => user.set(rights),
            None => {
                users.insert(name.to_owned(), Arc::new(User::new(name, rights)));
            }
        }
        Ok(())
    }

    /// Removes a user; whether it existed. A connection that holds it may do nothing from then on.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.users.lock().remove(name);
        removed.map(|user| user.set(Rights::default())).is_some()
    }

    /// Makes `password` the default user's only one; with an empty one, it needs none.
    pub fn set_default_password(&self, password: &[u8]) {
        let mut rights = self.default.rights();
        rights.passwords.set_only(password);
        self.default.set(rights);
    }

    /// Puts these users in place of all others. A default user that is not among them has
    /// everything.
    pub fn replace_all(&self, mut loaded: BTreeMap<String, Rights<Words>>) {
        loaded.entry(DEFAULT.to_owned()).or_insert_with(|| self.everything.clone());
        let mut users = self.users.lock();
        users.retain(|name, user| {
            let is_kept = loaded.contains_key(name);
            if !is_kept {
                user.set(Rights::default());
            }
            is_kept
        });
        for (name, rights) in loaded {
            match users.get(&name) {
                Some(user) => user.set(rights),
                None => {
                    let user = Arc::new(User::new(&name, rights));
                    users.insert(name, user);
                }
            }
        }
    }
}

/// Replaces a file of users, as a whole or not at all. Only the owner may read it, because it has
/// hashes of passwords.
///
/// # Errors
///
/// Of the file system.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let beside = PathBuf::from(name);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
