//! Errors of decoding and encoding.

use core::fmt;

/// Bytes that do not decode as the expected message.
///
/// Names the kind of error, the field (jute's name) and its offset in the payload. The type is `Copy`, so that
/// one malformed frame can be reported to several callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    kind: DecodeErrorKind,
    field: &'static str,
    offset: usize,
}

/// The kind of a [`DecodeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes end inside the field, or its length exceeds them.
    UnexpectedEnd,
    /// A length below -1 (-1 is null), or a frame length below 0.
    InvalidLength(i32),
    /// A frame's payload longer than the limit.
    FrameTooLarge {
        /// The frame's length field, in bytes.
        len: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A number without a meaning in this field, which no value can represent.
    InvalidValue(i32),
}

impl DecodeError {
    /// An error in `field` (jute's name), which begins `offset` bytes after the start of the payload.
    #[must_use]
    pub const fn new(kind: DecodeErrorKind, field: &'static str, offset: usize) -> Self {
        Self { kind, field, offset }
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> DecodeErrorKind {
        self.kind
    }

    /// The field that does not decode, by jute's name.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }

    /// The offset of the field, in bytes from the start of the payload.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, field, offset } = self;
        match kind {
            DecodeErrorKind::UnexpectedEnd => write!(f, "{field} at byte {offset} is cut off"),
            DecodeErrorKind::InvalidLength(len) => {
                write!(f, "{field} at byte {offset} has the length {len}")
            }
            DecodeErrorKind::FrameTooLarge { len, limit } => {
                write!(f, "{field} of {len} bytes is over the limit of {limit}")
            }
            DecodeErrorKind::InvalidValue(value) => {
                write!(f, "{field} at byte {offset} has the value {value}")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// A frame whose payload would exceed the limit. Nothing of it is left in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameTooLarge {
    /// The length of the payload, in bytes.
    pub len: usize,
    /// The limit, in bytes.
    pub limit: usize,
}

impl fmt::Display for FrameTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a frame of {} bytes is over the limit of {} (jute.maxbuffer)",
            self.len, self.limit
        )
    }
}

impl core::error::Error for FrameTooLarge {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn errors_name_the_field_and_its_offset() {
        for (kind, text) in [
            (DecodeErrorKind::UnexpectedEnd, "path at byte 8 is cut off"),
            (DecodeErrorKind::InvalidLength(-2), "path at byte 8 has the length -2"),
            (
                DecodeErrorKind::FrameTooLarge { len: 9, limit: 5 },
                "path of 9 bytes is over the limit of 5",
            ),
            (DecodeErrorKind::InvalidValue(7), "path at byte 8 has the value 7"),
        ] {
            let error = DecodeError::new(kind, "path", 8);
            assert_eq!(error.to_string(), text);
            assert_eq!((error.kind(), error.field(), error.offset()), (kind, "path", 8));
        }
        assert_eq!(
            FrameTooLarge { len: 9, limit: 5 }.to_string(),
            "a frame of 9 bytes is over the limit of 5 (jute.maxbuffer)"
        );
    }
}
