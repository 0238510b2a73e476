//! The rules of the house that no compiler holds: who may depend on whom, and what every file has.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy knows test functions, not what they call"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The crates under a package, without its own.
fn dependencies(package: &str, more: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["tree", "--quiet", "--package", package, "--edges", "normal", "--prefix", "none"])
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !name.is_empty() && *name != package)
        .map(str::to_owned)
        .collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Rust files below a directory, with their text.
fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

const CRATES: [&str; 6] = ["protocol", "session", "recipes", "testing", "cli", "xtask"];

fn all_sources() -> Vec<(PathBuf, String)> {
    CRATES
        .iter()
        .map(|name| root().join(name).join("src"))
        .chain([root().join("src")])
        .flat_map(|directory| sources(&directory))
        .collect()
}

// Layers.

#[test]
fn protocol_depends_on_bytes_and_nom() {
    assert_eq!(dependencies("docent-protocol", &[]), set(&["bytes", "memchr", "nom"]));
}

#[test]
fn the_machine_needs_no_runtime() {
    let without_tokio = dependencies("docent-session", &["--no-default-features"]);
    assert_eq!(without_tokio, set(&["bytes", "docent-protocol", "memchr", "nom"]));
}

/// What makes the embedded server evidence: it cannot see the client's types.
#[test]
fn testing_knows_the_protocol_only() {
    let ours: BTreeSet<_> = dependencies("docent-testing", &[])
        .into_iter()
        .filter(|name| name.starts_with("docent"))
        .collect();
    assert_eq!(ours, set(&["docent-protocol"]));
}

/// The budget of design: an embedder pays for tokio and little else.
#[test]
fn docent_has_at_most_22_dependencies() {
    let theirs: Vec<_> = dependencies("docent", &[])
        .into_iter()
        .filter(|name| !name.starts_with("docent"))
        .collect();
    assert!(theirs.len() <= 22, "{}: {theirs:?}", theirs.len());
    for too_heavy in ["syn", "futures-util", "regex", "serde"] {
        assert!(!theirs.iter().any(|name| name == too_heavy), "{too_heavy} is among {theirs:?}");
    }
}

/// MD5 is the one thing of SASL that is not written here.
#[test]
fn sasl_brings_a_hash_and_nothing_else() {
    let machine = ["--no-default-features", "--features", "sasl"];
    let without = dependencies("docent-session", &machine[..1]);
    let with = dependencies("docent-session", &machine);
    let added: BTreeSet<_> = with.difference(&without).cloned().collect();
    let digest = ["block-buffer", "crypto-common", "digest", "hybrid-array", "typenum"];
    let allowed = set(&[&digest[..], &["cfg-if", "cpufeatures", "md-5"]].concat());
    assert!(added.contains("md-5") && added.is_subset(&allowed), "{added:?}");
}

#[test]
fn nom_is_used_in_one_file() {
    for (path, text) in all_sources() {
        let uses = text.lines().any(|line| line.trim_start().starts_with("use nom"));
        assert_eq!(uses, path.ends_with("protocol/src/jute.rs"), "{}", path.display());
    }
}

// The clock.

#[test]
fn clippy_forbids_reading_the_clock_in_session() {
    let config = fs::read_to_string(root().join("session/clippy.toml")).unwrap();
    for method in
        ["std::time::Instant::now", "std::time::SystemTime::now", "tokio::time::Instant::now"]
    {
        assert!(config.contains(method), "{method}");
    }
    for (path, text) in sources(&root().join("session/src")) {
        let allowed = path.ends_with("clock.rs") || path.ends_with("driver.rs");
        let reads = text.contains("clippy::disallowed_methods");
        assert!(allowed || !reads, "{} allows itself to read the clock", path.display());
    }
}

// Files.

#[test]
fn every_source_file_says_what_it_is() {
    for (path, text) in all_sources() {
        assert!(text.starts_with("//!"), "{} has no //! header", path.display());
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for name in CRATES {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name}");
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""));
}

#[test]
fn examples_fit_on_a_page() {
    for (path, text) in sources(&root().join("examples")) {
        // These are tools that happen to be examples: other programs drive them.
        let tool =
            ["lock_peer.rs", "bench_peer/main.rs", "measure.rs", "raw_peer.rs", "null_server.rs"]
                .iter()
                .any(|name| path.ends_with(name));
        let lines = text.lines().count();
        assert!(tool || lines <= 60, "{} has {lines} lines", path.display());
    }
}

// README.

#[test]
fn readme_and_ci_give_the_same_command() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    for text in [&readme, &ci] {
        assert!(text.contains("cargo xtask test"));
    }
    assert!(readme.contains("cargo run --release --example lock"));
}
