//! A trace as lines of text, one operation a line: `insert KEY VALUE`, `get KEY`,
//! `update KEY VALUE`, `delete KEY`; what `--replay` reads.
//!
//! Keys and values are written as hexadecimal digits, two a byte, so that no byte breaks a line:
//! a replay of the text has keys and values of twice the size.

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
    hexadecimal(trace.key(step.key), out)?;
    if let (Action::Insert | Action::Update, Some(version)) = (step.action, step.version()) {
        trace.fill_value(step.key, version, value);
        out.write_all(b" ")?;
        hexadecimal(value, out)?;
    }
    out.write_all(b"\n")
}

fn hexadecimal(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_a_line() {
        let mut trace = Trace::new("text", 2, 8);
        let key = trace.add_key(&[0, 255]).unwrap();
        trace.put(key);
        trace.get(key);
        trace.delete(key);
        let mut text = Vec::new();
        write(&trace, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].starts_with("insert 00ff ") && lines[0].len() == "insert 00ff ".len() + 16
        );
        assert_eq!(lines[1..], ["get 00ff", "delete 00ff"]);
    }
}
