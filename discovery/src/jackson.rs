//! JSON text as Jackson writes it, which Curator uses.
//!
//! Control characters without a short escape have upper-case digits, and a character above U+FFFF is two escapes. All
//! others are written as they are.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// A value as text.
pub(crate) fn to_vec<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut text, Jackson))?;
    Ok(text)
}

/// Source: Jackson's `UTF8JsonGenerator`.
struct Jackson;

impl Formatter for Jackson {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c > '\u{ffff}') {
            let (plain, after) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut characters = after.chars();
            let mut units = [0; 2];
            for unit in characters.next().unwrap_or_default().encode_utf16(&mut units) {
                write!(out, "\\u{unit:04X}")?;
            }
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let short = match escape {
            CharEscape::Quote => "\\\"",
            CharEscape::ReverseSolidus => "\\\\",
            CharEscape::Solidus => "/",
            CharEscape::Backspace => "\\b",
            CharEscape::FormFeed => "\\f",
            CharEscape::LineFeed => "\\n",
            CharEscape::CarriageReturn => "\\r",
            CharEscape::Tab => "\\t",
            CharEscape::AsciiControl(byte) => return write!(out, "\\u{byte:04X}"),
        };
        out.write_all(short.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::to_vec;

    #[test]
    fn strings_have_jacksons_escapes() {
        let text = "\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}\u{2028}\u{e9}\u{ffff}\u{1f600}x";
        let written = to_vec(text).unwrap();
        let expected =
            "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001F\u{7f}\u{2028}\u{e9}\u{ffff}\\uD83D\\uDE00x\"";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    proptest::proptest! {
        #[test]
        fn every_string_is_read_back(text: String) {
            let read: String = serde_json::from_slice(&to_vec(&text).unwrap()).unwrap();
            assert_eq!(read, text);
        }
    }
}
