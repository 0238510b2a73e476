//! Errors in the command line, printed in one line.

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};

use crate::exit;

/// Prints help and version as clap does, and an error in one line.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let is_requested = error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        // A closed output is not an error.
        let _ = error.print();
        return ExitCode::from(if is_requested { 0 } else { exit::USAGE });
    }
    let name = std::env::args().nth(1).filter(|name| !name.starts_with('-')).unwrap_or_default();
    let is_command = error.kind() != ErrorKind::InvalidSubcommand && !name.is_empty();
    let command = if is_command { format!("docent {name}") } else { "docent".to_owned() };
    let advice = if takes_a_command(&name) && is_a_word(error) {
        " (put -- before the command)"
    } else {
        ""
    };
    eprintln!("{command}: {}{advice}; see `{command} --help`", one_line(&error.to_string()));
    ExitCode::from(exit::USAGE)
}

/// Whether the rest of the arguments, behind `--`, is a command.
fn takes_a_command(name: &str) -> bool {
    matches!(name, "lock" | "lead")
}

/// Whether an argument is unexpected that is no option.
fn is_a_word(error: &clap::Error) -> bool {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    error.kind() == ErrorKind::UnknownArgument
        && argument.is_some_and(|argument| !argument.starts_with('-'))
}

/// Returns the first paragraph and the tips of clap's text.
fn one_line(text: &str) -> String {
    let mut parts = Vec::new();
    for paragraph in text.split("\n\n") {
        let lines: Vec<_> = paragraph.lines().map(str::trim).collect();
        let paragraph = lines.join(" ");
        if let Some(message) = paragraph.strip_prefix("error: ") {
            parts.push(message.trim_end_matches(':').to_owned());
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
    fn the_error_and_its_tips_are_one_line() {
        let text = "error: unexpected argument '--tiemout' found\n\n  tip: a similar argument exists: '--timeout'\n\n\
                    Usage: docent lock [OPTIONS] <PATH>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "unexpected argument '--tiemout' found; a similar argument exists: '--timeout'"
        );
        let text =
            "error: the following required arguments were not provided:\n  <PATH>\n\nUsage: x\n";
        assert_eq!(one_line(text), "the following required arguments were not provided: <PATH>");
    }
}
