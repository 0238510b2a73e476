//! Text encoding of a Java server.

use std::borrow::Cow;

/// UTF-8, except that a character above U+FFFF becomes two surrogates of three bytes each (CESU-8).
///
/// Source: `BinaryOutputArchive.stringToByteBuffer`.
pub(crate) fn bytes(text: &str) -> Cow<'_, [u8]> {
    if text.chars().all(|character| character <= '\u{FFFF}') {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut out = Vec::with_capacity(text.len() * 2);
    for unit in text.encode_utf16() {
        let [low, middle, high] =
            [unit & 0x3F, unit >> 6 & 0x3F, unit >> 12].map(|part| part.to_le_bytes()[0]);
        match unit {
            0..0x80 => out.push(low | middle << 6),
            0x80..0x800 => out.extend([0xC0 | middle | high << 6, 0x80 | low]),
            _ => out.extend([0xE0 | high, 0x80 | middle, 0x80 | low]),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a recorded sync reply: `/g/` and U+1F600.
    #[test]
    fn characters_above_ffff_become_surrogates() {
        assert_eq!(&*bytes("/g/\u{1F600}"), b"/g/\xED\xA0\xBD\xED\xB8\x80");
        assert_eq!(bytes("é日x\u{1F600}")[..6], *"é日x".as_bytes());
        assert!(matches!(bytes("/straße"), Cow::Borrowed(_)));
    }
}
