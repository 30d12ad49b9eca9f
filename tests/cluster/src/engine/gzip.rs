//! A gzip stream without compression (RFC 1952 around stored blocks of RFC 1951): all that a test of unwanted gzip needs.

/// `data` as a gzip stream.
pub(super) fn store(data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = data.chunks(usize::from(u16::MAX)).peekable();
    if blocks.peek().is_none() {
        stream.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        stream.push(u8::from(blocks.peek().is_none()));
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(checksum(data).to_le_bytes());
    let length = u32::try_from(data.len() % (1 << 32)).unwrap_or_default();
    stream.extend(length.to_le_bytes());
    stream
}

fn checksum(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_the_standard_check_string() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_short_stream_by_hand() {
        let stream = store(b"123456789");
        assert_eq!(&stream[10..15], [1, 9, 0, 0xf6, 0xff]);
        assert_eq!(&stream[15..24], b"123456789");
        assert_eq!(&stream[24..], [0x26, 0x39, 0xf4, 0xcb, 9, 0, 0, 0]);
    }
}
