//! docs/CLI.md and the program say the same.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeSet;

use support::run;

/// Words that begin with `--`, as far as they are letters.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split("--").skip(1);
    let name = |rest: &str| {
        let end = rest.find(|char: char| !(char.is_ascii_lowercase() || char == '-'));
        rest.get(..end.unwrap_or(rest.len())).unwrap().trim_end_matches('-').to_owned()
    };
    words.map(name).filter(|name| name.len() > 1).collect()
}

#[tokio::test]
async fn every_option_in_the_guide_is_there() {
    let guide = include_str!("../../docs/CLI.md");
    let mut known = options("--path --test");
    for command in ["lock", "locks", "revoke", "get", "set", "create", "delete", "watch", "multi"] {
        known.extend(options(&run("", &[command, "--help"]).await.ok()));
    }
    let unknown: Vec<_> = options(guide).difference(&known).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[tokio::test]
async fn the_exit_codes_of_lock_are_those_of_the_guide() {
    let guide = include_str!("../../docs/CLI.md");
    let help = run("", &["lock", "--help"]).await.ok();
    for code in ["124", "125", "128", "64", "69", "77", "78", "70, 71, 74"] {
        assert!(guide.contains(code) && help.contains(code), "{code}");
    }
}
