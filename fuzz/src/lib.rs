//! The checks of the fuzz targets. Each crate under test has one file, so that the crate's `cargo test`
//! can replay the corpus without libFuzzer.

pub mod protocol;
pub mod session;
pub mod testing;
