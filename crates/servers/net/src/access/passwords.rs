//! The passwords of one user, as SHA-256 hashes in hexadecimal.

use sha2::{Digest, Sha256};

/// The hash of a password, in hexadecimal.
pub fn hash(password: &[u8]) -> String {
    hex::encode(Sha256::digest(password))
}

/// Whether two texts are equal. The time does not show where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let difference =
        one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && difference == 0
}

/// The passwords of one user. By default no password is right.
#[derive(Clone, Debug, Default)]
pub struct Passwords {
    is_none_needed: bool,
    hashes: Vec<String>,
}

impl Passwords {
    /// Whether every password is right.
    pub fn is_none_needed(&self) -> bool {
        self.is_none_needed
    }

    /// Removes all passwords, and sets whether none is needed.
    pub fn clear(&mut self, is_none_needed: bool) {
        self.is_none_needed = is_none_needed;
        self.hashes.clear();
    }

    /// Adds the password with this hash.
    pub fn add(&mut self, hash: String) {
        if !self.hashes.contains(&hash) {
            self.hashes.push(hash);
        }
        self.is_none_needed = false;
    }

    /// Removes the password with this hash, and returns whether it existed.
    pub fn remove(&mut self, hash: &str) -> bool {
        let at = self.hashes.iter().position(|known| known == hash);
        at.map(|at| self.hashes.remove(at)).is_some()
    }

    /// Makes `password` the only password. An empty password means that none is needed.
    pub fn set_only(&mut self, password: &[u8]) {
        self.clear(password.is_empty());
        if !password.is_empty() {
            self.add(hash(password));
        }
    }

    /// The hashes of the right passwords.
    pub fn hashes(&self) -> &[String] {
        &self.hashes
    }

    /// Whether the password with this hash is right.
    pub fn admits(&self, hash: &str) -> bool {
        // All hashes are compared, so the time does not show which one matches.
        let found = self.hashes.iter().fold(false, |found, known| found | is_same(known, hash));
        self.is_none_needed || found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hashed() {
        let mut passwords = Passwords::default();
        assert!(!passwords.admits(&hash(b"p1")));
        passwords.add(hash(b"p1"));
        let known = "f64551fcd6f07823cb87971cfb91446425da18286b3ab1ef935e0cbd7a69f68a";
        assert_eq!(passwords.hashes(), [known]);
        assert!(passwords.admits(&hash(b"p1")) && !passwords.admits(&hash(b"p2")));
        assert!(passwords.remove(known) && !passwords.remove(known));
        assert!(!passwords.admits(&hash(b"p1")));
        passwords.set_only(b"");
        assert!(passwords.is_none_needed() && passwords.admits(&hash(b"p1")));
    }
}
