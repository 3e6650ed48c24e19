//! Texts of numbers with their units.

/// Bytes per record; `-` if they are not known.
pub fn bytes(bytes: Option<f64>) -> String {
    bytes.map_or("-".to_owned(), |bytes| format!("{bytes:.1}"))
}

/// Nanoseconds in a suitable unit.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// A number of records in the form of the command line.
pub fn count(records: u64) -> String {
    match records {
        0 => "0".to_owned(),
        _ if records.is_multiple_of(1_000_000) => format!("{}M", records / 1_000_000),
        _ if records.is_multiple_of(1_000) => format!("{}k", records / 1_000),
        _ => records.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_carry_units() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_500), "1.50 µs");
        assert_eq!(count(10_000_000), "10M");
        assert_eq!(count(2_500), "2500");
    }
}
