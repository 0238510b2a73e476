//! Errors in the command line, printed in one line.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::error::{ContextKind, ErrorKind};

use crate::{
    exit::{self, Failure},
    output,
};

/// Prints help and version as clap does, and an error in one line.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    let name = std::env::args().nth(1).filter(|name| !name.starts_with('-')).unwrap_or_default();
    let is_command = error.kind() != ErrorKind::InvalidSubcommand && !name.is_empty();
    let command = if is_command { format!("docent {name}") } else { "docent".to_owned() };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = error.print().and_then(|()| io::stdout().flush());
            let code = printed.map_or_else(|error| failed_output(&command, error), |()| 0);
            return ExitCode::from(code);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return ExitCode::from(exit::USAGE);
        }
        _ => {}
    }
    let advice = if takes_a_command(&name) && is_a_word(error) {
        " (put -- before the command)"
    } else {
        ""
    };
    let text = one_line(&error.to_string());
    output::report(format_args!("{command}: {text}{advice}; see `{command} --help`"));
    ExitCode::from(exit::USAGE)
}

/// Reports an error of the output, and returns the exit code.
fn failed_output(command: &str, error: io::Error) -> u8 {
    let failure = Failure::from(error);
    if !failure.is_silent() {
        output::report(format_args!("{command}: {failure}"));
    }
    failure.code
}

/// Whether the arguments after `--` are a command to run.
fn takes_a_command(name: &str) -> bool {
    matches!(name, "lock" | "lead")
}

/// Whether the error is an unexpected argument that is not an option.
fn is_a_word(error: &clap::Error) -> bool {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    error.kind() == ErrorKind::UnknownArgument
        && argument.is_some_and(|argument| !argument.starts_with('-'))
}

/// Returns the first paragraph and the tips of clap's text.
pub(crate) fn one_line(text: &str) -> String {
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
