//! Base64 for keys of the meta commands.
//!
//! Memcached ignores bytes that are not base64, and ends a key at its first padding. Clients may
//! depend on that. Crates for base64 are strict, so we have our own code.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in base64.
pub(crate) fn encode(bytes: &[u8], to: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut word = 0;
        for at in 0..3 {
            word = word << 8 | u32::from(group.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * at)) as usize & 63];
            to.push(if at <= group.len() { digit } else { b'=' });
        }
    }
}

fn digit(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        b'=' => 0,
        _ => return None,
    };
    Some(u32::from(value))
}

/// Decodes `text`; `None` if the result is empty or the text is incomplete.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<(u8, u32)> =
        text.iter().filter_map(|&byte| Some((byte, digit(byte)?))).collect();
    let (groups, rest) = digits.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for group in groups {
        let word = group.iter().fold(0, |word, (_, digit)| word << 6 | digit);
        let padding = group.iter().filter(|(byte, _)| *byte == b'=').count();
        if padding > 2 {
            return None;
        }
        bytes.extend_from_slice(&word.to_be_bytes()[1..4 - padding]);
        if padding > 0 {
            break;
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lenient_as_memcached_is() {
        for (text, expected) in [
            ("YQ==", Some("a")),
            ("Y!Q==", Some("a")),
            ("enp6", Some("zzz")),
            ("enp6eg==", Some("zzzz")),
            ("Y=Q=", Some("`")),
            ("YQ", None),
            ("!!!!", None),
            ("", None),
            ("Y===", None),
            ("====", None),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 1..50)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(decode(&text), Some(bytes));
        }
    }
}
