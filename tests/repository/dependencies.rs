//! The dependencies satisfy `deny.toml`: licences, sources, and no wildcard versions.
//!
//! cargo-deny checks the same file and the advisories of RustSec, which it has to download; `cargo xtask check` runs it
//! if it is installed. The rules here need no download and no installation, so every run of the tests checks them.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use crate::read;

/// The packages that the workspace is built from, on every platform, with all features and the tests.
fn packages() -> Vec<Value> {
    let metadata = |arguments: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(xtask::workspace::root());
        cargo.args(["metadata", "--format-version", "1", "--all-features", "--locked"]);
        cargo.args(arguments).output().unwrap()
    };
    let mut output = metadata(&[]);
    if !output.status.success() {
        // Without a network, only the packages of this platform have been downloaded.
        let platform = Command::new("rustc").args(["--print", "host-tuple"]).output().unwrap();
        let platform = String::from_utf8(platform.stdout).unwrap();
        output = metadata(&["--offline", "--filter-platform", platform.trim()]);
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let used: BTreeSet<_> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["id"].as_str().unwrap())
        .collect();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| used.contains(package["id"].as_str().unwrap())).cloned().collect()
}

fn rules() -> toml::Table {
    read("deny.toml").parse().unwrap()
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let rules = rules();
    let allowed = rules["licenses"]["allow"].as_array().unwrap();
    let allowed: BTreeSet<_> = allowed.iter().map(|licence| licence.as_str().unwrap()).collect();
    let packages = packages();
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let licences = packages.iter().map(|package| package["license"].as_str().unwrap_or("none"));
    let refused: Vec<_> = packages
        .iter()
        .zip(licences.clone())
        .filter(|(_, licence)| !is_allowed(licence, &allowed))
        .map(|(package, licence)| format!("{}: {licence}", package["name"]))
        .collect();
    assert!(refused.is_empty(), "not in deny.toml:\n{}", refused.join("\n"));
    for licence in allowed {
        assert!(licences.clone().any(|all| all.contains(licence)), "nothing has {licence}");
    }
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = BTreeSet::from(["MIT", "ISC"]);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND ISC OR GPL-3.0", true),
        ("ISC AND (MIT OR Apache-2.0)", true),
        ("ISC AND (GPL-3.0 OR Apache-2.0)", false),
        ("GPL-3.0 AND ISC OR GPL-3.0 AND MIT", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("MIT WITH SOME-exception", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn every_dependency_comes_from_crates_io() {
    let rules = rules();
    for rule in ["unknown-registry", "unknown-git"] {
        assert_eq!(rules["sources"][rule].as_str(), Some("deny"));
    }
    for package in packages() {
        let source = package["source"].as_str();
        let crates_io = "registry+https://github.com/rust-lang/crates.io-index";
        assert!(source.is_none_or(|source| source == crates_io), "{}: {source:?}", package["name"]);
    }
}

/// With the oldest Rust that docent names, the locked packages compile: none requires a newer one.
#[test]
fn no_dependency_requires_a_newer_rust() {
    let release = |package: &Value| -> Option<(u32, u32)> {
        let (major, rest) = package["rust_version"].as_str()?.split_once('.')?;
        Some((major.parse().ok()?, rest.split('.').next()?.parse().ok()?))
    };
    let packages = packages();
    let docent = packages.iter().find(|package| package["name"] == "docent").unwrap();
    let oldest = release(docent).unwrap();
    let newer: Vec<_> = packages.iter().filter(|package| release(package) > Some(oldest)).collect();
    let names: Vec<_> = newer.iter().map(|package| package["name"].as_str()).collect();
    assert!(newer.is_empty(), "{names:?} require a newer Rust than {oldest:?}");
}

/// Only a dev-dependency with a path may have no version.
#[test]
fn every_dependency_has_a_version() {
    assert_eq!(rules()["bans"]["wildcards"].as_str(), Some("deny"));
    let ours: Vec<_> =
        packages().into_iter().filter(|package| package["source"].is_null()).collect();
    assert!(ours.len() > 6, "{ours:?}");
    for package in ours {
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_path = dependency["path"].is_string();
            let is_test = dependency["kind"].as_str() == Some("dev");
            let is_any = dependency["req"].as_str() == Some("*");
            let names = format!("{} on {}", package["name"], dependency["name"]);
            assert!(!is_any || (is_path && is_test), "{names}");
        }
    }
}

/// Whether allowed licences satisfy a licence expression (SPDX): each part of an `AND` needs an allowed alternative.
/// Parentheses are ignored, so a valid expression may be refused, but an invalid one is never accepted.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let flat = expression.replace(['(', ')'], "").replace('/', " OR ");
    let has_allowed = |part: &str| part.split(" OR ").any(|licence| allowed.contains(licence));
    flat.split(" AND ").all(has_allowed)
}
