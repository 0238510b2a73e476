//! The fuzzers' corpus, replayed without a fuzzer: seeds cut from golden frames, and every input that ever
//! broke something (`found-…`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
};

#[path = "../../fuzz/src/protocol.rs"]
#[expect(unreachable_pub, reason = "a library elsewhere")]
mod targets;

/// The committed inputs of a target; what a fuzzer found worth keeping on this machine is left to it.
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
fn the_corpus_breaks_nothing() {
    for (target, check) in targets::TARGETS {
        inputs(target).iter().for_each(|input| check(input));
    }
}

/// Every prefix of every seed is an input too, and so is each seed with a byte turned.
#[test]
fn nor_does_what_is_nearly_in_it() {
    for (target, check) in targets::TARGETS.iter().filter(|(target, _)| *target != "follower") {
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
