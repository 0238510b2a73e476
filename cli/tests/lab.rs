//! `docent lab` runs the program beside it, or on the PATH.

use std::{path::Path, process::Command};

use xtask::TemporaryDirectory;

/// Runs `docent lab` of a copy of docent in a directory, with this PATH.
fn lab(directory: &Path, path: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let docent = directory.join("docent");
    shell("cp $1 $0", &docent, env!("CARGO_BIN_EXE_docent"));
    let mut command = Command::new(docent);
    let output = command.arg("lab").args(arguments).env("PATH", path).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn program(directory: &Path, script: &str) {
    shell("printf %s \"$1\" > $0; chmod +x $0", &directory.join("docent-lab"), script);
}

/// Writes a program. By a shell: if this process did, a program started by another test could inherit the open file for a
/// moment (ETXTBSY).
fn shell(script: &str, file: &Path, argument: &str) {
    let written = Command::new("sh").args(["-c", script]).arg(file).arg(argument).status();
    assert!(written.unwrap().success());
}

#[test]
fn without_the_program_one_line_says_how_to_get_it() {
    let directory = TemporaryDirectory::new("lab").unwrap();
    let empty = TemporaryDirectory::new("lab-path").unwrap();
    let (code, out, error) = lab(directory.path(), empty.path(), &["--open"]);
    assert_eq!((code, out.as_str()), (Some(69), ""));
    assert!(error.starts_with("docent lab: the program docent-lab is neither"), "{error}");
    assert!(error.lines().count() == 1 && error.contains("cargo install"), "{error}");
}

#[test]
fn the_program_gets_all_arguments_and_its_code_is_returned() {
    let directory = TemporaryDirectory::new("lab").unwrap();
    let path = TemporaryDirectory::new("lab-path").unwrap();
    program(path.path(), "#!/bin/sh\necho \"path: $*\"\nexit 7\n");
    let on_path = lab(directory.path(), path.path(), &["--help", "--seed", "-1"]);
    assert_eq!(on_path, (Some(7), "path: --help --seed -1\n".to_owned(), String::new()));
    program(directory.path(), "#!/bin/sh\necho \"beside: $*\"\n");
    let beside = lab(directory.path(), path.path(), &["x"]);
    assert_eq!(beside, (Some(0), "beside: x\n".to_owned(), String::new()));
}
