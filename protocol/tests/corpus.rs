//! Replays the fuzzers' corpus without a fuzzer: seeds taken from golden frames (`seed-…`), and every input
//! that revealed a defect (`found-…`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
};

#[path = "../../fuzz/src/protocol.rs"]
#[expect(unreachable_pub, reason = "a library elsewhere")]
mod targets;

/// The committed inputs of a target, without those that a fuzzer added locally.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let paths = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path());
    let is_committed = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("seed-") || name.starts_with("found-")
    };
    let inputs: Vec<_> = paths.filter(is_committed).map(|path| fs::read(path).unwrap()).collect();
    assert!(!inputs.is_empty(), "{target} has no seeds");
    inputs
}

#[test]
fn the_corpus_passes() {
    for (target, check) in targets::TARGETS {
        inputs(target).iter().for_each(|input| check(input));
    }
}

/// Every prefix of each seed, and each seed with one byte inverted.
#[test]
fn prefixes_and_mutations_of_the_corpus_pass() {
    for (target, check) in targets::TARGETS.iter().filter(|(target, _)| *target != "dissector") {
        for mut seed in inputs(target) {
            seed.truncate(300);
            for cut in 0..seed.len() {
                check(&seed[..cut]);
                seed[cut] ^= 0xFF;
                check(&seed);
                seed[cut] ^= 0xFF;
            }
        }
    }
}
