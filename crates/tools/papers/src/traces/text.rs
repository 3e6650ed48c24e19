//! A trace as lines of text, one operation a line: `insert KEY VALUE`, `get KEY`,
//! `update KEY VALUE`, `delete KEY`; what `--replay` reads.
//!
//! Letters and digits are written as they are, every other byte as `\xNN`, so that no byte breaks a
//! line.

use std::io::{self, Write};

use super::{Action, Step, Trace};

/// Writes all steps of `trace`, those of its load first.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut value = Vec::new();
    for step in trace.load().iter().chain(trace.steps()) {
        line(trace, step, &mut value, out)?;
    }
    Ok(())
}

fn line(trace: &Trace, step: &Step, value: &mut Vec<u8>, out: &mut impl Write) -> io::Result<()> {
    let word = match step.action {
        Action::Insert => "insert",
        Action::Get => "get",
        Action::Update => "update",
        Action::Delete => "delete",
    };
    out.write_all(word.as_bytes())?;
    out.write_all(b" ")?;
    escaped(trace.key(step.key), out)?;
    if let (Action::Insert | Action::Update, Some(version)) = (step.action, step.version()) {
        trace.fill_value(step.key, version, value);
        out.write_all(b" ")?;
        escaped(value, out)?;
    }
    out.write_all(b"\n")
}

fn escaped(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    bytes.iter().try_for_each(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() => out.write_all(&[*byte]),
        byte => write!(out, "\\x{byte:02x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_a_line() {
        let mut trace = Trace::new("text", 2, 8);
        let key = trace.add_key(b"a\xff").unwrap();
        trace.put(key);
        trace.get(key);
        trace.put(key);
        trace.delete(key);
        let mut text = Vec::new();
        write(&trace, &mut text).unwrap();
        let lines = String::from_utf8(text).unwrap();
        let lines: Vec<_> = lines.lines().collect();
        assert!(lines[0].starts_with(r"insert a\xff "), "{}", lines[0]);
        assert!(lines[2].starts_with(r"update a\xff "), "{}", lines[2]);
        assert_eq!((lines[1], lines[3]), (r"get a\xff", r"delete a\xff"));
    }
}
