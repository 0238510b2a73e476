//! Names in the scheme `x509`: the subject of a client certificate, written as Java writes it, and the names allowed in
//! ACLs.
//!
//! Identities are compared as texts, so they must equal those of a real server in each character.
//!
//! Source: RFC 2253; `X509AuthenticationProvider.getClientId` and `isValid`; of the JDK, `X500Principal.getName`,
//! `AVA.toRFC2253String`, `X500Name.parseDN`.

use std::{fmt::Write as _, io};

use tokio_rustls::rustls::pki_types::CertificateDer;

const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

const UTF8_STRING: u8 = 0x0C;
const BMP_STRING: u8 = 0x1E;
/// PrintableString, TeletexString, IA5String and GeneralString, which Java reads as Latin-1.
const LATIN_1_STRINGS: [u8; 4] = [0x13, 0x14, 0x16, 0x1B];

/// The attributes with a keyword in RFC 2253. All others are shown by their object identifiers.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];

/// Further keywords that Java reads, but does not write.
const FURTHER_KEYWORDS: [&str; 12] = [
    "S",
    "T",
    "IP",
    "DNQUALIFIER",
    "DNQ",
    "SURNAME",
    "GIVENNAME",
    "INITIALS",
    "GENERATION",
    "EMAIL",
    "EMAILADDRESS",
    "SERIALNUMBER",
];

/// Returns the name of the subject of a certificate, such as `CN=alice,O=Example\, Inc.,C=DE`.
///
/// # Errors
///
/// `InvalidData` if the subject is not valid DER, or an arc of an object identifier has more than 128 bits. Java
/// accepts such an arc, and lengths that are not in their shortest form.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> io::Result<String> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let certificate = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| invalid(format!("the client certificate: {error}")))?;
    name(certificate.subject())
        .ok_or_else(|| invalid("the client certificate has an invalid subject".to_owned()))
}

/// Writes a name. The argument is the content of its sequence.
fn name(mut der: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !der.is_empty() {
        parts.push(relative_name(take(&mut der, SET)?)?);
    }
    parts.reverse();
    Some(parts.join(","))
}

/// Writes a relative distinguished name, whose attributes keep their order.
fn relative_name(mut der: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !der.is_empty() {
        parts.push(attribute(take(&mut der, SEQUENCE)?)?);
    }
    Some(parts.join("+"))
}

/// Writes a type and its value.
fn attribute(mut der: &[u8]) -> Option<String> {
    let oid = object_identifier(take(&mut der, OBJECT_IDENTIFIER)?)?;
    let encoded = der;
    let (tag, value) = take_any(&mut der)?;
    if !der.is_empty() {
        return None;
    }
    let keyword = KEYWORDS.iter().find(|(known, _)| *known == oid).map(|(_, keyword)| keyword);
    let text = match tag {
        UTF8_STRING => Some(utf_8(value)),
        BMP_STRING => Some(utf_16(value)?),
        tag if LATIN_1_STRINGS.contains(&tag) => {
            Some(value.iter().copied().map(char::from).collect())
        }
        _ => None,
    };
    Some(match (keyword, text) {
        (Some(keyword), Some(text)) => format!("{keyword}={}", escape(&text)),
        (Some(keyword), None) => format!("{keyword}=#{}", hex(encoded)),
        (None, _) => format!("{oid}=#{}", hex(encoded)),
    })
}

