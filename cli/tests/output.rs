//! The output of the commands: it contains nothing that a terminal acts on, and a command whose output cannot be
//! written does not succeed. The tests run on the server of `DOCENT_TEST_CONNECT`, or on an embedded one.

use std::fs::File;

use super::*;

/// A control sequence, a direction mark, and a backslash.
const HOSTILE: &str = "a\u{9b}2J\u{7f}\u{202e}b\\n";
const ESCAPED: &str = r"a\u{9b}2J\u{7f}\u{202e}b\\n";
/// The same as a node name, which cannot have control characters.
const NAME: &str = "c\u{2066}\u{202e}d\\";
const ESCAPED_NAME: &str = r"c\u{2066}\u{202e}d\\";

#[track_caller]
fn assert_harmless(ran: &Ran) {
    let acts = |c: char| c.is_control() && c != '\n' && c != '\t' || "\u{2066}\u{202e}".contains(c);
    assert!(!ran.out.contains(acts) && !ran.err.contains(acts), "{ran:?}");
}

// Case (Found in docent itself): C1 controls, DEL and marks of direction in nodes and data reached
// the terminal, by text, `--json` and errors of the commands, and by the tap.
// Case (Found in docent itself): a control character in a connect string, or in the path of `docent
// lock` and `lead`, was escaped twice in the message; both connected before they looked at the
// path.
#[tokio::test]
async fn text_of_others_is_escaped_and_json_keeps_its_value() {
    let (server, root) = (server(), unique_path("hostile"));
    let path = format!("{root}/{NAME}");
    run(&server, &["create", "-p", &path]).await.ok();
    client(&server).await.set_data(&path, HOSTILE.as_bytes(), None).await.unwrap();
    let line = format!("{root}/{ESCAPED_NAME}");
    for (arguments, text) in [
        (&["ls", &root][..], format!("{ESCAPED_NAME}\n")),
        (&["ls", "-r", &path], format!("{line}\n")),
        (&["get", "-r", &path], format!("{line}\t{ESCAPED}\n")),
        (&["tree", &path], format!("node {line} 1\n")),
        (&["create", "-s", &path], format!("{line}0000000001\n")),
        (&["multi", &format!("check '{path}'")], format!("checked {line}\n")),
    ] {
        assert_eq!(run(&server, arguments).await.ok(), text, "{arguments:?}");
        let json = run(&server, &[arguments, &["--json"]].concat()).await;
        assert_harmless(&json);
        let object: Value = serde_json::from_str(json.out.lines().next().unwrap()).unwrap();
        assert!(object["path"].as_str().unwrap().starts_with(&path), "{json:?}");
        if arguments.first() == Some(&"get") {
            assert_eq!(object["data"], HOSTILE);
        }
    }
    for (arguments, text) in [
        (&["get", &format!("{path}/no")][..], format!("{line}/no: no such node")),
        (&["get", HOSTILE], format!("\"{ESCAPED}\": ")),
        (&["ls", &path, HOSTILE], "\\u{202e}b\\\\n'".to_owned()),
        (&["locks", &format!("{path}/no")], format!("{line}/no does not exist")),
        (&["lock", HOSTILE, "--", "true"], format!("\"{ESCAPED}\": ")),
        (&["lead", HOSTILE, "--", "true"], format!("\"{ESCAPED}\": ")),
        (&["get", "--connect", HOSTILE, "/"], format!("\"{ESCAPED}\" has U+009B in its name")),
        (&["get", "--connect", "a\\b", "/"], r#""a\\b" has '\\' in its name"#.to_owned()),
        (&["decode", HOSTILE], format!("{ESCAPED}: No such file")),
    ] {
        let ran = run(&server, arguments).await;
        assert_harmless(&ran);
        assert!(ran.err.contains(&text), "{text:?} in {ran:?}");
    }
    let inner = [env!("CARGO_BIN_EXE_docent"), "locks", &path];
    let lock = [&["lock", "--data", HOSTILE, &path, "--"][..], &inner].concat();
    let listed = run(&server, &lock).await;
    assert_harmless(&listed);
    assert!(listed.out.contains(&format!("  {ESCAPED}\n")), "{listed:?}");
    let listed = run(&server, &[&lock[..], &["--json"]].concat()).await;
    assert_harmless(&listed);
    let object: Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(object["owner"], HOSTILE);
}

// Case (Found in docent itself): `docent --help` with a full output exited with 0; `serve` and
// `tap`, and each error with a full standard error, panicked.
#[tokio::test]
async fn an_output_that_cannot_be_written_is_an_error() {
    let (server, path) = (server(), unique_path("full"));
    run(&server, &["create", "-p", &path]).await.ok();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["--help"][..],
        &["-V"],
        &["lock", "--help"],
        &["lock", "-h"],
        &["help", "ls"],
        &["completions", "bash"],
        &["stat", &path],
        &["ls", "-r", &path],
        &["tree", &path],
        &["serve", "--listen", "127.0.0.1:0"],
        &["tap", "--upstream", &server],
    ] {
        let ran = ended(docent(&server, arguments).stdout(full()).spawn().unwrap()).await;
        ran.failed(74, "cannot write the output: ");
    }
    // Even if the message cannot be written, the exit code is that of the error.
    for (arguments, code) in [(&["frob"][..], 64), (&["get", "/no/such"], 1), (&[], 64)] {
        let ran = ended(docent(&server, arguments).stderr(full()).spawn().unwrap()).await;
        assert_eq!(ran.code, Some(code), "{arguments:?}");
    }
}
