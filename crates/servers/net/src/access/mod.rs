//! Users: their passwords, their rights, and the log of refused accesses. It does not depend on a
//! protocol: a command is a number, and the protocol's texts of rules are stored, but not parsed.
//!
//! * `passwords.rs`: passwords, as hashes.
//! * `grants.rs`: the commands and keys that a user may use.
//! * `refusals.rs`: the log of refused accesses.
//!
//! A connection holds its user. One flag says whether the user may do everything. So the check of
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

/// The user of a connection without authentication.
pub const DEFAULT: &str = "default";

/// The rights of one user. By default nothing is allowed.
#[derive(Clone, Debug, Default)]
pub struct Rights<Words> {
    /// Whether clients may authenticate as this user.
    pub is_on: bool,
    /// The user's passwords.
    pub passwords: Passwords,
    /// The commands and keys that the user may use.
    pub grants: Grants,
    /// The data with which the protocol writes the rules as text.
    pub words: Words,
}

impl<Words> Rights<Words> {
    /// Whether no password is needed.
    pub fn is_open(&self) -> bool {
        self.is_on && self.passwords.is_none_needed()
    }

    /// Whether a client may authenticate with a password of this hash.
    pub fn admits(&self, hash: &str) -> bool {
        // The hash is compared first, so the time does not depend on whether the user is on.
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

    /// A copy of the rights.
    pub fn rights(&self) -> Rights<Words> {
        self.rights.read().clone()
    }

    /// Lends the rights under a read lock.
    pub fn with_rights<Answer>(&self, look: impl FnOnce(&Rights<Words>) -> Answer) -> Answer {
        look(&self.rights.read())
    }

    /// Whether it may do everything.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted.load(Ordering::Acquire)
    }
}

/// All users, and the log of refused accesses.
#[derive(Debug)]
pub struct Users<Words> {
    everything: Rights<Words>,
    default: Arc<User<Words>>,
    users: Mutex<BTreeMap<String, Arc<User<Words>>>>,
    /// The log of refused accesses.
    pub refusals: Mutex<Refusals>,
}

impl<Words: Clone + Default> Users<Words> {
    /// The users of a new server: the default user, with the rights `everything`.
    pub fn new(everything: Rights<Words>) -> Self {
        let default = Arc::new(User::new(DEFAULT, everything.clone()));
        let users = BTreeMap::from([(DEFAULT.to_owned(), Arc::clone(&default))]);
        Self { everything, default, users: Mutex::new(users), refusals: Mutex::default() }
    }

    /// The user of a new connection.
    pub fn default_user(&self) -> Arc<User<Words>> {
        Arc::clone(&self.default)
    }

    /// Whether a client must authenticate first.
    #[inline]
    pub fn needs_password(&self) -> bool {
        !self.default.is_open.load(Ordering::Acquire)
    }

    /// The user with this name.
    pub fn user(&self, name: &str) -> Option<Arc<User<Words>>> {
        self.users.lock().get(name).cloned()
    }

    /// All users, in order of their names.
    pub fn all(&self) -> Vec<Arc<User<Words>>> {
        self.users.lock().values().cloned().collect()
    }

    /// The user with this name, if it is on and the password is right.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User<Words>>> {
        let user = std::str::from_utf8(name).ok().and_then(|name| self.user(name));
        // The hash is always computed, so the time does not show which users exist.
        let hash = hash(password);
        user.filter(|user| user.rights.read().admits(&hash))
    }

    /// Changes the rights of a user. A missing user is created.
    ///
    /// # Errors
    ///
    /// An error of `change`; then nothing has changed.
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

    /// Removes a user, and returns whether it existed. A connection that holds it may do nothing
    /// from then on.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.users.lock().remove(name);
        removed.map(|user| user.set(Rights::default())).is_some()
    }

    /// Makes `password` the only password of the default user. An empty password means that none is
    /// needed.
    pub fn set_default_password(&self, password: &[u8]) {
        let mut rights = self.default.rights();
        rights.passwords.set_only(password);
        self.default.set(rights);
    }

    /// Replaces all users. If the default user is missing in `loaded`, it gets all rights.
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

/// Replaces the file of users, completely or not at all. Only its owner may read it, because it
/// contains hashes of passwords.
///
/// # Errors
///
/// An error of the file system.
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
