//! What is wrong with a command line, in one line.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::exit;

/// Commands that are older than the exit code for wrong usage, and keep clap's.
const WITH_CODE_2: [&str; 3] = ["decode", "serve", "tap"];

/// Help and versions are printed; of an error, one line.
pub(crate) fn told(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let is_asked_for = error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        // A reader that has gone is no failure.
        let _ = error.print();
        return ExitCode::from(if is_asked_for { 0 } else { exit::USAGE });
    }
    let name = std::env::args().nth(1).filter(|name| !name.starts_with('-')).unwrap_or_default();
    if WITH_CODE_2.contains(&name.as_str()) {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let is_command = error.kind() != ErrorKind::InvalidSubcommand && !name.is_empty();
    let command = if is_command { format!("docent {name}") } else { "docent".to_owned() };
    eprintln!("{command}: {}; see `{command} --help`", line(&error.to_string()));
    ExitCode::from(exit::USAGE)
}

/// The first paragraph and the tips of clap's text.
fn line(text: &str) -> String {
    let mut parts = Vec::new();
    for paragraph in text.split("\n\n") {
        let words: Vec<_> = paragraph.lines().map(str::trim).collect();
        let paragraph = words.join(" ");
        if let Some(what) = paragraph.strip_prefix("error: ") {
            parts.push(what.trim_end_matches(':').to_owned());
        } else if let Some(tip) = paragraph.strip_prefix("tip: ") {
            parts.push(tip.replace(" tip: ", "; "));
        }
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_and_the_tips_are_one_line() {
        let text = "error: unexpected argument '--tiemout' found\n\n  tip: a similar argument exists: '--timeout'\n\n\
                    Usage: docent lock [OPTIONS] <PATH>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            line(text),
            "unexpected argument '--tiemout' found; a similar argument exists: '--timeout'"
        );
        let text =
            "error: the following required arguments were not provided:\n  <PATH>\n\nUsage: x\n";
        assert_eq!(line(text), "the following required arguments were not provided: <PATH>");
    }
}
