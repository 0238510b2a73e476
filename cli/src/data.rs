//! The data of nodes, for people and for programs.

use serde_json::{Map, Value};

/// As text on one line: what is no text, or would move the cursor, is escaped.
pub(crate) fn shown(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    let escape = |char: char| char.is_control();
    if !text.contains(escape) {
        return text.into_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if escape(char) { shown.extend(char.escape_default()) } else { shown.push(char) }
    }
    shown
}

/// For JSON: the member `data` with text, or `data_base64` with anything else.
pub(crate) fn put(object: &mut Map<String, Value>, data: &[u8]) {
    match std::str::from_utf8(data) {
        Ok(text) => object.insert("data".to_owned(), text.into()),
        Err(_) => object.insert("data_base64".to_owned(), base64(data).into()),
    };
}

/// RFC 4648, with padding.
fn base64(data: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in data.chunks(3) {
        let bytes = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let [a, b, c] = bytes;
        let all = a << 16 | b << 8 | c;
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = usize::try_from(all >> shift & 63).ok().and_then(|at| DIGITS.get(at));
            let digit = digit.filter(|_| at <= chunk.len());
            text.push(digit.map_or('=', |digit| char::from(*digit)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (data, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(data.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
    }

    #[test]
    fn what_moves_the_cursor_is_escaped() {
        assert_eq!(shown("aé\u{1b}[2J\n".as_bytes()), "aé\\u{1b}[2J\\n");
        assert_eq!(shown(b"\xff"), "\u{fffd}");
    }
}
