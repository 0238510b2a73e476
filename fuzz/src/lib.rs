//! What the targets check. One file for each crate under test, so that its plain `cargo test` can replay the
//! corpus without libFuzzer.

pub mod protocol;
pub mod session;
pub mod testing;
