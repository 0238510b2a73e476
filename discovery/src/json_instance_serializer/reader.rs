//! Reads JSON as Jackson does: what it refuses is refused, and unknown members may have any valid value.
//!
//! Strings are those of Java: sequences of UTF-16 units, of which half a surrogate pair becomes U+FFFD. Numbers keep their
//! text.
//!
//! Source: Jackson's `UTF8StreamJsonParser`, `StreamReadConstraints`.

use serde_json::{Map, Number, Value};

use crate::SerializerError;

/// The containers around a value that Jackson accepts.
const MAX_DEPTH: usize = 1_000;

/// The same for a value of a payload, which is read with recursion: that of serde_json, and the outermost object.
const MAX_PAYLOAD_DEPTH: usize = 128;

/// The digits that Jackson accepts in a number, before and behind the point and in the exponent.
const MAX_DIGITS: usize = 1_000;

/// A scalar, or the begin of a container.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    Null,
    Bool(bool),
    /// The text of a number.
    Number(&'a str),
    Text(String),
    Array,
    Object,
}

#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The containers whose begin was read, and not their end.
    depth: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        byte
    }

    /// The next byte that is no white space, which stays.
    pub(super) fn peek_token(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.peek()
    }

    fn error(&self, expected: &str) -> SerializerError {
        format!("expected {expected} at byte {} of the JSON", self.at).into()
    }

    pub(super) fn token(&mut self) -> Result<Token<'a>, SerializerError> {
        match self.peek_token() {
            Some(b'"') => {
                self.at += 1;
                self.text().map(Token::Text)
            }
            Some(b'[') => self.container(Token::Array),
            Some(b'{') => self.container(Token::Object),
            Some(b'-' | b'0'..=b'9') => self.number().map(Token::Number),
            Some(b't') => self.word("true", Token::Bool(true)),
            Some(b'f') => self.word("false", Token::Bool(false)),
            Some(b'n') => self.word("null", Token::Null),
            _ => Err(self.error("a value")),
        }
    }

    fn container(&mut self, token: Token<'a>) -> Result<Token<'a>, SerializerError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.error("less nesting")) } else { Ok(token) }
    }

    fn word(&mut self, word: &str, token: Token<'a>) -> Result<Token<'a>, SerializerError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            return Err(self.error(word));
        }
        self.at += word.len();
        Ok(token)
    }

    /// A number, with a digit before and behind each point, and no leading zero.
    fn number(&mut self) -> Result<&'a str, SerializerError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let mut count = self.digits()?;
        if count > 1 && self.bytes.get(self.at - count) == Some(&b'0') {
            return Err(self.error("no leading zero"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            count += self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            count += self.digits()?;
        }
        if count > MAX_DIGITS {
            return Err(self.error("a number of fewer digits"));
        }
        let text = self.bytes.get(start..self.at).unwrap_or_default();
        Ok(std::str::from_utf8(text)?)
    }

    /// Skips digits, at least one; returns their number.
    fn digits(&mut self) -> Result<usize, SerializerError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.error("a digit")) } else { Ok(self.at - start) }
    }

    /// The rest of a string whose quote was read.
    fn text(&mut self) -> Result<String, SerializerError> {
        let mut units = Vec::new();
        loop {
            match self.next() {
                Some(b'"') => return Ok(String::from_utf16_lossy(&units)),
                Some(b'\\') => units.push(self.escape()?),
                Some(byte @ 0x20..=0x7f) => units.push(byte.into()),
                Some(byte @ 0xc0..=0xdf) => {
                    units.push(u16::from(byte & 0x1f) << 6 | self.continuation()?);
                }
                Some(byte @ 0xe0..=0xef) => {
                    let front = u16::from(byte) << 12 | self.continuation()? << 6;
                    units.push(front | self.continuation()?);
                }
                Some(byte @ 0xf0..=0xf7) => {
                    let front = u32::from(byte & 7) << 18 | u32::from(self.continuation()?) << 12;
                    let middle = u32::from(self.continuation()?) << 6;
                    let all = front | middle | u32::from(self.continuation()?);
                    match char::from_u32(all).filter(|c| *c > '\u{ffff}') {
                        Some(c) => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
                        None => units.push(0xfffd),
                    }
                }
                _ => return Err(self.error("a character of a string")),
            }
        }
    }

    /// The six bits of a byte that continues a character. As Jackson, this accepts surrogates and longer forms than needed.
    fn continuation(&mut self) -> Result<u16, SerializerError> {
        match self.next() {
            Some(byte @ 0x80..=0xbf) => Ok((byte & 0x3f).into()),
            _ => Err(self.error("the next byte of a character")),
        }
    }

    fn escape(&mut self) -> Result<u16, SerializerError> {
        Ok(match self.next() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte.into(),
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => 10,
            Some(b'r') => 13,
            Some(b't') => 9,
            Some(b'u') => {
                let mut unit = 0;
                for _ in 0..4 {
                    let digit = self.next().and_then(|byte| char::from(byte).to_digit(16));
                    let digit = digit.and_then(|digit| u16::try_from(digit).ok());
                    unit =
                        unit << 4 | digit.ok_or_else(|| self.error("four hexadecimal digits"))?;
                }
                unit
            }
            _ => return Err(self.error("an escape")),
        })
    }

    /// Whether another element or member follows; if not, its end was read. `is_first` behind the begin of the container.
    fn has_next(&mut self, end: u8, is_first: bool) -> Result<bool, SerializerError> {
        match self.peek_token() {
            Some(byte) if byte == end => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(_) if is_first => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.error("a comma or the end of an array or object")),
        }
    }

    /// The name of a member and the colon.
    fn name(&mut self) -> Result<String, SerializerError> {
        if self.peek_token() != Some(b'"') {
            return Err(self.error("the name of a member"));
        }
        self.at += 1;
        let name = self.text()?;
        if self.peek_token() != Some(b':') {
            return Err(self.error("a colon"));
        }
        self.at += 1;
        Ok(name)
    }

    /// Reads the members of an object whose begin was read, each by `member`.
    pub(super) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, String) -> Result<(), SerializerError>,
    ) -> Result<(), SerializerError> {
        let mut is_first = true;
        while self.has_next(b'}', std::mem::take(&mut is_first))? {
            let name = self.name()?;
            member(self, name)?;
        }
        Ok(())
    }

    /// Reads the elements of an array whose begin was read, each by `element`.
    pub(super) fn elements(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), SerializerError>,
    ) -> Result<(), SerializerError> {
        let mut is_first = true;
        while self.has_next(b']', std::mem::take(&mut is_first))? {
            element(self)?;
        }
        Ok(())
    }

    /// Skips a value. Without recursion: the depth is chosen by the node's writer.
    pub(super) fn skip(&mut self) -> Result<(), SerializerError> {
        let mut ends = Vec::new();
        let mut is_first = true;
        loop {
            match self.token()? {
                Token::Array => ends.push(b']'),
                Token::Object => ends.push(b'}'),
                _ => is_first = false,
            }
            loop {
                let Some(end) = ends.last().copied() else { return Ok(()) };
                if self.has_next(end, is_first)? {
                    if end == b'}' {
                        self.name()?;
                    }
                    break;
                }
                ends.pop();
                is_first = false;
            }
            is_first = true;
        }
    }

    /// A payload, or a value in one.
    pub(super) fn value(&mut self) -> Result<Value, SerializerError> {
        if self.depth > MAX_PAYLOAD_DEPTH {
            return Err(self.error("less nesting"));
        }
        Ok(match self.token()? {
            Token::Null => Value::Null,
            Token::Bool(value) => Value::Bool(value),
            Token::Text(text) => Value::String(text),
            Token::Number(text) => Value::Number(number(text)?),
            Token::Array => {
                let mut values = Vec::new();
                self.elements(|reader| {
                    values.push(reader.value()?);
                    Ok(())
                })?;
                Value::Array(values)
            }
            Token::Object => {
                let mut members = Map::new();
                self.members(|reader, name| {
                    members.insert(name, reader.value()?);
                    Ok(())
                })?;
                Value::Object(members)
            }
        })
    }
}

/// Integers beyond 64 bits and decimals become the nearest `f64`. Java has infinities beyond that, JSON has none.
fn number(text: &str) -> Result<Number, SerializerError> {
    let integer = text.parse().map(Number::from_i128).ok().flatten();
    let decimal = || text.parse().ok().and_then(Number::from_f64);
    integer.or_else(decimal).ok_or_else(|| format!("the number {text} is out of range").into())
}
