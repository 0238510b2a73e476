//! Validation of paths, and the numbers of sequential nodes.

use core::fmt;

/// Why a path is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The path is empty.
    Empty,
    /// The path does not begin with a slash.
    NotAbsolute,
    /// The path ends with a slash.
    TrailingSlash,
    /// Two slashes in a row; the offset of the second, in bytes.
    EmptyComponent(usize),
    /// A component is `.` or `..`; its offset, in bytes.
    RelativeComponent(usize),
    /// A character that is not allowed in a node's name, and its offset, in bytes.
    InvalidCharacter(char, usize),
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a path must not be empty"),
            Self::NotAbsolute => f.write_str("a path must begin with a slash"),
            Self::TrailingSlash => f.write_str("a path must not end with a slash"),
            Self::EmptyComponent(at) => write!(f, "empty node name at byte {at}"),
            Self::RelativeComponent(at) => {
                write!(f, "relative node name (\".\" or \"..\") at byte {at}")
            }
            Self::InvalidCharacter(character, at) => {
                write!(
                    f,
                    "the character U+{:04X} at byte {at} is not allowed",
                    u32::from(*character)
                )
            }
        }
    }
}

impl core::error::Error for PathError {}

/// Validates a path by the rules that a server applies before it creates the node.
///
/// # Errors
///
/// The first rule violated. No rule limits the length of a path; only the frame does.
///
/// Source: `PathUtils.validatePath`. It checks UTF-16 code units and rejects characters above U+FFFF through
/// their surrogates, which are in its forbidden range U+D800 to U+F8FF. This function rejects these characters
/// directly.
#[inline]
pub fn validate(path: &str) -> Result<(), PathError> {
    if is_plain(path.as_bytes()) { Ok(()) } else { validate_components(path) }
}

/// Validates the requested path of a sequential node, whose name does not end there: the server appends digits. So the
/// last name may be empty, or consist of dots.
///
/// # Errors
///
/// As [`validate`], for the path with a digit behind it. The offsets hold for the path itself.
///
/// Source: `PathUtils.validatePath` with the flag `isSequential`.
#[inline]
pub fn validate_sequential(path: &str) -> Result<(), PathError> {
    match validate(path) {
        // Digits behind a valid path leave it valid.
        valid @ (Ok(()) | Err(PathError::Empty)) => valid,
        Err(_) => validate_components(&alloc::format!("{path}1")),
    }
}

/// Validates a path component by component, to find the rule it violates.
#[cold]
fn validate_components(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    let Some(names) = path.strip_prefix('/') else { return Err(PathError::NotAbsolute) };
    if names.is_empty() {
        return Ok(());
    }
    if names.ends_with('/') {
        return Err(PathError::TrailingSlash);
    }
    let mut at = 1;
    for name in names.split('/') {
        match name {
            "" => return Err(PathError::EmptyComponent(at)),
            "." | ".." => return Err(PathError::RelativeComponent(at)),
            _ => {}
        }
        // Checks bytes first, because nearly every name is plain ASCII.
        if !name.bytes().all(|byte| matches!(byte, b' '..=b'~'))
            && let Some((offset, bad)) = name.char_indices().find(|&(_, c)| !is_allowed(c))
        {
            return Err(PathError::InvalidCharacter(bad, at + offset));
        }
        at += name.len() + 1;
    }
    Ok(())
}

/// Whether all names of a path are printable ASCII, not empty and without a leading dot. Nearly every path
/// except `/` is.
///
/// Every operation validates a path, so this checks sixteen bytes at a time, each together with its successor.
fn is_plain(path: &[u8]) -> bool {
    const SIZE: usize = 17;
    let Some(last) = path.last_chunk::<SIZE>() else { return is_plain_and_short(path) };
    let mut flaws = flaws(last);
    let mut rest = path;
    while let Some(chunk) = rest.first_chunk::<SIZE>() {
        flaws |= self::flaws(chunk);
        rest = rest.get(SIZE - 1..).unwrap_or_default();
    }
    flaws == 0 && path.starts_with(b"/") && !path.ends_with(b"/")
}

fn is_plain_and_short(path: &[u8]) -> bool {
    let mut padded = [b'x'; 17];
    match (path.first_chunk::<8>(), path.last_chunk::<8>()) {
        // The two overlap, so each byte is in one of them together with its successor. Copies of a fixed size need no
        // call of `memcpy`: 9 instructions a getData.
        (Some(first), Some(last)) if path.len() < 16 => {
            if let Some(front) = padded.first_chunk_mut() {
                *front = *first;
            }
            if let Some(back) = padded.last_chunk_mut() {
                *back = *last;
            }
        }
        _ => {
            if let Some(place) = padded.get_mut(..path.len()) {
                place.copy_from_slice(path);
            }
        }
    }
    flaws(&padded) == 0 && path.starts_with(b"/") && !path.ends_with(b"/")
}

/// Not 0 if a byte is not printable ASCII, or a slash or a dot follows a slash.
#[inline]
fn flaws(bytes: &[u8; 17]) -> u8 {
    let (Some(each), Some(next)) = (bytes.first_chunk::<16>(), bytes.last_chunk::<16>()) else {
        return 1;
    };
    // Free of branches, so that the compiler can vectorize it.
    let last = u8::from(!matches!(next.last(), Some(b' '..=b'~')));
    each.iter().zip(next).fold(last, |flaws, (byte, next)| {
        let unprintable = !matches!(byte, b' '..=b'~');
        let bad_name = (*byte == b'/') & matches!(next, b'/' | b'.');
        flaws | u8::from(unprintable) | u8::from(bad_name)
    })
}

