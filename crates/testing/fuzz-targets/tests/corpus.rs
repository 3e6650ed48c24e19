//! Replays the corpus of the fuzzer: `fuzz/corpus/TARGET/*`.

use std::path::Path;

use pando_fuzz_targets::TARGETS;

#[test]
fn every_file_of_the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus");
    for (name, target) in TARGETS {
        let mut files: Vec<_> = std::fs::read_dir(corpus.join(name))
            .expect("the target's corpus")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        files.sort();
        for file in &files {
            let data = std::fs::read(file).expect("reads");
            println!("{}", file.display());
            target(&data);
        }
        assert!(!files.is_empty(), "{name} has no corpus");
    }
}
