//! The options and exit codes in docs/CLI.md are those of the program.

use std::collections::BTreeSet;

use super::*;

/// Returns the names of the long options in a text.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split("--").skip(1);
    let name = |rest: &str| {
        let end = rest.find(|char: char| !(char.is_ascii_lowercase() || char == '-'));
        rest.get(..end.unwrap_or(rest.len())).unwrap().trim_end_matches('-').to_owned()
    };
    words.map(name).filter(|name| name.len() > 1).collect()
}

#[tokio::test]
async fn every_option_in_cli_md_exists() {
    let document = include_str!("../../docs/CLI.md");
    let mut known = options("--path --test --features");
    let commands =
        "lock lead locks revoke get set create delete tree watch multi shell conform decode serve";
    let commands = commands.split(' ').map(|command| vec![command]);
    for mut command in commands.chain([vec!["conform", "client"]]) {
        command.push("--help");
        known.extend(options(&run("", &command).await.ok()));
    }
    let unknown: Vec<_> = options(document).difference(&known).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[tokio::test]
async fn the_exit_codes_of_lock_and_lead_are_in_cli_md() {
    let document = include_str!("../../docs/CLI.md");
    for command in ["lock", "lead"] {
        let help = run("", &[command, "--help"]).await.ok();
        for code in ["124", "125", "128", "64", "69", "77", "78", "70, 71, 74"] {
            assert!(document.contains(code) && help.contains(code), "{command}: {code}");
        }
    }
}
