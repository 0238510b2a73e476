//! What can be wrong with bytes.

use core::fmt;

/// Bytes that are not the message they should be.
///
/// Says what was wrong, in which field (jute's name) and at which offset of the payload. `Copy`, so
/// that one broken frame can be told to many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    kind: DecodeErrorKind,
    field: &'static str,
    offset: usize,
}

/// What was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes end inside the field, or a length points past the end.
    UnexpectedEnd,
    /// A length below -1 (-1 is null), or a frame length below 0.
    InvalidLength(i32),
    /// A frame longer than the limit, in bytes.
    FrameTooLarge {
        /// The length the frame says it has.
        len: usize,
        /// What was allowed.
        limit: usize,
    },
    /// A number that has no meaning in this place, where no value can carry it on.
    InvalidValue(i32),
}

impl DecodeError {
    /// `field` is jute's name for it, `offset` counts bytes from the start of the payload.
    #[must_use]
    pub const fn new(kind: DecodeErrorKind, field: &'static str, offset: usize) -> Self {
        Self { kind, field, offset }
    }

    /// What was wrong.
    #[must_use]
    pub const fn kind(&self) -> DecodeErrorKind {
        self.kind
    }

    /// The field it was wrong in, by jute's name.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }

    /// Where the field begins, in bytes from the start of the payload.
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

/// A frame that would be longer than the limit; nothing of it was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameTooLarge {
    /// The length the payload would have, in bytes.
    pub len: usize,
    /// What was allowed, in bytes.
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
    fn errors_say_what_and_where() {
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
