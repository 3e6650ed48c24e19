//! Traps of `traps.md`; each test's name says which.
