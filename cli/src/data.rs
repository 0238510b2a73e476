//! The data of nodes as text and as JSON.

use serde_json::{Map, Value};

use crate::output;

/// Returns the data as text on one line. Bytes that are not UTF-8 are replaced.
pub(crate) fn escape(data: &[u8]) -> String {
    output::escape(&String::from_utf8_lossy(data))
}

/// Adds the data to a JSON object: as `data` if it is UTF-8, else as `data_base64`.
pub(crate) fn insert(object: &mut Map<String, Value>, data: &[u8]) {
    match std::str::from_utf8(data) {
        Ok(text) => object.insert("data".to_owned(), text.into()),
        Err(_) => object.insert("data_base64".to_owned(), base64(data).into()),
    };
}

/// Encodes as in RFC 4648, with padding.
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
    fn base64_matches_rfc_4648() {
        for (data, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(data.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
    }
}