/// Escapes more than RFC 2253 requires: `=`, every `#`, every space and carriage return at both ends, and null.
fn escape(value: &str) -> String {
    let is_blank = |c: char| matches!(c, ' ' | '\r');
    let rest = value.trim_start_matches(is_blank);
    let start = value.len() - rest.len();
    let end = start + rest.trim_end_matches(is_blank).len();
    let mut out = String::with_capacity(value.len());
    for (at, c) in value.char_indices() {
        if c == '\0' {
            out.push_str("\\00");
            continue;
        }
        if at < start || at >= end || ",=+<>#;\"\\".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Decodes UTF-8 as Java does: invalid bytes are replaced, and a surrogate of three bytes becomes one replacement.
fn utf_8(bytes: &[u8]) -> String {
    let mut valid = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == 0xED
            && let [0xA0..=0xBF, after @ ..] = after
        {
            rest = match after {
                [0x80..=0xBF, after @ ..] => after,
                _ => after,
            };
            // 0xFF is never valid UTF-8, so it becomes one replacement.
            valid.push(0xFF);
        } else {
            valid.push(byte);
        }
    }
    String::from_utf8_lossy(&valid).into_owned()
}

/// Decodes UTF-16 as JDK 17.0.21 does; older ones read the bytes as UTF-8. A lone first half of a surrogate pair is
/// replaced together with the next character, a lone second half by itself. A pair is refused: a BMPString has only
/// characters up to U+FFFF.
fn utf_16(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut characters = bytes.chunks(2).map(|bytes| match *bytes {
        [high, low] => u16::from_be_bytes([high, low]),
        _ => u16::from_be_bytes([0xFF, 0xFD]),
    });
    while let Some(unit) = characters.next() {
        let is_first_half = (0xD800..0xDC00).contains(&unit);
        if is_first_half && matches!(characters.next(), Some(0xDC00..0xE000)) {
            return None;
        }
        text.push(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    Some(text)
}

/// The length above which the JDK refuses an object identifier, in bytes.
const MAX_OBJECT_IDENTIFIER: usize = 4096;

/// Writes an object identifier with dots. An arc has at most 128 bits, as those of UUIDs have.
fn object_identifier(der: &[u8]) -> Option<String> {
    if der.len() > MAX_OBJECT_IDENTIFIER {
        return None;
    }
    let mut arcs = Vec::new();
    let mut arc: Option<u128> = None;
    for byte in der {
        // An arc does not begin with zeros.
        if arc.is_none() && *byte == 0x80 {
            return None;
        }
        let value = arc.unwrap_or(0).checked_mul(128)? | u128::from(byte & 0x7F);
        arc = Some(value);
        if byte & 0x80 == 0 {
            arcs.push(value);
            arc = None;
        }
    }
    if arc.is_some() {
        return None;
    }
    let (first, others) = arcs.split_first()?;
    let root = (first / 40).min(2);
    let mut out = format!("{root}.{}", first - root * 40);
    for arc in others {
        let _ = write!(out, ".{arc}");
    }
    Some(out)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes an element of this tag, and returns its content.
fn take<'a>(der: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    take_any(der).filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
}

/// Takes an element. Returns its content and its tag; in a name, every tag is one byte.
///
/// A handshake message has fewer than 65,536 bytes, so lengths have at most two. DER requires their shortest form.
fn take_any<'a>(der: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (len, rest) = match (first, rest) {
        (0..=0x7F, rest) => (u16::from(first), rest),
        (0x81, [len @ 0x80..=0xFF, rest @ ..]) => (u16::from(*len), rest),
        (0x82, [high @ 1..=0xFF, low, rest @ ..]) => (u16::from_be_bytes([*high, *low]), rest),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len.into())?;
    *der = rest;
    (tag & 0x1F != 0x1F).then_some((tag, content))
}

/// Whether an ACL may have this id: a name in any form that Java reads. Java writes only one of them.
pub(crate) fn is_name(id: &str) -> bool {
    let (mut is_escaped, mut is_quoted) = (false, false);
    let mut attributes = id.split(|c: char| {
        let was_escaped = is_escaped;
        is_escaped = c == '\\' && !was_escaped;
        is_quoted ^= c == '"' && !was_escaped;
        matches!(c, ',' | ';' | '+') && !was_escaped && !is_quoted
    });
    id.is_empty() || attributes.all(is_attribute)
}

fn is_attribute(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, value)| is_type(name) && is_value(value))
}

/// Whether this is a keyword, in any case, or an object identifier.
fn is_type(name: &str) -> bool {
    let name = name.trim_matches(|c| c <= ' ').to_ascii_uppercase();
    let is_keyword = KEYWORDS.iter().any(|(_, keyword)| *keyword == name)
        || FURTHER_KEYWORDS.contains(&name.as_str());
    is_keyword || is_object_identifier(name.strip_prefix("OID.").unwrap_or(&name))
}

fn is_object_identifier(text: &str) -> bool {
    let arcs: Option<Vec<u128>> = text.split('.').map(|arc| arc.parse().ok()).collect();
    matches!(arcs.as_deref(), Some([0 | 1, 0..40, ..] | [2, _, ..]))
}

