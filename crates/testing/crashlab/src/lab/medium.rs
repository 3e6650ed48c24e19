//! The images that a crash could leave on the medium: the fault model, applied to a log.

use std::collections::BTreeMap;

use super::recorder::{Entry, LINE_BYTES, Site};

/// The content of a line.
pub type Line = [u64; 8];

/// A possible content of one line after a crash, and its number among all contents of a run.
#[derive(Clone, Copy, Debug)]
struct Version {
    number: u64,
    line: Line,
}

/// Most contents of one line that are kept, always with the oldest and the newest.
const MAX_VERSIONS: usize = 24;

/// The medium of a run, with the stores that may not have reached it.
#[derive(Debug)]
pub struct Medium {
    words: Vec<u64>,
    /// Oldest first; the last is the content that the run saw. Durable lines are not listed.
    late: BTreeMap<u32, Vec<Version>>,
    /// By logical thread: the lines that are being written back, with the number of the content.
    begun: Vec<Vec<(u32, u64)>>,
    /// Number of the next version.
    next: u64,
    /// Whether the domain needs write-backs.
    write_back: bool,
}

impl Medium {
    /// A medium that holds `words`, all of it durable.
    pub fn new(words: Vec<u64>, write_back: bool) -> Self {
        Self { words, late: BTreeMap::new(), begun: Vec::new(), next: 0, write_back }
    }

    /// The same medium after all threads were killed: nothing is lost, and no write-back that had
    /// begun is completed by a fence.
    pub fn after_kill(&self) -> Self {
        Self { words: self.words.clone(), late: self.late.clone(), begun: Vec::new(), ..*self }
    }

    /// The words at the end of the run.
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }

    fn newest(&self, line: u32) -> Line {
        let mut content = [0; 8];
        content.copy_from_slice(&self.words[line as usize * 8..][..8]);
        content
    }

    /// The word at `off` as the run saw it.
    pub fn word(&self, off: u64) -> u64 {
        self.words[off as usize / 8]
    }

    /// Plays back one entry. Entries of the site `without` are skipped.
    pub fn play(&mut self, entry: &Entry, without: Option<Site>) {
        match *entry {
            Entry::Store { off, value } => {
                let line = (u64::from(off) / LINE_BYTES) as u32;
                let before = self.newest(line);
                self.words[off as usize / 8] = value;
                if self.write_back {
                    let newest = self.newest(line);
                    let number = self.next;
                    self.next += 2;
                    let versions = self
                        .late
                        .entry(line)
                        .or_insert_with(|| vec![Version { number, line: before }]);
                    versions.push(Version { number: number + 1, line: newest });
                    if versions.len() > MAX_VERSIONS {
                        versions.remove(MAX_VERSIONS / 2);
                    }
                }
            }
            Entry::WriteBack { task, line, site } if Some(site) != without => {
                if let Some(versions) = self.late.get(&line) {
                    let task = usize::from(task);
                    if self.begun.len() <= task {
                        self.begun.resize(task + 1, Vec::new());
                    }
                    self.begun[task].extend(versions.last().map(|last| (line, last.number)));
                }
            }
            Entry::Fence { task, site } if Some(site) != without => {
                let begun = self.begun.get_mut(usize::from(task)).map(std::mem::take);
                for (line, number) in begun.unwrap_or_default() {
                    self.arrive(line, number);
                }
            }
            Entry::WriteBack { .. } | Entry::Fence { .. } | Entry::Files { .. } | Entry::Return => {
            }
        }
    }

    fn arrive(&mut self, line: u32, number: u64) {
        let Some(versions) = self.late.get_mut(&line) else { return };
        let arrived = versions.partition_point(|version| version.number < number);
        versions.drain(..arrived);
        if versions.len() == 1 {
            self.late.remove(&line);
        }
    }

    /// The lines with more than one possible content after a crash, and the number of contents.
    pub fn late(&self) -> Vec<(u32, usize)> {
        self.late.iter().map(|(&line, versions)| (line, versions.len())).collect()
    }

    /// Content number `version` of a late line; zero is the oldest.
    pub fn content(&self, line: u32, version: usize) -> Line {
        self.late[&line][version].line
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    fn store(off: u32, value: u64) -> Entry {
        Entry::Store { off, value }
    }

    #[track_caller]
    fn write_back(task: u8, line: u32) -> Entry {
        Entry::WriteBack { task, line, site: Location::caller() }
    }

    #[track_caller]
    fn fence(task: u8) -> Entry {
        Entry::Fence { task, site: Location::caller() }
    }

    /// The possible values of the first word of line 0 in a crash after these entries.
    fn left_by(entries: &[Entry]) -> Vec<u64> {
        let mut medium = Medium::new(vec![0; 64], true);
        entries.iter().for_each(|entry| medium.play(entry, None));
        match medium.late().iter().find(|(line, _)| *line == 0) {
            Some(&(line, count)) => (0..count).map(|at| medium.content(line, at)[0]).collect(),
            None => vec![medium.word(0)],
        }
    }

    #[test]
    fn a_store_may_or_may_not_have_arrived() {
        assert_eq!(left_by(&[store(0, 1)]), [0, 1]);
        assert_eq!(left_by(&[store(0, 1), store(0, 2)]), [0, 1, 2]);
    }

    #[test]
    fn stores_to_one_line_arrive_in_order() {
        let mut medium = Medium::new(vec![0; 64], true);
        [store(0, 1), store(8, 1)].iter().for_each(|entry| medium.play(entry, None));
        let contents: Vec<_> = (0..3).map(|at| medium.content(0, at)[..2].to_vec()).collect();
        assert_eq!(contents, [[0, 0], [1, 0], [1, 1]]);
    }

    #[test]
    fn write_back_and_fence_of_one_thread_make_durable() {
        assert_eq!(left_by(&[store(0, 1), write_back(1, 0)]), [0, 1]);
        assert_eq!(left_by(&[store(0, 1), fence(1)]), [0, 1]);
        assert_eq!(left_by(&[store(0, 1), write_back(1, 0), fence(1)]), [1]);
    }

    #[test]
    fn another_threads_fence_makes_nothing_durable() {
        assert_eq!(left_by(&[store(0, 1), write_back(1, 0), fence(2)]), [0, 1]);
    }

    #[test]
    fn what_is_stored_after_the_write_back_is_not_durable() {
        let entries = [store(0, 1), write_back(1, 0), store(0, 2), fence(1)];
        assert_eq!(left_by(&entries), [1, 2]);
    }

    #[test]
    fn a_late_fence_does_not_undo_a_later_one() {
        let entries = [
            store(0, 1),
            write_back(1, 0),
            store(0, 2),
            write_back(2, 0),
            fence(2),
            store(0, 3),
            fence(1),
        ];
        assert_eq!(left_by(&entries), [2, 3]);
    }

    #[test]
    fn what_is_left_out_did_not_happen() {
        let site = fence(1);
        let Entry::Fence { site: left_out, .. } = site else { panic!("a fence") };
        let mut medium = Medium::new(vec![0; 64], true);
        for entry in [store(0, 1), write_back(1, 0), site] {
            medium.play(&entry, Some(left_out));
        }
        assert_eq!(medium.late(), [(0, 2)]);
    }

    #[test]
    fn without_write_back_everything_stored_is_left() {
        let mut medium = Medium::new(vec![0; 64], false);
        medium.play(&store(0, 1), None);
        assert_eq!((medium.late(), medium.word(0)), (Vec::new(), 1));
    }
}
