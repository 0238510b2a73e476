//! JSON text as Jackson writes it, which Curator uses.
//!
//! Control characters without a short escape have upper-case digits, and a character above U+FFFF is two escapes. All
//! others are written as they are. Floating-point numbers have the form of `Double.toString`: with an exponent below 0.001
//! and from 10,000,000 on.

use std::{
    fmt::{Display, LowerExp},
    io::{self, Write},
};

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
    fn write_f32<W: ?Sized + Write>(&mut self, out: &mut W, value: f32) -> io::Result<()> {
        write_float(out, value, value.abs().into())
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        write_float(out, value, value.abs())
    }

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

/// The shortest digits that are read as the same number.
fn write_float<W: ?Sized + Write>(
    out: &mut W,
    value: impl Display + LowerExp,
    size: f64,
) -> io::Result<()> {
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        let digits = value.to_string();
        let end = if digits.contains('.') { "" } else { ".0" };
        return write!(out, "{digits}{end}");
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let end = if digits.contains('.') { "" } else { ".0" };
    write!(out, "{digits}{end}E{exponent}")
}

#[cfg(test)]
mod tests {
    use super::to_vec;

    #[test]
    fn numbers_have_the_form_of_java() {
        for (number, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (-7.0, "-7.0"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (-1.25e10, "-1.25E10"),
            (0.001, "0.001"),
            (0.000_999, "9.99E-4"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157E308"),
            (5e-324, "5.0E-324"),
        ] {
            assert_eq!(String::from_utf8(to_vec(&number).unwrap()).unwrap(), expected);
        }
        assert_eq!(to_vec(&0.1_f32).unwrap(), b"0.1");
        assert_eq!(to_vec(&1e10_f32).unwrap(), b"1.0E10");
        assert_eq!(to_vec(&f64::NAN).unwrap(), b"null");
    }

    // Case (Service discovery): the texts of an instance have the escapes of Jackson.
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
