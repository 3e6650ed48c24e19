//! The check of all images of a tree, as a store has them: whether they are one tree.

use std::collections::BTreeSet;

use crate::image::Image;

/// The end of the last page that was met on a level.
#[derive(Clone, Debug)]
struct End {
    page: u32,
    right: u32,
    high: Option<Vec<u8>>,
}

/// Reads a page's parts, or says why they cannot be read.
type Read<'read> = &'read mut dyn FnMut(u32) -> Result<Vec<Vec<u8>>, String>;

struct Walk<'read> {
    read: Read<'read>,
    met: BTreeSet<u32>,
    /// By level.
    ends: Vec<Option<End>>,
    problems: Vec<String>,
}

/// Checks the pages `numbers`: each is readable, and is reached from the root once, on its level
/// and with its range; each leads to its right neighbour. Returns what is wrong.
pub fn check_images(numbers: impl IntoIterator<Item = u32>, read: Read<'_>) -> Vec<String> {
    let numbers: BTreeSet<u32> = numbers.into_iter().collect();
    let mut walk = Walk { read, met: BTreeSet::new(), ends: Vec::new(), problems: Vec::new() };
    if !numbers.is_empty() {
        walk.page(0, None, b"", None);
        for (level, end) in walk.ends.iter().enumerate() {
            if let Some(end) = end.as_ref().filter(|end| end.right != 0 || end.high.is_some()) {
                let what = format!("page {}: it is the last one of level {level}", end.page);
                walk.problems.push(format!("{what}, and has a right sibling"));
            }
        }
    }
    let lost =
        numbers.difference(&walk.met).map(|page| format!("page {page}: nothing leads to it"));
    walk.problems.extend(lost);
    walk.problems
}

impl Walk<'_> {
    fn problem(&mut self, page: u32, what: impl std::fmt::Display) {
        self.problems.push(format!("page {page}: {what}"));
    }

    /// Checks the page, which must be on `level` and have the keys from `low` to `high`, and what
    /// it leads to.
    fn page(&mut self, page: u32, level: Option<u8>, low: &[u8], high: Option<&[u8]>) {
        if !self.met.insert(page) {
            return self.problem(page, "two pages lead to it");
        }
        let parts = match (self.read)(page) {
            Ok(parts) => parts,
            Err(what) => return self.problem(page, what),
        };
        let image = match Image::of_parts(&parts) {
            Ok(image) => image,
            Err(what) => return self.problem(page, what),
        };
        if level.is_some_and(|level| level != image.level) {
            return self.problem(page, format!("it is on level {}", image.level));
        }
        if image.low != low || image.high != high {
            let (found, found_high) = (image.low, image.high);
            let what = "its range is not that of its entry in the page above";
            self.problem(
                page,
                format!("{what}: {found:?} to {found_high:?}, not {low:?} to {high:?}"),
            );
        }
        let at = usize::from(image.level);
        if self.ends.len() <= at {
            self.ends.resize(at + 1, None);
        }
        let end = End { page, right: image.right, high: image.high.map(<[u8]>::to_vec) };
        if let Some(before) = self.ends[at].replace(end)
            && (before.right != page || before.high.as_deref() != Some(image.low))
        {
            self.problem(before.page, format!("it leads to page {}, not to {page}", before.right));
        }
        if image.level > 0 {
            for (index, (low, child)) in image.records.iter().enumerate() {
                let high = image.records.get(index + 1).map(|&(key, _)| key).or(image.high);
                let child = child.first_chunk().map_or(0, |child| u32::from_le_bytes(*child));
                self.page(child, Some(image.level - 1), low, high);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The walk ends at a page on a wrong level: it is as deep as there are levels, and not as
    /// there are pages.
    #[test]
    fn forged_pages_that_lead_to_each_other_end_the_walk() {
        const PAGES: u32 = 100_000;
        let mut read = |page: u32| {
            let child = (page + 1).to_le_bytes();
            let records = vec![(&b""[..], &child[..])];
            let image = Image { level: 3, low: b"", high: None, right: 0, records };
            Ok(vec![image.encode()])
        };
        let problems = check_images(0..PAGES, &mut read);
        assert!(problems[0].contains("it is on level 3"), "{}", problems[0]);
        assert_eq!(problems.len(), PAGES as usize - 1, "the others are not reached");
    }
}
