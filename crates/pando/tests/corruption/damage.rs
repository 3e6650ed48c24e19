//! Damage to a copy of a pool.

use pando_index::random::Random;

use crate::images::Image;

/// Random numbers with a seed from the kind and the number of a case.
pub struct Choices(Random);

impl Choices {
    pub fn new(kind: &str, case: u64) -> Self {
        let seed = kind
            .bytes()
            .fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Self(Random::new(seed ^ case.wrapping_mul(0xD134_2543_DE82_EF95)))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub fn pick<'list, T>(&mut self, list: &'list [T]) -> &'list T {
        self.0.pick(list)
    }
}

/// A copy of the image in which one to three words are damaged: in half of the cases metadata.
pub fn damaged(image: &Image, choices: &mut Choices) -> Vec<u8> {
    let mut bytes = image.bytes.clone();
    let places = if choices.below(2) == 0 { &image.metadata } else { &image.live };
    for _ in 0..1 + choices.below(4).saturating_sub(1) {
        let off = *choices.pick(places) as usize;
        let word: [u8; 8] = bytes[off..off + 8].try_into().expect("eight bytes");
        let damaged = other(u64::from_le_bytes(word), image, choices);
        bytes[off..off + 8].copy_from_slice(&damaged.to_le_bytes());
    }
    bytes
}

/// The damaged form of `word`.
fn other(word: u64, image: &Image, choices: &mut Choices) -> u64 {
    let low_bits = (1 << 48) - 1;
    match choices.below(10) {
        0..=3 => word ^ 1 << choices.below(64),
        // Another word of the pool.
        4 | 5 => {
            let off = *choices.pick(&image.metadata) as usize;
            u64::from_le_bytes(image.bytes[off..off + 8].try_into().expect("eight bytes"))
        }
        // Another target, with the other bits unchanged.
        6 => word & !low_bits | choices.below(image.bytes.len() as u64 + 65_536),
        7 => word & !low_bits | (*choices.pick(&image.live) & !63),
        8 => 0,
        _ => u64::MAX,
    }
}
