//! The descriptions of all commands, by number. Modules that need descriptions but run no commands
//! use it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pando_net::stats::{Counted, Kind};

use crate::spec::{Spec, flags};

/// A command or subcommand, with its parent.
#[derive(Clone, Copy)]
pub(crate) struct Listed {
    /// The command.
    pub command: &'static Spec,
    /// The parent of a subcommand.
    pub parent: Option<&'static Spec>,
}

impl Listed {
    /// The name, as `client|id` for a subcommand.
    pub(crate) fn name(self) -> String {
        match self.parent {
            Some(parent) => format!("{}|{}", parent.name, self.command.name),
            None => self.command.name.to_owned(),
        }
    }
}

/// The kind under which the command's time is counted.
#[inline]
pub(crate) fn kind_of(command: &Spec) -> Kind {
    if command.flags.has(flags::WRITE) {
        Kind::Write
    } else if command.flags.has(flags::READ) {
        Kind::Read
    } else {
        Kind::Other
    }
}

/// All commands. The number of a command is its index.
pub(crate) struct Catalog {
    listed: Vec<Listed>,
    counted: Vec<Counted>,
    /// The number of each command, by the address of its static description.
    by_address: HashMap<usize, usize, BuildHasherDefault<AddressHasher>>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Catalog").field("counted", &self.counted).finish_non_exhaustive()
    }
}

impl Catalog {
    /// The catalog of these commands, each followed by its subcommands.
    pub(crate) fn new(listed: Vec<Listed>) -> Self {
        let addresses = listed.iter().map(|one| std::ptr::from_ref(one.command).addr());
        let by_address = addresses.zip(0..).collect();
        let counted = listed
            .iter()
            .map(|one| Counted { name: one.name(), kind: kind_of(one.command) })
            .collect();
        Self { listed, counted, by_address }
    }

    /// All commands, each followed by its subcommands.
    pub(crate) fn listed(&self) -> impl Iterator<Item = Listed> {
        self.listed.iter().copied()
    }

    /// The commands without the subcommands.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &'static Spec> {
        self.listed().filter(|listed| listed.parent.is_none()).map(|listed| listed.command)
    }

    pub(crate) fn subcommands(&self, of: &Spec) -> impl Iterator<Item = &'static Spec> {
        let is =
            move |listed: &Listed| listed.parent.is_some_and(|parent| std::ptr::eq(parent, of));
        self.listed().filter(is).map(|listed| listed.command)
    }

    /// Finds a command by its name, in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Spec> {
        self.commands().find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
    }

    /// Finds a subcommand by its name, in any case.
    pub(crate) fn find_subcommand(&self, of: &Spec, name: &[u8]) -> Option<&'static Spec> {
        self.subcommands(of).find(|one| name.eq_ignore_ascii_case(one.name.as_bytes()))
    }

    /// The commands in the form that the statistics need.
    pub(crate) fn counted(&self) -> &[Counted] {
        &self.counted
    }

    #[inline]
    pub(crate) fn number_of(&self, command: &'static Spec) -> usize {
        let address = std::ptr::from_ref(command).addr();
        self.by_address.get(&address).copied().unwrap_or(usize::MAX)
    }

    /// The full name of a command or subcommand.
    pub(crate) fn full_name(&self, command: &'static Spec) -> String {
        let counted = self.counted.get(self.number_of(command));
        counted.map_or_else(|| command.name.to_owned(), |counted| counted.name.clone())
    }
}

/// Hashes addresses of static data. Clients cannot choose them, so weak mixing is enough.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // After the multiplication by the golden ratio, the upper bits depend on all lower ones.
        let mixed = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
