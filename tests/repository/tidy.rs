//! The rules of the repository that no compiler checks: the dependencies of each crate, and the form of every file.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use xtask::workspace::root;

use crate::{files_below, read};

/// The dependencies of a package, without the package itself.
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
    let files = files_below(directory).into_iter();
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    sources.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

const CRATES: [&str; 8] =
    ["protocol", "session", "recipes", "discovery", "gssapi", "testing", "cli", "xtask"];

fn all_sources() -> Vec<(PathBuf, String)> {
    CRATES
        .iter()
        .map(|name| root().join(name).join("src"))
        .chain([root().join("src")])
        .flat_map(|directory| sources(&directory))
        .collect()
}

// Layers.

/// The crate `md-5`, and those that it brings.
const MD5: &[&str] = &[
    "md-5",
    "block-buffer",
    "cfg-if",
    "cpufeatures",
    "crypto-common",
    "digest",
    "hybrid-array",
    "typenum",
];

/// A package with arguments of cargo, an inner package that it contains, and the crates that it may add to those of the
/// inner package. It must add the first of them.
type Added<'a> = ((&'a str, &'a [&'a str]), Option<(&'a str, &'a [&'a str])>, &'a [&'a str]);

#[test]
fn each_layer_and_feature_brings_the_crates_that_it_is_for() {
    let bare: &[&str] = &["--no-default-features"];
    let sasl_machine: &[&str] = &["--no-default-features", "--features", "sasl"];
    let (sasl, stream, blocking): (&[&str], &[&str], &[&str]) =
        (&["--features", "sasl"], &["--features", "stream"], &["--features", "blocking"]);
    let session = "docent-session";
    let expected: [Added<'_>; 8] = [
        (("docent-protocol", &[]), None, &["nom", "bytes", "memchr"]),
        // The machine needs no runtime.
        ((session, bare), Some(("docent-protocol", &[])), &["docent-protocol"]),
        // MD5 is the only part of SASL that is not implemented here.
        ((session, sasl_machine), Some((session, bare)), MD5),
        // The binding to the Kerberos library: the reason why it is a separate crate.
        (
            ("docent-gssapi", &[]),
            Some((session, sasl)),
            &["libgssapi", "libgssapi-sys", "bitflags", session],
        ),
        // JSON, without the derive macros: the reason why it is a separate crate.
        (
            ("docent-discovery", &[]),
            Some(("docent", &[])),
            &["serde_json", "itoa", "memchr", "ryu", "serde", "serde_core", "zmij", "docent"],
        ),
        ((session, stream), Some((session, &[])), &["futures-core"]),
        // `docent` has the dependencies of these features anyway.
        (("docent", stream), Some(("docent", &[])), &[]),
        (("docent", blocking), Some(("docent", &[])), &[]),
    ];
    for ((package, more), inner, allowed) in expected {
        let inner = inner.map_or_else(BTreeSet::new, |(inner, more)| dependencies(inner, more));
        let added = &dependencies(package, more) - &inner;
        let is_there = allowed.first().is_none_or(|first| added.contains(*first));
        assert!(is_there && added.is_subset(&set(allowed)), "{package} {more:?}: {added:?}");
    }
}

/// The embedded server and the cases of `docent conform` are independent evidence: they cannot see the client's types.
#[test]
fn testing_and_conform_know_the_protocol_only() {
    for package in ["docent-testing", "docent-conform"] {
        let all = dependencies(package, &[]);
        let ours: Vec<_> = all.iter().filter(|name| name.starts_with("docent")).collect();
        assert_eq!(ours, ["docent-protocol"], "{package}");
    }
}

/// A program that embeds docent pulls in tokio and little else.
#[test]
fn docent_has_at_most_22_dependencies() {
    let all = dependencies("docent", &[]);
    let theirs: Vec<_> = all.iter().filter(|name| !name.starts_with("docent")).collect();
    assert!(theirs.len() <= 22, "{}: {theirs:?}", theirs.len());
    for too_heavy in ["syn", "futures-util", "regex", "serde"] {
        assert!(!all.contains(too_heavy), "{too_heavy} is among {theirs:?}");
    }
}

/// A build without C headers leaves the crate out.
#[test]
fn gssapi_is_no_default_member() {
    let manifest = read("Cargo.toml");
    let default = manifest.lines().find(|line| line.starts_with("default-members")).unwrap();
    assert!(default.contains("\"discovery\"") && !default.contains("gssapi"), "{default}");
    for package in ["docent", "docent-cli"] {
        let dependencies = dependencies(package, &["--all-features"]);
        assert!(!dependencies.iter().any(|name| name.contains("gssapi")), "{package}");
    }
}

#[test]
fn nom_is_used_in_one_file() {
    for (path, text) in all_sources() {
        let uses = text.lines().any(|line| line.trim_start().starts_with("use nom"));
        assert_eq!(uses, path.ends_with("protocol/src/jute/mod.rs"), "{}", path.display());
    }
}

// The clock.

#[test]
fn clippy_forbids_reading_the_clock_in_session() {
    let config = read("session/clippy.toml");
    for method in
        ["std::time::Instant::now", "std::time::SystemTime::now", "tokio::time::Instant::now"]
    {
        assert!(config.contains(method), "{method}");
    }
    for (path, text) in sources(&root().join("session/src")) {
        let allowed = path.ends_with("driver/clock.rs") || path.ends_with("driver/runtime.rs");
        let reads = text.contains("clippy::disallowed_methods");
        assert!(allowed || !reads, "{} allows itself to read the clock", path.display());
    }
}

/// Time, connections, tasks and random numbers come from the client's `Runtime`. Otherwise a client would need tokio,
/// and no simulation of it could be repeated.
#[test]
fn clients_and_recipes_have_no_surroundings_but_their_runtime() {
    let foreign = ["tokio::time::", "tokio::net::", "tokio::spawn(", "getrandom::", "new_v4("];
    let folders = ["session/src/client", "session/src/machine", "recipes/src", "discovery/src"];
    let files = folders.into_iter().flat_map(|folder| sources(&root().join(folder)));
    for (path, text) in files.filter(|(path, _)| !path.ends_with("client/retry_policy.rs")) {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for name in foreign {
                assert!(!line.contains(name), "{}: {line}", path.display());
            }
        }
    }
}

/// The border between the machine and its driver: the machine has no runtime, and no code that exists only for a driver
/// or a platform. SASL is a feature of the machine itself.
#[test]
fn the_machine_has_no_code_for_a_runtime() {
    let machine = sources(&root().join("session/src/machine"));
    assert!(machine.len() > 20, "only {} files", machine.len());
    for (path, text) in machine {
        for line in text.lines() {
            assert!(!line.contains("tokio"), "{}: {line}", path.display());
            let line = line.replace("feature = \"sasl\"", "");
            assert!(!line.contains("feature = "), "{}: {line}", path.display());
            let condition = line.split_once("cfg(").or_else(|| line.split_once("cfg!("));
            let condition = condition.map_or("", |(_, condition)| condition);
            let unknown = condition
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .find(|word| !["", "test", "not", "any", "all"].contains(word));
            assert_eq!(unknown, None, "{}: {line}", path.display());
        }
    }
}

/// Types are below, rules above: no file imports one with methods of `Session`, except `session.rs`, which has its
/// fields.
#[test]
fn the_rules_of_the_machine_import_no_rules() {
    let machine = root().join("session/src/machine");
    let files = sources(&machine);
    let is_rule = |(path, text): &&(PathBuf, String)| {
        path.parent() == Some(&machine)
            && !path.ends_with("session.rs")
            && text.contains("Answers<T>> Session<T, W, A> {")
    };
    let rules = files.iter().filter(is_rule);
    let rules: Vec<_> =
        rules.map(|(path, _)| path.file_stem().unwrap().to_str().unwrap()).collect();
    assert!(rules.len() > 10, "{rules:?}");
    // `mod.rs` gives the machine its public names.
    for (path, text) in files.iter().filter(|(path, _)| *path != machine.join("mod.rs")) {
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let paths = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
            let mut modules =
                paths.filter_map(|path| path.rsplit_once("::")?.0.rsplit("::").next());
            let found = modules.find(|module| rules.contains(module));
            assert_eq!(found, None, "{}: {line}", path.display());
        }
    }
}

/// The feature `tokio` switches whole modules, and the part of a configuration that belongs to the driver.
#[test]
fn the_feature_tokio_is_a_border_of_folders() {
    let session = root().join("session/src");
    for (path, text) in sources(&session) {
        let allowed = path == session.join("lib.rs") || path == session.join("config.rs");
        assert!(allowed || !text.contains("feature = \"tokio\""), "{}", path.display());
    }
}

// Files.

#[test]
fn every_source_file_has_a_header() {
    for (path, text) in all_sources() {
        assert!(text.starts_with("//!"), "{} has no //! header", path.display());
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for name in CRATES {
        let manifest = read(&format!("{name}/Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name}");
    }
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("unsafe_code = \"forbid\""));
}

// References.

/// Every file of the repository, relative to its root, without built and generated files.
fn files() -> Vec<String> {
    let files = files_below(&root());
    let relative =
        |path: &PathBuf| path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
    files.iter().map(relative).collect()
}

/// The prose of a file: all lines of a document, and the comments of a source file.
fn prose(file: &str) -> Vec<(usize, String)> {
    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
    let comment = match file.rsplit('.').next() {
        Some("rs" | "java") => "//",
        Some("toml" | "yml" | "py") => "#",
        Some("md") => "",
        _ => return Vec::new(),
    };
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(n, line)| Some((n + 1, line.split_once(comment)?.1.to_owned())))
        .filter(|(_, line)| !line.contains("://"))
        .collect()
}

/// Names in prose that look like a file of the repository, and are not.
const NAMES_OF_OTHERS: [&str; 3] = ["docs.rs", "ClientCnxn.java", "a/b.rs"];

#[test]
fn references_lead_to_files_that_exist() {
    let files = files();
    assert!(files.len() > 200, "only {} files", files.len());
    let suffixes = [".rs", ".md", ".toml", ".txt", ".json", ".java", ".py", ".svg", ".c"];
    let ends = |path: &str, end: &str| {
        path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    let top: BTreeSet<_> = files.iter().filter_map(|file| file.split_once('/')).collect();
    let top: BTreeSet<_> = top.into_iter().map(|(directory, _)| directory).collect();
    let mut missing = Vec::new();
    // PEERS.md is about the source files of other clients.
    for file in files.iter().filter(|file| *file != "docs/PEERS.md") {
        for (n, line) in prose(file) {
            let words = line.split(|c: char| c.is_whitespace() || "`\"()[]<>,;:|*'".contains(c));
            for word in words.map(|word| word.trim_end_matches(['.', '/', '!', '?'])) {
                let name = word.trim_start_matches("./").trim_start_matches("../");
                let is_file = suffixes.iter().any(|suffix| {
                    name.strip_suffix(suffix).is_some_and(|stem| {
                        stem.starts_with(|c: char| c.is_ascii_alphanumeric())
                            && stem.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
                    })
                });
                let is_directory = name.split_once('/').is_some_and(|(first, rest)| {
                    top.contains(first)
                        && rest.chars().all(|c| c.is_ascii_lowercase() || "-_/".contains(c))
                });
                let below = format!("{}/", name.trim_end_matches('/'));
                let exists =
                    || files.iter().any(|path| ends(path, name) || path.starts_with(&below));
                if (is_file || is_directory) && !NAMES_OF_OTHERS.contains(&name) && !exists() {
                    missing.push(format!("{file}:{n}: {word}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no such files:\n{}", missing.join("\n"));
}

/// `docent` shows these pages as its own, so an example must name the crate that an application depends on.
#[test]
fn examples_in_the_documentation_name_docent() {
    let inner = ["docent_protocol", "docent_session", "docent_recipes"];
    let folders = ["session", "recipes", "src"].into_iter();
    for (path, text) in folders.flat_map(|folder| sources(&root().join(folder))) {
        let mut is_example = false;
        for line in text.lines().map(str::trim_start) {
            let Some(line) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
                continue;
            };
            let line = line.trim_start();
            if line.starts_with("```") {
                is_example = !is_example;
            } else if is_example && !line.starts_with("# ") {
                let is_inner = inner.iter().any(|name| line.contains(name));
                assert!(!is_inner, "{}: {line}", path.display());
            }
        }
    }
}
