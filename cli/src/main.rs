//! The command line of docent.
fn main() {}
