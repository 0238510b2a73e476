//! What the targets check. One file per crate under test, so that plain `cargo test` can replay the corpus
//! without libFuzzer.

pub mod protocol;
