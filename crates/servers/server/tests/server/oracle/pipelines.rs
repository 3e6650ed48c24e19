//! Pipelines: commands that are sent before the replies to the earlier ones.

use super::{hashes, sets, sorted_sets, strings, transactions};
use crate::common::oracle::Oracle;

/// The numbers of commands that are sent at once: a few, and more than the server executes
/// together.
const TOGETHER: [usize; 2] = [3, 40];

#[test]
fn generated_commands() {
    for together in TOGETHER {
        let mut oracle = Oracle::start_with_pipelines(together);
        oracle.compare(60, 200, |random| match random.below(8) {
            0 => hashes::step(random),
            1 => sets::step(random),
            2 => sorted_sets::step(random),
            _ => strings::step(random, true),
        });
    }
}

#[test]
fn generated_transactions() {
    for together in TOGETHER {
        Oracle::start_with_pipelines(together).compare(60, 200, transactions::step);
    }
}
