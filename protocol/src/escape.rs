//! Text from peers, made safe to print.

use core::fmt::{self, Display, Formatter};

/// Displays text on one line, without characters that a terminal acts on instead of showing them: these are escaped as
/// in Rust (`\n`, `\u{9b}`), and a backslash is escaped too (`\\`), so that different texts stay different.
///
/// Escaped are control characters (C0, DEL, C1), line and paragraph separators, marks of direction, and other
/// characters without a shape, except the joiners U+200C and U+200D, which many scripts need.
///
/// ```
/// use docent_protocol::Escaped;
///
/// assert_eq!(Escaped("/é\u{9b}2J").to_string(), r"/é\u{9b}2J");
/// assert_eq!(Escaped(r"/a\n").to_string(), r"/a\\n");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_escaped = |character| character == '\\' || is_hidden(character);
        runs(self.0, is_escaped, f, |character, f| Display::fmt(&character.escape_debug(), f))
    }
}

/// Displays a JSON text, without characters that a terminal acts on instead of showing them: in strings, which alone can
/// contain them, they are escaped as `\u009b`. The JSON value stays the same. [`Escaped`] lists the characters.
///
/// ```
/// use docent_protocol::EscapedJson;
///
/// assert_eq!(EscapedJson("{\"path\":\"/\u{9b}2J\"}").to_string(), r#"{"path":"/\u009b2J"}"#);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct EscapedJson<'a>(pub &'a str);

impl Display for EscapedJson<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        runs(self.0, is_hidden, f, |character, f| {
            let mut units = [0; 2];
            character
                .encode_utf16(&mut units)
                .iter()
                .try_for_each(|unit| write!(f, "\\u{unit:04x}"))
        })
    }
}

/// Writes text, the characters that `is_escaped` selects by `escape`.
fn runs(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    f: &mut Formatter<'_>,
    escape: impl Fn(char, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    let mut rest = text;
    while let Some((at, character)) = rest.char_indices().find(|&(_, c)| is_escaped(c)) {
        let (plain, found) = rest.split_at(at);
        f.write_str(plain)?;
        escape(character, f)?;
        rest = found.get(character.len_utf8()..).unwrap_or_default();
    }
    f.write_str(rest)
}

const fn is_hidden(character: char) -> bool {
    matches!(character,
        // C0, DEL, C1.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Direction, and separators of lines and paragraphs between its marks.
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Without a shape.
        | '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn control_characters_are_escaped_in_text_and_json() {
        for (character, text, json) in [
            ('\0', r"\0", r"\u0000"),
            ('\n', r"\n", r"\u000a"),
            ('\u{1b}', r"\u{1b}", r"\u001b"),
            ('\u{7f}', r"\u{7f}", r"\u007f"),
            ('\u{80}', r"\u{80}", r"\u0080"),
            ('\u{9f}', r"\u{9f}", r"\u009f"),
            ('\u{61c}', r"\u{61c}", r"\u061c"),
            ('\u{200f}', r"\u{200f}", r"\u200f"),
            ('\u{202e}', r"\u{202e}", r"\u202e"),
            ('\u{2066}', r"\u{2066}", r"\u2066"),
            ('\u{2069}', r"\u{2069}", r"\u2069"),
            ('\u{feff}', r"\u{feff}", r"\ufeff"),
            ('\u{e0041}', r"\u{e0041}", r"\udb40\udc41"),
        ] {
            let raw = ["é", "x"].join(character.to_string().as_str());
            assert_eq!(Escaped(&raw).to_string(), ["é", "x"].join(text), "{character:?}");
            assert_eq!(EscapedJson(&raw).to_string(), ["é", "x"].join(json), "{character:?}");
        }
        let plain = "aé\"' \u{a0}\u{301}日\u{200d}👩";
        assert_eq!(Escaped(plain).to_string(), plain);
        assert_eq!(
            (Escaped("\\").to_string(), EscapedJson("\\").to_string()),
            (r"\\".into(), r"\".into())
        );
    }
}
