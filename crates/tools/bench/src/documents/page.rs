//! The places in a page that are generated, and tables that have no data.

/// What begins a figure in a page, before its name.
const BEGIN: &str = "<!-- figure ";
/// What ends the name.
const NAME_END: &str = " -->";
/// What ends a figure.
const END: &str = "<!-- end of figure -->";

/// What is wrong with the comments of a page.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// A figure begins and does not end.
    #[error("line {line}: the figure {name} has no line `{END}`")]
    NoEnd { line: usize, name: String },
    /// An end without a beginning.
    #[error("line {line}: `{END}` without `{BEGIN}NAME{NAME_END}` before it")]
    NoBegin { line: usize },
}

/// The name of the figure that begins with `line`.
fn begins(line: &str) -> Option<&str> {
    line.trim().strip_prefix(BEGIN)?.strip_suffix(NAME_END)
}

/// The page with `show(NAME)` between the comments of each figure.
pub fn filled<E: From<Malformed>>(
    text: &str,
    mut show: impl FnMut(&str) -> Result<String, E>,
) -> Result<String, E> {
    let mut out = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line.trim() == END {
            return Err(Malformed::NoBegin { line: at + 1 }.into());
        }
        out += line;
        out.push('\n');
        let Some(name) = begins(line) else { continue };
        let shown = show(name)?;
        let ends = lines.by_ref().map(|(_, line)| line).take_while(|line| begins(line).is_none());
        if !ends.into_iter().any(|line| line.trim() == END) {
            return Err(Malformed::NoEnd { line: at + 1, name: name.to_owned() }.into());
        }
        out += &format!("\n{shown}\n{END}\n");
    }
    Ok(out)
}

/// The first line of each table outside figures that has a measured number, counted from 1.
///
/// Measured is a number with a decimal point that stands in a cell by itself, or with a unit, a
/// range or a sign around it. Versions and sections, as in `congee 0.4.1` or `section 3.2`, are
/// not.
pub fn tables_without_data(text: &str) -> Vec<usize> {
    let (mut is_in_figure, mut was_by_hand) = (false, false);
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        is_in_figure = (is_in_figure || begins(line).is_some()) && line.trim() != END;
        let is_table = line.trim_start().starts_with('|');
        let is_by_hand = is_table && line.split('|').any(|cell| is_measured(cell.trim()));
        if is_by_hand && !is_in_figure && !was_by_hand {
            found.push(at + 1);
        }
        was_by_hand = is_table && (was_by_hand || is_by_hand);
    }
    found
}

/// Units behind a number.
const UNITS: [&str; 10] = ["", "%", "s", "ms", "µs", "ns", "M/s", "times", "MiB", "GB"];

/// Whether a cell begins with a number that has a decimal point, and goes on with other numbers,
/// signs and units only.
fn is_measured(cell: &str) -> bool {
    let is_sign = |sign: char| " ,()[]*/~<>".contains(sign);
    let mut words = cell.split(is_sign).filter(|word| !word.is_empty()).peekable();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let is_decimal = |word: &str| is_number(word) && word.contains('.');
    let is_known = |word: &str| is_number(word) || word == "to" || UNITS.contains(&word);
    words.peek().is_some_and(|word| is_decimal(word)) && words.all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> Result<String, Malformed> {
        Ok(format!("({name})\n"))
    }

    #[test]
    fn what_stands_between_the_comments_is_replaced() {
        let page = "a\n<!-- figure x -->\nold\n\nolder\n<!-- end of figure -->\nb\n";
        let new = "a\n<!-- figure x -->\n\n(x)\n\n<!-- end of figure -->\nb\n";
        assert_eq!(filled(page, shown).unwrap(), new);
        assert_eq!(filled(new, shown).unwrap(), new);
    }

    #[test]
    fn comments_that_do_not_match_are_refused() {
        let open = "<!-- figure x -->\n<!-- figure y -->\n<!-- end of figure -->\n";
        let error = Malformed::NoEnd { line: 1, name: "x".to_owned() };
        assert_eq!(filled(open, shown), Err(error));
        let error = Malformed::NoBegin { line: 2 };
        assert_eq!(filled("a\n<!-- end of figure -->\n", shown), Err(error));
    }

    #[test]
    fn a_measured_number_needs_data() {
        let page = "| a | 1.5 |\n| b | 2.5 |\n\n| b | 12 |\n| congee 0.4.1 | x |\n| c | **0.9 (0.8 to 1.0)** |\n\
                    | d | 4.9 ms |\n| e | 1.6 times as fast as f |\n| section 3.2 |\n\
                    <!-- figure x -->\n| a | 1.5 |\n<!-- end of figure -->\n";
        assert_eq!(tables_without_data(page), [1, 6]);
    }
}
