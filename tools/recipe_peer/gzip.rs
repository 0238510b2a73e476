//! The format of compressed data in Curator: gzip (RFC 1952), one member.

/// Compresses nothing: the data are stored blocks (RFC 1951, 3.2.4), which every reader accepts.
pub(crate) fn compress(data: &[u8]) -> Vec<u8> {
    // Deflate, no flags, no time, unknown system: the header that Curator writes.
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut blocks = data.chunks(usize::from(u16::MAX)).peekable();
    if blocks.peek().is_none() {
        // One empty block.
        out.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(blocks.peek().is_none()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    out.extend(crc32(data).to_le_bytes());
    out.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    out
}

/// The data of one member without optional header fields; `None` if the bytes are anything else.
pub(crate) fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let body = bytes.strip_prefix(&[0x1f, 0x8b, 8, 0])?.get(6..)?;
    let mut bits = Bits { bytes: body, at: 0 };
    let mut out = Vec::new();
    loop {
        let is_last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => stored(&mut bits, &mut out)?,
            1 => {
                let lengths = |code: usize| match code {
                    0..=143 => 8,
                    144..=255 => 9,
                    256..=279 => 7,
                    _ => 8,
                };
                let literals = Huffman::new(&(0..288).map(lengths).collect::<Vec<_>>());
                block(&mut bits, &mut out, &literals, &Huffman::new(&[5; 30]))?;
            }
            2 => {
                let (literals, distances) = tables(&mut bits)?;
                block(&mut bits, &mut out, &literals, &distances)?;
            }
            _ => return None,
        }
        if is_last {
            break;
        }
    }
    let trailer = body.get(bits.at.div_ceil(8)..)?;
    let (crc, length) = (crc32(&out), u32::try_from(out.len()).ok()?);
    (trailer == [crc.to_le_bytes(), length.to_le_bytes()].concat()).then_some(out)
}

struct Bits<'a> {
    bytes: &'a [u8],
    /// The number of bits that were read.
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> Option<usize> {
        let mut value = 0;
        for shift in 0..count {
            let byte = self.bytes.get(self.at / 8)?;
            value |= usize::from(byte >> (self.at % 8) & 1) << shift;
            self.at += 1;
        }
        Some(value)
    }
}

/// A canonical Huffman code: the number of codes of each length, and the symbols in the order of their codes.
struct Huffman {
    counts: [usize; 16],
    symbols: Vec<usize>,
}

impl Huffman {
    fn new(lengths: &[usize]) -> Self {
        let mut counts = [0; 16];
        let mut symbols: Vec<usize> = (0..lengths.len()).collect();
        let length_of = |symbol: usize| lengths.get(symbol).copied().unwrap_or_default();
        symbols.retain(|symbol| length_of(*symbol) > 0);
        symbols.sort_by_key(|symbol| length_of(*symbol));
        for symbol in &symbols {
            if let Some(count) = counts.get_mut(length_of(*symbol)) {
                *count += 1;
            }
        }
        Self { counts, symbols }
    }

    fn take(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for count in self.counts.iter().skip(1) {
            code |= bits.take(1)?;
            if code < first + count {
                return self.symbols.get(index + (code - first)).copied();
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

fn stored(bits: &mut Bits<'_>, out: &mut Vec<u8>) -> Option<()> {
    bits.at = bits.at.next_multiple_of(8);
    let length = bits.take(16)?;
    if length ^ 0xffff != bits.take(16)? {
        return None;
    }
    let start = bits.at / 8;
    out.extend(bits.bytes.get(start..start + length)?);
    bits.at += 8 * length;
    Some(())
}

/// The codes of a block with codes of its own.
fn tables(bits: &mut Bits<'_>) -> Option<(Huffman, Huffman)> {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let (literals, distances) = (bits.take(5)? + 257, bits.take(5)? + 1);
    let codes = bits.take(4)? + 4;
    let mut lengths = [0; 19];
    for position in ORDER.iter().take(codes) {
        *lengths.get_mut(*position)? = bits.take(3)?;
    }
    let code = Huffman::new(&lengths);
    let mut lengths = Vec::new();
    while lengths.len() < literals + distances {
        let (value, times) = match code.take(bits)? {
            16 => (*lengths.last()?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length, 1),
        };
        lengths.extend(std::iter::repeat_n(value, times));
    }
    let end = literals + distances;
    Some((Huffman::new(lengths.get(..literals)?), Huffman::new(lengths.get(literals..end)?)))
}

fn block(
    bits: &mut Bits<'_>,
    out: &mut Vec<u8>,
    literals: &Huffman,
    distances: &Huffman,
) -> Option<()> {
    loop {
        match literals.take(bits)? {
            256 => return Some(()),
            literal @ 0..=255 => out.push(u8::try_from(literal).ok()?),
            symbol => {
                let length = match symbol - 257 {
                    28 => 258,
                    index @ 0..28 => ranged(bits, index, 4, 3)?,
                    _ => return None,
                };
                let distance = match distances.take(bits)? {
                    index @ 0..30 => ranged(bits, index, 2, 1)?,
                    _ => return None,
                };
                for _ in 0..length {
                    out.push(*out.get(out.len().checked_sub(distance)?)?);
                }
            }
        }
    }
}

/// A length or a distance: `step` symbols for each number of extra bits, the first of which has none twice.
fn ranged(bits: &mut Bits<'_>, index: usize, step: usize, first: usize) -> Option<usize> {
    let Some(extra) = (index / step).checked_sub(1) else { return Some(first + index) };
    let base = (step + index % step) << extra;
    Some(first + base + bits.take(extra)?)
}

fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}
