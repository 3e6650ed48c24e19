//! Records of combined words, if there is not enough text.

use std::collections::BTreeSet;

use super::data_set::Builder;

const MIN_WORD_BYTES: usize = 3;
const MAX_WORD_BYTES: usize = 16;
const MAX_WORDS: usize = 10_000;
/// Enough for any number of records, even if there is no text at all.
const KNOWN_WORDS: [&str; 16] = [
    "alder", "ash", "aspen", "beech", "birch", "cedar", "elm", "fir", "hazel", "hornbeam", "larch",
    "lime", "maple", "oak", "pine", "willow",
];

/// Adds records until there are `wanted`: the key is a combination of words, each used once, the
/// value has the same words backwards.
pub fn fill(builder: &mut Builder, wanted: usize) {
    let words = collect(builder);
    let missing = wanted.saturating_sub(builder.len());
    let mut words_in_a_key = 1;
    while words.len().pow(words_in_a_key) < missing {
        words_in_a_key += 1;
    }
    for number in 0..missing {
        // The digits of the number, in base words.len(): no two numbers share them.
        let mut rest = number;
        let mut combination = Vec::new();
        for _ in 0..words_in_a_key {
            combination.push(words[rest % words.len()].as_str());
            rest /= words.len();
        }
        let value = combination.join(" ");
        combination.reverse();
        let key = format!("words:{}", combination.join(" "));
        builder.add(key.as_bytes(), value.as_bytes());
    }
}

fn collect(builder: &Builder) -> Vec<String> {
    let mut words: BTreeSet<String> = KNOWN_WORDS.iter().map(|&word| word.to_owned()).collect();
    for value in builder.values() {
        for word in value.split(|byte| !byte.is_ascii_alphabetic()) {
            if (MIN_WORD_BYTES..=MAX_WORD_BYTES).contains(&word.len()) && words.len() < MAX_WORDS {
                words.insert(String::from_utf8_lossy(word).to_ascii_lowercase());
            }
        }
    }
    words.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_distinct() {
        let mut builder = Builder::default();
        builder.add(b"key", b"The quick brown fox; the lazy dog!");
        fill(&mut builder, 5000);
        assert_eq!(builder.len(), 5000);
        let data = builder.finish();
        assert_eq!(data.len(), 5000);
        assert!(data.records().any(|(key, _)| key.starts_with(b"words:") && key.ends_with(b"fox")));
    }
}
