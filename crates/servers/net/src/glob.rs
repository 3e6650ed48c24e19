//! Patterns of keys and names, as in Redis: `*` matches any bytes, `?` any byte, `[a-c]` and
//! `[^a-c]` a byte of a class, `\x` the byte x.
//!
//! The time is at most proportional to the product of both lengths. Only the last of several `*` is
//! tried again, because it can match all bytes that an earlier one could leave to it.

/// Whether all of `string` matches `pattern`.
///
/// As in Redis, only the empty pattern matches the empty string, so callers check for `*` first. A
/// class without an end ends with the pattern.
pub fn matches(pattern: &[u8], string: &[u8], ignores_case: bool) -> bool {
    if string.is_empty() {
        return pattern.is_empty();
    }
    let (mut in_pattern, mut in_string) = (0, 0);
    // The positions after the last `*`, and of the first byte that it does not match.
    let mut retry: Option<(usize, usize)> = None;
    while let Some(&byte) = string.get(in_string) {
        let rest = &pattern[in_pattern..];
        if rest.first() == Some(&b'*') {
            in_pattern += rest.iter().take_while(|&&byte| byte == b'*').count();
            if in_pattern == pattern.len() {
                return true;
            }
            retry = Some((in_pattern, in_string));
        } else if let Some(taken) = match_byte(rest, byte, ignores_case) {
            in_pattern += taken;
            in_string += 1;
        } else if let Some((behind_star, begin)) = retry {
            (in_pattern, in_string) = (behind_star, begin + 1);
            retry = Some((in_pattern, in_string));
        } else {
            return false;
        }
    }
    pattern[in_pattern..].iter().all(|&byte| byte == b'*')
}

/// The length of the part of the pattern that matches the byte; `None` if it does not match.
fn match_byte(pattern: &[u8], byte: u8, ignores_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignores_case { byte.to_ascii_lowercase() } else { byte };
    let is_same = |other: u8| fold(other) == fold(byte);
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ref class @ ..] => {
            let (is_in, taken) = match_class(class, fold(byte), fold);
            is_in.then_some(1 + taken)
        }
        [b'\\', escaped, ..] => is_same(escaped).then_some(2),
        [literal, ..] => is_same(literal).then_some(1),
    }
}

/// Whether the byte is in the class, and the length of the class's text. The text begins after `[`.
fn match_class(class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let is_negated = class.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut is_in = false;
    loop {
        match class[at..] {
            [b'\\', escaped, ..] => {
                is_in |= fold(escaped) == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [] => break,
            [one, b'-', other, ..] => {
                let (one, other) = (fold(one), fold(other));
                is_in |= (one.min(other)..=one.max(other)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                is_in |= fold(literal) == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated, at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Matches as the module describes, by plain recursion, in exponential time.
    fn matches_plainly(pattern: &[u8], string: &[u8]) -> bool {
        match pattern {
            [] => string.is_empty(),
            [b'*', rest @ ..] => {
                (0..=string.len()).any(|taken| matches_plainly(rest, &string[taken..]))
            }
            _ => string.split_first().is_some_and(|(&byte, behind)| {
                match_byte(pattern, byte, false)
                    .is_some_and(|taken| matches_plainly(&pattern[taken..], behind))
            }),
        }
    }

    #[test]
    fn patterns_match_as_redis_has_it() {
        for (pattern, string, expected) in [
            ("", "", true),
            ("*", "", false),
            ("*", "a", true),
            ("a*", "a", true),
            ("a**", "a", true),
            ("?", "a", true),
            ("??", "a", false),
            ("[abc]", "b", true),
            ("[^abc]", "b", false),
            ("[a-c]", "b", true),
            ("[c-a]", "b", true),
            ("[a-", "-", true),
            ("[a-", "a", true),
            ("[ab", "b", true),
            ("[", "a", false),
            ("[^", "a", true),
            ("[]a]", "a", false),
            ("[\\]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("\\", "\\", true),
            ("*ab*ab", "abaab", true),
            ("*a?c*", "xxabcxx", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hallo", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), string.as_bytes(), false),
                expected,
                "{pattern}"
            );
        }
        assert!(matches(b"MAX[A-C]*", b"maxbytes", true));
        assert!(!matches(b"MAX*", b"maxbytes", false));
    }

    #[test]
    fn many_stars_take_no_long_time() {
        let pattern = [&b"*a".repeat(5000)[..], b"b"].concat();
        let begin = std::time::Instant::now();
        assert!(!matches(&pattern, &b"a".repeat(20_000), false));
        assert!(begin.elapsed().as_secs() < 10);
    }

    proptest! {
        #[test]
        fn it_says_what_the_plain_way_says(
            pattern in prop::collection::vec(prop::sample::select(&b"ab*?[]^-\\"[..]), 0..9),
            string in prop::collection::vec(prop::sample::select(&b"ab-]"[..]), 1..9),
        ) {
            prop_assert_eq!(matches(&pattern, &string, false), matches_plainly(&pattern, &string));
        }
    }
}
