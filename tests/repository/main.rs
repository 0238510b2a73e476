//! The repository itself: its rules, its documents, its examples and its guide.

extern crate docent_tests as support;

use std::{
    fs,
    path::{Path, PathBuf},
};

use xtask::workspace::root;

mod api;
mod blocking;
mod cases;
mod dependencies;
mod examples;
mod guide;
#[cfg(unix)]
mod leader_example;
mod names;
mod tidy;

/// The text of a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files below a directory in the order of their paths, without built and generated ones.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let built = ["target", ".git", "artifacts", "coverage", "book"];
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path);
        } else if !built.iter().any(|name| path.ends_with(name)) {
            files.extend(files_below(&path));
        }
    }
    files
}
