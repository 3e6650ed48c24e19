//! Records in as few commits as take them.

use pando::Error;

/// Calls `commit` with the first of the `records`, again and again until none is left; it commits
/// as many of the first ones as it returns, or ends this by none. If a commit takes too many bytes,
/// it is tried with half of its records, down to a single one. Each commit is whole or not there.
///
/// # Errors
///
/// The first other error, with the records that were not committed.
pub fn in_parts<'run, T>(
    records: &'run [T],
    mut commit: impl FnMut(&'run [T]) -> Result<usize, Error>,
) -> Result<(), (&'run [T], Error)> {
    let (mut rest, mut most) = (records, records.len());
    while !rest.is_empty() {
        let part = &rest[..most.min(rest.len())];
        match commit(part) {
            Ok(0) => break,
            Ok(taken) => rest = &rest[taken..],
            Err(Error::TransactionTooLong { .. }) if part.len() > 1 => most = part.len() / 2,
            Err(error) => return Err((rest, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits records of at most 10 together.
    fn committed(records: &[usize]) -> (Vec<Vec<usize>>, Option<usize>) {
        let mut commits = Vec::new();
        let ended = in_parts(records, |part| match part.iter().sum() {
            found_bytes @ 11.. => Err(Error::TransactionTooLong { found_bytes, max_bytes: 10 }),
            _ => {
                commits.push(part.to_vec());
                Ok(part.len())
            }
        });
        (commits, ended.err().map(|(rest, _)| rest.len()))
    }

    #[test]
    fn records_are_committed_in_parts_that_fit() {
        assert_eq!(committed(&[]), (vec![], None));
        assert_eq!(committed(&[1, 2, 3]), (vec![vec![1, 2, 3]], None));
        assert_eq!(committed(&[6, 6, 6]), (vec![vec![6], vec![6], vec![6]], None));
        assert_eq!(committed(&[5; 4]), (vec![vec![5; 2]; 2], None));
        // A single record that does not fit, behind one that does.
        assert_eq!(committed(&[9, 11, 1]), (vec![vec![9]], Some(2)));
    }

    #[test]
    fn a_commit_may_take_fewer_records_or_end_it() {
        let mut lens = Vec::new();
        let taken = in_parts(&[1, 2, 3, 4, 5], |part| {
            lens.push(part.len());
            Ok(if part.len() > 1 { 2 } else { 0 })
        });
        assert!(taken.is_ok());
        assert_eq!(lens, [5, 3, 1]);
    }
}
