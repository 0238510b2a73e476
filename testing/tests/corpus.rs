//! The corpus of the fuzz target `server`, replayed without a fuzzer: seeds cut from golden frames, and
//! every input that ever failed.

#![allow(unreachable_pub, reason = "the target is public where the fuzzer has it")]

use std::fs;

use super::*;

#[path = "../../fuzz/src/testing.rs"]
pub(crate) mod target;

#[test]
fn every_input_of_the_corpus_is_harmless() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/server");
    let mut count = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let input = fs::read(&path).unwrap();
        println!("{}", path.display());
        target::server(&input);
        // Also in every version, and cut in half.
        for version in 0..4 {
            let mut input = input.clone();
            input[0] = version;
            target::server(&input);
            target::server(&input[..input.len() / 2]);
        }
        count += 1;
    }
    assert!(count > 50, "{count} inputs");
}
