//! Text on the wire, which may be null or not UTF-8.

use alloc::{borrow::Cow, string::String};
use core::fmt;

/// A ustring: text that may be null, kept as the bytes on the wire.
///
/// A Java server sends text that is not always UTF-8. It encodes a character above U+FFFF as two surrogates of
/// three bytes each (CESU-8), and returns bytes that it received without a check. Decoding a `Text` therefore
/// never fails, and [`to_str`](Self::to_str) converts it lossily. Null is distinct from empty.
///
/// Source: `BinaryOutputArchive.stringToByteBuffer`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Text<'a>(Option<&'a [u8]>);

impl<'a> Text<'a> {
    /// The null text: the length -1.
    pub const NULL: Self = Self(None);

    /// A text in UTF-8.
    #[must_use]
    pub const fn new(text: &'a str) -> Self {
        Self(Some(text.as_bytes()))
    }

    /// A text of any bytes; `None` is null.
    #[must_use]
    pub const fn from_bytes(bytes: Option<&'a [u8]>) -> Self {
        Self(bytes)
    }

    /// Whether the text is null, which is distinct from empty.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0.is_none()
    }

    /// The bytes; `None` for null.
    #[must_use]
    pub const fn bytes(self) -> Option<&'a [u8]> {
        self.0
    }

    /// The bytes; empty for null.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0.unwrap_or_default()
    }

    /// The text as a string; empty for null.
    ///
    /// Borrows if the bytes are UTF-8. Otherwise each surrogate pair is replaced by its character, and every
    /// other invalid sequence by U+FFFD.
    #[must_use]
    pub fn to_str(self) -> Cow<'a, str> {
        match core::str::from_utf8(self.as_bytes()) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(decode_lossy(self.as_bytes())),
        }
    }
}

/// Decodes surrogate pairs of CESU-8 and replaces other sequences that are not UTF-8.
fn decode_lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        if let Some((pair, tail)) = surrogate_pair(rest) {
            text.push(pair);
            rest = tail;
            continue;
        }
        let bad = match core::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => error,
        };
        let (valid, tail) = rest.split_at(bad.valid_up_to());
        text.push_str(core::str::from_utf8(valid).unwrap_or_default());
        rest = tail;
        if surrogate_pair(rest).is_none() {
            text.push(char::REPLACEMENT_CHARACTER);
            rest = rest.get(bad.error_len().unwrap_or(rest.len())..).unwrap_or_default();
        }
    }
    text
}

/// Decodes a surrogate pair of three bytes each at the start. Returns its character and the rest of the bytes.
fn surrogate_pair(bytes: &[u8]) -> Option<(char, &[u8])> {
    let (front, rest) = bytes.split_at_checked(6)?;
    let &[0xED, h1 @ 0xA0..=0xAF, h2 @ 0x80..=0xBF, 0xED, l1 @ 0xB0..=0xBF, l2 @ 0x80..=0xBF] =
        front
    else {
        return None;
    };
    let high = (u32::from(h1 & 0x0F) << 6) | u32::from(h2 & 0x3F);
    let low = (u32::from(l1 & 0x0F) << 6) | u32::from(l2 & 0x3F);
    char::from_u32(0x1_0000 + (high << 10) + low).map(|pair| (pair, rest))
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::new(text)
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == Some(other.as_bytes())
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

/// As [`to_str`](Text::to_str), except that null displays as `null`.
impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() { f.write_str("null") } else { f.pad(&self.to_str()) }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() { f.write_str("null") } else { fmt::Debug::fmt(&self.to_str(), f) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString as _, vec::Vec};

    use super::*;

    #[test]
    fn utf8_is_borrowed() {
        assert!(matches!(Text::new("/straße/日本").to_str(), Cow::Borrowed("/straße/日本")));
    }

    /// A server sends U+1F600 back as two surrogates (a sync reply in `tests/data/golden.json`).
    // Case (Pitfalls of the wire, 6): CESU-8 from the server.
    #[test]
    fn surrogate_pairs_become_their_character() {
        let path = b"/x\xED\xA0\xBD\xED\xB8\x80y";
        assert_eq!(Text::from_bytes(Some(path)).to_str(), "/x\u{1F600}y");
    }

    #[test]
    fn every_surrogate_pair_is_the_character_that_it_stands_for() {
        // A prime step, so that all bits of both halves take part.
        for number in (0x1_0000..=0x10_FFFF).step_by(37) {
            let character = char::from_u32(number).unwrap();
            let mut units = [0; 2];
            let mut bytes = Vec::new();
            for unit in character.encode_utf16(&mut units) {
                let [high, low] = unit.to_be_bytes();
                bytes.extend([
                    0xE0 | high >> 4,
                    0x80 | (high & 0x0F) << 2 | low >> 6,
                    0x80 | low & 0x3F,
                ]);
            }
            assert_eq!(Text::from_bytes(Some(&bytes)).to_str(), character.to_string());
        }
    }

    #[test]
    fn texts_equal_strings_of_the_same_bytes_only() {
        assert_eq!(Text::new("a"), "a");
        assert_ne!(Text::new("a"), "b");
        assert_ne!(Text::NULL, "");
    }

    #[test]
    fn lone_surrogates_and_other_invalid_sequences_are_replaced() {
        for (bytes, expected) in [
            (&b"a\xED\xA0\xBDb"[..], "a\u{FFFD}\u{FFFD}\u{FFFD}b"),
            (b"\xFF\xFE", "\u{FFFD}\u{FFFD}"),
            (b"cut \xE2\x82", "cut \u{FFFD}"),
            (b"\xFF\xED\xA0\xBD\xED\xB8\x80", "\u{FFFD}\u{1F600}"),
        ] {
            assert_eq!(Text::from_bytes(Some(bytes)).to_str(), expected);
        }
    }

    // Case (Pitfalls of the wire, 5): null is not empty.
    #[test]
    fn null_is_not_empty() {
        assert_ne!(Text::NULL, Text::new(""));
        assert_eq!(Text::NULL.to_str(), "");
        assert_eq!(alloc::format!("{} {:?}", Text::NULL, Text::new("")), "null \"\"");
    }
}
