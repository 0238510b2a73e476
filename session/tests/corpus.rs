//! The fuzzers' corpus for this crate, replayed without a fuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "the targets are tests"
)]

use std::{fs, path::Path};

#[path = "../../fuzz/src/session.rs"]
#[expect(unreachable_pub, reason = "a library elsewhere")]
mod targets;

#[test]
fn the_corpus_breaks_nothing() {
    for (target, check) in targets::TARGETS {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        let inputs: Vec<_> = fs::read_dir(corpus).unwrap().collect();
        assert!(!inputs.is_empty(), "{target} has no seeds");
        for input in inputs {
            check(&fs::read(input.unwrap().path()).unwrap());
        }
    }
}

proptest::proptest! {
    /// A fuzzer's first minute, in each run of the tests.
    #[test]
    fn any_scenario_of_bytes_breaks_nothing(data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
        targets::machine(&data);
    }
}