/// Whether a character is allowed in a node's name. Surrogates are not, so neither is a character above U+FFFF.
const fn is_allowed(character: char) -> bool {
    !matches!(character,
        '\0'..='\u{1F}' | '\u{7F}'..='\u{9F}' | '\u{E000}'..='\u{F8FF}' | '\u{FFF0}'..='\u{10FFFF}')
}

/// The parent of a path; `None` for `/` and for a text without a slash.
#[must_use]
#[inline]
pub fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some(("", "")) | None => None,
        Some(("", _)) => Some("/"),
        Some((parent, _)) => Some(parent),
    }
}

/// Parses the number that the server appends to a sequential node's name.
///
/// `suffix` is the part of the name after the requested name: ten digits with leading zeros, or a minus sign
/// and nine or ten digits for the negative numbers that follow 2147483647 on some servers. `None` for any other
/// text. The full name would be ambiguous: `x-2147483646` is `x-` with a positive number or `x` with a negative
/// one.
///
/// Source: `PrepRequestProcessor`, `String.format("%010d", parentCVersion)`.
#[must_use]
pub fn sequence_number(suffix: &str) -> Option<i32> {
    let digits = suffix.strip_prefix('-').unwrap_or(suffix);
    let well_formed = suffix.len() == 10 || (suffix.len() == 11 && digits.len() == 10);
    if !well_formed || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    suffix.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_paths() {
        for path in ["/", "/a", "/a/b.c/..d", "/straße/日本", "/a b"] {
            assert_eq!(validate(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn the_error_of_an_invalid_path_names_rule_and_offset() {
        for (path, error) in [
            ("", PathError::Empty),
            ("a", PathError::NotAbsolute),
            ("/a/", PathError::TrailingSlash),
            ("//", PathError::TrailingSlash),
            ("/a//b", PathError::EmptyComponent(3)),
            ("/a/../b", PathError::RelativeComponent(3)),
            ("/.", PathError::RelativeComponent(1)),
            ("/a\0b", PathError::InvalidCharacter('\0', 2)),
            ("/a/\u{7F}", PathError::InvalidCharacter('\u{7F}', 3)),
            ("/ü\u{85}", PathError::InvalidCharacter('\u{85}', 3)),
            ("/\u{F8FF}", PathError::InvalidCharacter('\u{F8FF}', 1)),
            ("/\u{FFFE}", PathError::InvalidCharacter('\u{FFFE}', 1)),
            ("/\u{1F600}", PathError::InvalidCharacter('\u{1F600}', 1)),
        ] {
            assert_eq!(validate(path), Err(error), "{path:?}");
        }
    }

    #[test]
    fn the_name_of_a_sequential_node_goes_on() {
        for path in ["/", "/a", "/a/", "/.", "/a/..", "/a/b-"] {
            assert_eq!(validate_sequential(path), Ok(()), "{path}");
        }
        for (path, error) in [
            ("", PathError::Empty),
            ("a", PathError::NotAbsolute),
            ("//", PathError::EmptyComponent(1)),
            ("/a//", PathError::EmptyComponent(3)),
            ("/./", PathError::RelativeComponent(1)),
            ("/a/../b", PathError::RelativeComponent(3)),
            ("/a\0", PathError::InvalidCharacter('\0', 2)),
        ] {
            assert_eq!(validate_sequential(path), Err(error), "{path:?}");
        }
    }

    #[test]
    fn parents() {
        for (path, expected) in
            [("/", None), ("/a", Some("/")), ("/a/b", Some("/a")), ("", None), ("a", None)]
        {
            assert_eq!(parent(path), expected, "{path}");
        }
    }

    /// Every pair of bytes at every offset of short and long paths.
    #[test]
    fn plain_paths_have_only_printable_names_without_leading_dots() {
        for len in 2..40 {
            for at in 1..len {
                for first in 0..=255 {
                    for second in [b'a', b'.', b'/', 0x1F, 0x7F, 0x80] {
                        let mut path = alloc::vec![b'n'; len];
                        path[0] = b'/';
                        path[at] = first;
                        if let Some(next) = path.get_mut(at + 1) {
                            *next = second;
                        }
                        let pairs = path.windows(2);
                        let expected = path.iter().all(|byte| matches!(byte, b' '..=b'~'))
                            && pairs.into_iter().all(|pair| !matches!(pair, b"//" | b"/."))
                            && path.last() != Some(&b'/');
                        assert_eq!(is_plain(&path), expected, "{}", path.escape_ascii());
                    }
                }
            }
        }
    }

    #[test]
    fn sequence_numbers() {
        for (suffix, expected) in [
            ("0000000000", Some(0)),
            ("0000000042", Some(42)),
            ("2147483647", Some(i32::MAX)),
            ("2147483648", None),
            ("-2147483648", Some(i32::MIN)),
            ("-000000005", Some(-5)),
            ("-0000000005", Some(-5)),
            ("000000042", None),
            ("00000000042", None),
            ("+000000042", None),
            ("00000000a2", None),
            ("", None),
            ("日本日本日本", None),
        ] {
            assert_eq!(sequence_number(suffix), expected, "{suffix}");
        }
    }

    #[test]
    fn errors_display_rule_and_offset() {
        for (error, text) in [
            (PathError::Empty, "a path must not be empty"),
            (PathError::NotAbsolute, "a path must begin with a slash"),
            (PathError::TrailingSlash, "a path must not end with a slash"),
            (PathError::EmptyComponent(3), "empty node name at byte 3"),
            (PathError::RelativeComponent(3), "relative node name (\".\" or \"..\") at byte 3"),
            (
                PathError::InvalidCharacter('\u{85}', 3),
                "the character U+0085 at byte 3 is not allowed",
            ),
        ] {
            assert_eq!(alloc::format!("{error}"), text);
        }
    }
}
