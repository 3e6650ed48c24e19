//! The shape of the Bw-tree paper's game trace: keys of 94 bytes, values of 1,200, and 7.5 reads
//! a write.
//!
//! The paper gives these means and the number of operations (27 million), nothing else. What is
//! ours: all records have the mean sizes; keys are random letters and digits; the players are
//! there before the first operation; and players are met with a zipfian skew of 0.99.

use super::Trace;
use pando_bench::key_sampler::Zipfian;
use pando_bench::rng::Rng;

/// Bytes of a key, alphanumeric.
pub const KEY_BYTES: usize = 94;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 1200;
/// Gets for each write.
pub const READS_A_WRITE: f64 = 7.5;
/// How much more popular players are met more often.
const SKEW: f64 = 0.99;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Game {
    /// Records, all there from the beginning; at least 1 and at most 2^31.
    pub players: u64,
    /// Gets and updates after that.
    pub operations: u64,
    /// Seed of keys and of operations.
    pub seed: u64,
}

impl Default for Game {
    fn default() -> Self {
        Self { players: 100_000, operations: 1_000_000, seed: 1 }
    }
}

/// The trace of `game`.
pub fn trace(game: &Game) -> Trace {
    let mut trace = Trace::new("game", KEY_BYTES, VALUE_BYTES);
    let mut rng = Rng::new(game.seed);
    let players = game.players.clamp(1, 1 << 31);
    for player in 0..players {
        // Two keys of so many letters that are equal: not in this universe.
        let key = key_of_player(&mut Rng::new(game.seed ^ player << 8));
        if let Some(key) = trace.add_key(&key) {
            trace.put(key);
        }
    }
    trace.end_of_load();
    let zipfian = Zipfian::new(players, SKEW);
    for _ in 0..game.operations {
        let player = (zipfian.rank(&mut rng) % players) as u32;
        if rng.unit() * (READS_A_WRITE + 1.0) < 1.0 {
            trace.put(player);
        } else {
            trace.get(player);
        }
    }
    trace
}

fn key_of_player(rng: &mut Rng) -> [u8; KEY_BYTES] {
    std::array::from_fn(|_| ALPHABET[rng.below(ALPHABET.len() as u64) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_papers_shape() {
        let game = Game { players: 1_000, operations: 50_000, seed: 3 };
        let first = trace(&game);
        assert_eq!(
            (first.key_count(), first.load().len(), first.steps().len()),
            (1_000, 1_000, 50_000)
        );
        assert!((first.reads_a_write() - READS_A_WRITE).abs() < 0.3, "{}", first.reads_a_write());
        assert!(first.key(999).iter().all(u8::is_ascii_alphanumeric));
        let again = trace(&game);
        assert!(
            first.steps() == again.steps() && first.key(5) == again.key(5),
            "one seed, one trace"
        );
    }
}
