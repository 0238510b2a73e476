//! Text as it is on the wire.

use alloc::{borrow::Cow, string::String};
use core::fmt;

/// A ustring: text that may be null, as the bytes it came in.
///
/// A Java server writes text that is not always UTF-8: characters above U+FFFF come as two
/// three-byte surrogates (CESU-8), and bytes it was sent come back unchecked. So decoding never
/// fails here; [`to_str`](Self::to_str) mends what it can. Null and empty stay different.
///
/// Source: `BinaryOutputArchive.stringToByteBuffer`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Text<'a>(Option<&'a [u8]>);

impl<'a> Text<'a> {
    /// No text at all: the length -1.
    pub const NULL: Self = Self(None);

    /// This text, in UTF-8.
    #[must_use]
    pub const fn new(text: &'a str) -> Self {
        Self(Some(text.as_bytes()))
    }

    /// These bytes, whatever they are; `None` is null.
    #[must_use]
    pub const fn from_bytes(bytes: Option<&'a [u8]>) -> Self {
        Self(bytes)
    }

    /// Whether it is null, which is not the same as empty.
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
    /// Borrowed when the bytes are UTF-8. Otherwise surrogate pairs become the character they stand
    /// for, and every other invalid sequence U+FFFD.
    #[must_use]
    pub fn to_str(self) -> Cow<'a, str> {
        match core::str::from_utf8(self.as_bytes()) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(mend(self.as_bytes())),
        }
    }
}

/// Decodes CESU-8 pairs and replaces what else is not UTF-8.
fn mend(bytes: &[u8]) -> String {
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

/// A high and a low surrogate of three bytes each at the front: the character, and what follows.
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

/// As [`to_str`](Text::to_str); null is `null`.
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
    use super::*;

    #[test]
    fn utf8_is_borrowed() {
        assert!(matches!(Text::new("/straße/日本").to_str(), Cow::Borrowed("/straße/日本")));
    }

    /// A server echoes U+1F600 as two surrogates (a golden sync reply).
    #[test]
    fn surrogate_pairs_become_their_character() {
        let echoed = b"/x\xED\xA0\xBD\xED\xB8\x80y";
        assert_eq!(Text::from_bytes(Some(echoed)).to_str(), "/x\u{1F600}y");
    }

    #[test]
    fn lone_surrogates_and_other_rubbish_are_replaced() {
        for (bytes, expected) in [
            (&b"a\xED\xA0\xBDb"[..], "a\u{FFFD}\u{FFFD}\u{FFFD}b"),
            (b"\xFF\xFE", "\u{FFFD}\u{FFFD}"),
            (b"cut \xE2\x82", "cut \u{FFFD}"),
            (b"\xFF\xED\xA0\xBD\xED\xB8\x80", "\u{FFFD}\u{1F600}"),
        ] {
            assert_eq!(Text::from_bytes(Some(bytes)).to_str(), expected);
        }
    }

    #[test]
    fn null_is_not_empty() {
        assert_ne!(Text::NULL, Text::new(""));
        assert_eq!(Text::NULL.to_str(), "");
        assert_eq!(alloc::format!("{} {:?}", Text::NULL, Text::new("")), "null \"\"");
    }
}
