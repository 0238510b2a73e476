//! The fuzzers' corpus, replayed without a fuzzer: seeds cut from golden frames, and every input that ever
//! broke something (`found-…`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::{fs, path::Path};

#[path = "../../fuzz/src/protocol.rs"]
#[expect(unreachable_pub, reason = "a library elsewhere")]
mod targets;

#[test]
fn the_corpus_breaks_nothing() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, check) in targets::TARGETS {
        let mut count = 0;
        for entry in fs::read_dir(corpus.join(name)).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            check(&fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count > 0, "{name} has no seeds");
    }
}

/// Every prefix of every seed is an input too, and so is each seed with a byte turned.
#[test]
fn nor_does_what_is_nearly_in_it() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, check) in targets::TARGETS.iter().filter(|(name, _)| *name != "follower") {
        for entry in fs::read_dir(corpus.join(name)).unwrap() {
            let mut seed = fs::read(entry.unwrap().path()).unwrap();
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