fn is_value(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '\n']);
    if let Some(digits) = text.strip_prefix('#') {
        return is_encoded(digits);
    }
    let is_quoted = text.starts_with('"');
    let mut rest = text.chars().skip(usize::from(is_quoted));
    while let Some(c) = rest.next() {
        let is_valid = match c {
            '"' if is_quoted => return rest.all(|c| matches!(c, ' ' | '\n')),
            '\\' => is_escape(&mut rest),
            _ => is_quoted || !",+<>;\"".contains(c),
        };
        if !is_valid {
            return false;
        }
    }
    !is_quoted
}

/// Whether a backslash may be followed by these characters: a special one, or two hexadecimal digits.
fn is_escape(rest: &mut impl Iterator<Item = char>) -> bool {
    match rest.next() {
        Some(c) if c.is_ascii_hexdigit() => rest.next().is_some_and(|c| c.is_ascii_hexdigit()),
        Some(c) => ",=\n+<>#;\\\" ".contains(c),
        None => false,
    }
}

/// Whether these are the digits of an element.
fn is_encoded(digits: &str) -> bool {
    let values: Option<Vec<u8>> =
        digits.chars().map(|c| u8::try_from(c.to_digit(16)?).ok()).collect();
    let Some(values) = values.filter(|values| values.len() % 2 == 0) else { return false };
    let bytes: Vec<u8> = values
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();
    let mut der = bytes.as_slice();
    take_any(&mut der).is_some() && der.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(digits: &str) -> Vec<u8> {
        let digits = digits.replace(' ', "");
        (0..digits.len() / 2)
            .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    }

    /// The element of a tag and a content.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = u8::try_from(content.len()).unwrap();
        let len = if len < 0x80 { vec![len] } else { vec![0x81, len] };
        [&[tag], &*len, content].concat()
    }

    /// A name of one attribute.
    fn single(oid: &str, value: &[u8]) -> Vec<u8> {
        let attribute = [element(OBJECT_IDENTIFIER, &bytes(oid)), value.to_vec()].concat();
        element(SET, &element(SEQUENCE, &attribute))
    }

    const CN: &str = "55 04 03";

    /// The expected names are those of `X500Principal.getName` of JDK 17.
    #[test]
    fn names_are_those_of_java() {
        for (oid, value, expected) in [
            (CN, "0c 02 61 62", "CN=ab"),
            ("55 04 06", "13 01 78", "C=x"),
            ("55 04 05", "0c 01 78", "2.5.4.5=#0c0178"),
            ("55", "0c 01 61", "2.5=#0c0161"),
            ("7f", "0c 01 61", "2.47=#0c0161"),
            ("88 80 80 01", "0c 01 61", "2.16777137=#0c0161"),
            ("ff ff ff ff ff ff ff ff ff ff 7f", "0c 01 61", "2.151115727451828646838191=#0c0161"),
            // Types that have no text, or that are constructed.
            (CN, "02 02 61 62", "CN=#02026162"),
            (CN, "12 02 61 62", "CN=#12026162"),
            (CN, "1a 02 61 62", "CN=#1a026162"),
            (CN, "2c 03 0c 01 61", "CN=#2c030c0161"),
            (CN, "80 02 61 62", "CN=#80026162"),
            // Latin-1.
            (CN, "13 02 61 e9", "CN=aé"),
            (CN, "14 02 61 e9", "CN=aé"),
            (CN, "16 02 61 e9", "CN=aé"),
            (CN, "1b 02 61 e9", "CN=aé"),
            // UTF-16: half a character, and surrogates.
            (CN, "1e 04 00 61 00 e9", "CN=aé"),
            (CN, "1e 03 00 61 00", "CN=a\u{FFFD}"),
            (CN, "1e 04 d8 3d 00 61", "CN=\u{FFFD}"),
            (CN, "1e 04 de 00 00 61", "CN=\u{FFFD}a"),
            // Bytes that are not UTF-8: Latin-1, surrogates, truncated and overlong sequences.
            (CN, "0c 02 e4 62", "CN=\u{FFFD}b"),
            (CN, "0c 05 61 ed a0 80 62", "CN=a\u{FFFD}b"),
            (CN, "0c 03 ed a0 41", "CN=\u{FFFD}A"),
            (CN, "0c 02 ed a0", "CN=\u{FFFD}"),
            (CN, "0c 03 f0 9f 98", "CN=\u{FFFD}"),
            (CN, "0c 02 c0 af", "CN=\u{FFFD}\u{FFFD}"),
            // White space at both ends.
            (CN, "0c 04 20 0d 61 20", "CN=\\ \\\ra\\ "),
            (CN, "0c 02 20 20", "CN=\\ \\ "),
            (CN, "0c 02 09 0a", "CN=\t\n"),
            (CN, "0c 03 61 3d 23", "CN=a\\=\\#"),
        ] {
            let shown = name(&single(oid, &bytes(value)));
            assert_eq!(shown.as_deref(), Some(expected), "{oid}: {value}");
        }
    }

    #[test]
    fn a_pair_of_surrogates_in_a_bmp_string_is_refused() {
        assert_eq!(name(&single(CN, &bytes("1e 06 00 61 d8 3d de 00"))), None);
    }

    /// Attributes of one relative name keep their order; the relative names are reversed.
    #[test]
    fn the_last_relative_name_comes_first() {
        let attribute = |oid: &str, value: &str| {
            let content = [element(OBJECT_IDENTIFIER, &bytes(oid)), bytes(value)].concat();
            element(SEQUENCE, &content)
        };
        let (o, cn) = (attribute("55 04 0a", "0c 01 61"), attribute(CN, "0c 01 62"));
        let both = element(SET, &[o.clone(), cn.clone()].concat());
        let der = [both, element(SET, &attribute("55 04 06", "13 02 44 45"))].concat();
        assert_eq!(name(&der).unwrap(), "C=DE,O=a+CN=b");
        assert_eq!(name(&[element(SET, &[]), element(SET, &cn)].concat()).unwrap(), "CN=b,");
        assert_eq!(name(&[]).unwrap(), "");
    }

    #[test]
    fn other_bytes_are_no_name() {
        let long = [0x55].iter().chain(&[1; MAX_OBJECT_IDENTIFIER]).copied().collect::<Vec<_>>();
        assert_eq!(object_identifier(&long), None);
        assert!(object_identifier(&long[1..]).is_some());
        for oid in ["", "80", "80 01", "55 80", "ff", &format!("55 {}01", "ff ".repeat(19))] {
            assert_eq!(name(&single(oid, &bytes("0c 01 61"))), None, "{oid}");
        }
        // No value, another element behind it, a tag of two bytes, and lengths that are not DER.
        for value in
            ["", "0c 01 61 05 00", "1f 01 61", "9f 01 61", "0c 81 01 61", "0c 80 00 00", "0c 02 61"]
        {
            assert_eq!(name(&single(CN, &bytes(value))), None, "{value}");
        }
        for der in
            ["31", "30 00", "31 02 31 00", "31 04 30 02 0c 00", "31 82 00 80", "31 83 00 00 00"]
        {
            assert_eq!(name(&bytes(der)), None, "{der}");
        }
    }

    #[test]
    fn a_certificate_of_any_bytes_is_refused() {
        for der in [&b""[..], &[0x30, 0x00], &[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF], &[0xFF; 64]] {
            let refused = subject(&CertificateDer::from(der)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(der in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = name(&der);
            let _ = subject(&CertificateDer::from(der));
        }

        /// Random bytes are rarely a name, so this changes one byte of a valid name.
        #[test]
        fn no_changed_name_panics(
            value in proptest::collection::vec(any::<u8>(), 0..100),
            tag in proptest::sample::select(vec![UTF8_STRING, 0x13, 0x1B, BMP_STRING]),
            at in any::<proptest::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut der = single(CN, &element(tag, &value));
            let shown = name(&der);
            prop_assert!(shown.is_some() || tag == BMP_STRING);
            if let Some(shown) = shown {
                prop_assert!(shown.starts_with("CN="));
                prop_assert!(shown.len() <= 3 + 3 * value.len());
            }
            *at.get_mut(&mut der) = byte;
            let _ = name(&der);
        }

        /// An identity can be named in an ACL, unless it begins or ends with a carriage return: Java does not read its
        /// escape.
        #[test]
        fn names_are_valid_ids(value in "[^\r]{0,20}", oid in "55 04 (03|04|05|06|0a)") {
            let shown = name(&single(&oid, &element(0x0C, value.as_bytes()))).unwrap();
            prop_assert!(is_name(&shown), "{shown:?}");
        }

        #[test]
        fn no_id_panics(id in "(CN|2.5)?=?[ -~\\\\\"#é]{0,20}") {
            let _ = is_name(&id);
        }
    }
}
