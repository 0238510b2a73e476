//! Plays the transcripts in `transcripts`: command lines of `docent` and their output. The tests run on the
//! server of `DOCENT_TEST_CONNECT`, or on an embedded one.
//!
//! | line | |
//! |---|---|
//! | `$ get /a` | runs `docent get /a` in the chroot of the transcript |
//! | `< TEXT` | a line of its standard input; `\t` is a tab |
//! | `! CODE TEXT` | it exits with this code and prints a one-line error that contains the text |
//! | `% CODE` | it exits with this code and prints no error |
//! | `~ TEXT` | its output contains the text |
//! | `# TEXT` | a comment |
//! | any other line | a line of its output; if there is one, all lines are listed |

use super::*;

/// A command line, and the lines after it.
#[derive(Default)]
struct Step<'a> {
    command: &'a str,
    input: String,
    output: Vec<&'a str>,
    contained: Vec<&'a str>,
    failure: Option<(i32, &'a str)>,
    code: i32,
}

fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::<Step<'_>>::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command, ..Step::default() });
            continue;
        }
        let step = steps.last_mut().unwrap_or_else(|| panic!("before the first command: {line}"));
        match line.split_at_checked(2) {
            Some(("< ", text)) => step.input += &format!("{}\n", text.replace("\\t", "\t")),
            Some(("! ", text)) => {
                let (code, text) = text.split_once(' ').unwrap_or((text, ""));
                step.failure = Some((code.parse().unwrap(), text));
            }
            Some(("% ", code)) => step.code = code.parse().unwrap(),
            Some(("~ ", text)) => step.contained.push(text),
            _ => step.output.push(line),
        }
    }
    steps
}

/// Splits a command line. `'a b'` is one word.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(n, part)| if n % 2 == 1 { vec![part] } else { part.split(' ').collect() })
        .filter(|word| !word.is_empty())
        .collect()
}

#[tokio::test]
async fn each_transcript_is_what_the_program_prints() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    let mut played = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let file = entry.unwrap().path();
        let chroot = format!("{}{}", server(), unique_path("transcript"));
        run(&chroot, &["create", "-p", "/start"]).await.ok();
        run(&chroot, &["delete", "/start"]).await.ok();
        for step in steps(&fs::read_to_string(&file).unwrap()) {
            let place = format!("{}: {}", file.display(), step.command);
            let ran = run_with_input(&chroot, &words(step.command), &step.input).await;
            if step.contained.is_empty() {
                assert_eq!(ran.out.trim_end_matches('\n'), step.output.join("\n"), "{place}");
            }
            for text in &step.contained {
                assert!(ran.out.contains(text), "{place}: {text} in {ran:?}");
            }
            match step.failure {
                Some((code, text)) => ran.failed_at(&place, code, text),
                None => assert_eq!((ran.code, &*ran.err), (Some(step.code), ""), "{place}"),
            }
            played += 1;
        }
    }
    assert!(played > 70, "{played}");
}
