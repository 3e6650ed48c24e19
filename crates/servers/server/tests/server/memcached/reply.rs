//! Replies without necessary differences. Each cas becomes its rank in the order of first
//! appearance, and the remaining time of a value is rounded to ten seconds.

/// The values that a connection has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Each cas, in the order of its first appearance.
    pub cas: Vec<u64>,
}

impl Seen {
    /// Normalizes one or more replies, so that they can be compared.
    pub fn normalize(&mut self, reply: &[u8]) -> Vec<u8> {
        let mut normal = Vec::new();
        let mut rest = reply;
        while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
            let (line, behind) = (&rest[..end], &rest[end + 2..]);
            let data_bytes = self.line(line, &mut normal).map_or(0, |bytes| bytes + 2);
            let (data, behind) = behind.split_at(data_bytes.min(behind.len()));
            normal.extend_from_slice(data);
            rest = behind;
        }
        normal.extend_from_slice(rest);
        normal
    }

    /// Appends a line. Returns the length of the data after it, if there is any.
    fn line(&mut self, line: &[u8], normal: &mut Vec<u8>) -> Option<usize> {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
        let mut data_bytes = None;
        for (at, word) in words.iter().enumerate() {
            let is_meta = matches!(words[0], b"VA" | b"HD");
            let changed = match (words[0], at, *word) {
                (b"VALUE", 3, word) => {
                    data_bytes = number(word).map(|bytes| bytes as usize);
                    None
                }
                (b"VALUE", 4, word) => number(word).map(|cas| self.name(cas)),
                (b"VA", 1, word) => {
                    data_bytes = number(word).map(|bytes| bytes as usize);
                    None
                }
                (_, 1.., [b'c', digits @ ..]) if is_meta => {
                    number(digits).map(|cas| format!("c:{}", self.name(cas)))
                }
                (_, 1.., [b't', digits @ ..]) if is_meta => {
                    number(digits).map(|left| format!("t:{}", rounded(left)))
                }
                (b"ME", 2.., word) => self.kept(word),
                _ => None,
            };
            match changed {
                Some(changed) => normal.extend_from_slice(changed.as_bytes()),
                None => normal.extend_from_slice(word),
            }
            normal.push(b' ');
        }
        normal.extend_from_slice(b"\r\n");
        data_bytes
    }

    /// A word of the reply to me, unless our server does not keep that property.
    fn kept(&mut self, word: &[u8]) -> Option<String> {
        let word = std::str::from_utf8(word).ok()?;
        let (name, value) = word.split_once('=')?;
        Some(match (name, value.parse::<i64>()) {
            ("la" | "fetch" | "cls", _) => name.to_owned(),
            ("cas", Ok(cas)) => format!("cas:{}", self.name(cas as u64)),
            ("exp", Ok(left)) if left < -1 => format!("exp:{}", rounded(left.unsigned_abs())),
            _ => return None,
        })
    }

    fn name(&mut self, cas: u64) -> String {
        let at = self.cas.iter().position(|&seen| seen == cas).unwrap_or_else(|| {
            self.cas.push(cas);
            self.cas.len() - 1
        });
        format!("cas{at}")
    }
}

/// Seconds, rounded up to ten. Times in the far future are translated between two clocks. For
/// expired values memcached replies a negative number in 32 bits.
fn rounded(seconds: u64) -> u64 {
    match seconds {
        0..=1_000_000 => (seconds + 5) / 10,
        1_000_001..=4_000_000_000 => 1_000_000,
        _ => 0,
    }
}
