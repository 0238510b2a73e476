//! Runs what the guide's pages show: the blocks of shell commands, and the answers of the exercises.
//!
//! An answer is a `<details>`. It has a server, `docent tap` in front of it, and `docent shell` behind that:
//!
//! | block | |
//! |---|---|
//! | `console` | `docent> LINE` is typed into the shell and `tap> LINE` into the tap, and the lines after it are what the shell prints, in any order; numbers like `0x1` may differ, and ` …` is the rest of a line |
//! | `sh` | runs in a shell of its own, and succeeds |
//! | `frames` | the last lines of the tap; those of each client in this order |

use std::{collections::BTreeMap, env, path::Path};
use tokio::{process::Command, time::timeout};

use super::*;
use crate::sessions::Typed;

/// The blocks of code in a text, each with its language.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n'))
}

async fn run_block(connect: &str, block: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_docent")).parent().unwrap();
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths([program.to_owned()].into_iter().chain(env::split_paths(&path)));
    // A command that fails must fail the block.
    let mut shell = Command::new("bash");
    shell
        .args(["-e", "-o", "pipefail", "-c", block])
        .env("PATH", path.unwrap())
        .env("DOCENT_CONNECT", connect)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(Duration::from_secs(60), shell.output()).await.unwrap().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}\n{block}", output.status);
}

/// A server, a tap and a shell.
struct Desk {
    _server: TestingServer,
    tap: Typed,
    connect: String,
    shell: Typed,
    /// The lines of the tap.
    frames: Vec<String>,
    notes: usize,
}

impl Desk {
    async fn new(options: &[&str]) -> Self {
        let server = TestingServer::start().await.unwrap();
        let upstream = server.connect_string();
        let mut tap = Typed::start(docent("", &["tap", "--upstream", &upstream]));
        let connect = tap.line().await.strip_prefix("listening on ").unwrap().to_owned();
        let shell = Typed::shell(&connect, options).await;
        Self { _server: server, tap, connect, shell, frames: Vec::new(), notes: 0 }
    }

    async fn console(&mut self, block: &str) {
        let mut lines = block.lines().peekable();
        while let Some(line) = lines.next() {
            let mut expected = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.contains("> ")) {
                expected.push(line);
            }
            match line.split_once("> ") {
                Some(("docent", line)) => self.shell.types(line, &expected).await,
                Some(("tap", line)) => {
                    self.tap.types(line, &[]).await;
                    self.until_noted().await;
                    self.shell.prints(line, &expected).await;
                }
                _ => panic!("not typed anywhere: {line}"),
            }
        }
    }

    /// Waits until the tap has executed its commands, and printed the frames so far.
    async fn until_noted(&mut self) {
        self.notes += 1;
        let note = format!("exercise {}", self.notes);
        self.tap.types(&format!("note {note}"), &[]).await;
        loop {
            let line = self.tap.line().await;
            if line.contains(&note) {
                return;
            }
            self.frames.push(line);
        }
    }

    /// Compares the last frames of each client.
    async fn frames(&mut self, block: &str) {
        let by_client = |lines: &mut dyn Iterator<Item = String>| {
            let mut clients = BTreeMap::<String, Vec<String>>::new();
            for line in lines {
                let name = line.split(' ').next().unwrap_or_default().to_owned();
                clients.entry(name).or_default().push(line);
            }
            clients
        };
        let expected = by_client(&mut block.lines().map(str::to_owned));
        eventually_async(async || {
            self.until_noted().await;
            let shown = by_client(&mut self.frames.iter().cloned());
            let missing = expected.iter().find(|(name, lines)| {
                !shown.get(*name).is_some_and(|shown| shown.ends_with(lines))
            });
            missing.map(|(name, lines)| (lines.clone(), shown.get(name).cloned()))
        })
        .await;
    }
}

/// Repeats a check until it finds nothing; then its last finding is the error.
async fn eventually_async<T: std::fmt::Debug>(mut check: impl AsyncFnMut() -> Option<T>) {
    let mut found = None;
    let done = timeout(DEADLINE, async {
        loop {
            found = check().await;
            if found.is_none() {
                return;
            }
        }
    });
    let is_late = done.await.is_err();
    assert!(!is_late, "{found:#?}");
}

#[tokio::test]
async fn every_command_on_the_page_of_the_shell_succeeds() {
    let server = TestingServer::start().await.unwrap();
    let mut run = 0;
    for (language, block) in blocks(include_str!("../../docs/guide/src/shell.md")) {
        if language == "sh" {
            run_block(&server.connect_string(), block).await;
            run += 1;
        }
    }
    assert!(run > 5, "{run}");
}

/// Runs the answers of a chapter.
async fn answers(chapter: &str, text: &str) {
    let mut played = 0;
    for answer in text.split("<details>").skip(1) {
        let (answer, _) = answer.split_once("</details>").unwrap();
        let mut desk: Option<Desk> = None;
        for (language, block) in blocks(answer) {
            if desk.is_none() && matches!(language, "console" | "sh") {
                // Sessions of killed clients end soon.
                desk = Some(Desk::new(&["--session-timeout", "4s"]).await);
            }
            let Some(desk) = &mut desk else { continue };
            match language {
                "console" => desk.console(block).await,
                "sh" => run_block(&desk.connect, block).await,
                "frames" => desk.frames(block).await,
                _ => continue,
            }
            played += 1;
        }
        if let Some(desk) = desk {
            let ended = desk.shell.end().await;
            assert_eq!(ended, (Some(0), vec![]), "{chapter}: printed after {answer}");
        }
    }
    assert!(played > 0, "{chapter}: an exercise whose answer is run");
}

/// Each chapter of the part "How locks work" has an exercise.
#[tokio::test]
async fn the_answers_of_the_exercises_are_what_programs_print() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/src");
    let summary = fs::read_to_string(format!("{guide}/SUMMARY.md")).unwrap();
    let (_, part) = summary.split_once("# How locks work").unwrap();
    let part = part.split("\n# ").next().unwrap();
    let only = env::var("DOCENT_CHAPTER").unwrap_or_default();
    let mut chapters = 0;
    for chapter in part.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        chapters += 1;
        if chapter.contains(&only) {
            answers(chapter, &fs::read_to_string(format!("{guide}/{chapter}")).unwrap()).await;
        }
    }
    assert!(chapters > 10, "{chapters}");
}
