//! The output of the commands.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use docent_protocol::{Escaped, EscapedJson};
use serde_json::Value;

use crate::exit::Failure;

/// Escapes text for a line of output.
pub(crate) fn escape(text: &str) -> String {
    Escaped(text).to_string()
}

/// Prints text and flushes the output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a JSON value on one line.
pub(crate) fn print_json(value: impl Into<Value>) -> Result<(), Failure> {
    print(&json_line(&value.into()))
}

/// Formats a JSON value as one line.
pub(crate) fn json_line(value: &Value) -> String {
    format!("{}\n", EscapedJson(&value.to_string()))
}

/// Prints a message on standard error, always as one line. An error is ignored, because there is no other place to
/// report it.
pub(crate) fn report(message: impl Display) {
    let _ = io::stderr().write_all(format!("{}\n", one_line(&message.to_string())).as_bytes());
}

/// Replaces line breaks by spaces, and escapes the text.
fn one_line(text: &str) -> String {
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    escape(&lines.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_always_one_line() {
        assert_eq!(one_line("one\n  two\r\n\nthree\u{7}"), r"one two three\u{7}");
    }
}
