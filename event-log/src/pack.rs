//! Packing: a smaller form of a block's entries.
//!
//! Owns the packed form (a checksum, a length, LZ4) and the ratio from which it is used; knows nothing of headers or entries. Records are
//! JSON that repeats itself, so a full block shrinks to about a fifth, on the disk and in the storage engine's cache.
//! `docs/log-format.md` has the bytes. Tests: at the end of this file.

use lz4_flex::block::{compress_prepend_size, decompress, uncompressed_size};

use crate::error::Damage;

/// Fewer are stored as they are: one record alone hardly repeats itself.
const WORTH_BYTES: usize = 1024;

/// Packs bytes; `None` unless that makes them shorter by an eighth.
pub(crate) fn pack(plain: &[u8]) -> Option<Vec<u8>> {
    if plain.len() < WORTH_BYTES {
        return None;
    }
    let compressed = compress_prepend_size(plain);
    let packed = [&crc32c::crc32c(&compressed).to_le_bytes()[..], &compressed].concat();
    (packed.len() <= plain.len() - plain.len() / 8).then_some(packed)
}

/// Unpacks bytes, of which there are at most `most`.
pub(crate) fn unpack(packed: &[u8], most: usize) -> Result<Vec<u8>, Damage> {
    let (checksum, rest) = packed.split_first_chunk().ok_or(Damage::Checksum)?;
    if crc32c::crc32c(rest) != u32::from_le_bytes(*checksum) {
        return Err(Damage::Checksum);
    }
    let (length, compressed) = uncompressed_size(rest).map_err(|_| Damage::Checksum)?;
    if length > most {
        return Err(Damage::Checksum);
    }
    let plain = decompress(compressed, length).map_err(|_| Damage::Checksum)?;
    if plain.len() == length { Ok(plain) } else { Err(Damage::Checksum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(count: u32) -> Vec<u8> {
        let record = |n: u32| format!(r#"{{"at":{n},"event":{{"kind":"pod-phase","pod":"w-{n}","phase":"Running"}}}}"#);
        (0..count).map(record).collect::<String>().into_bytes()
    }

    /// Bytes that do not repeat themselves.
    fn noise(count: u32) -> Vec<u8> {
        (0..count).flat_map(|n| *blake3::hash(&n.to_le_bytes()).as_bytes()).collect()
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        for count in [16, 40, 100] {
            let plain = records(count);
            let packed = pack(&plain).unwrap();
            assert!(packed.len() * 2 < plain.len(), "{} of {}", packed.len(), plain.len());
            assert_eq!(unpack(&packed, plain.len()).unwrap(), plain);
            assert_eq!(unpack(&packed, plain.len() - 1), Err(Damage::Checksum), "more than a block holds");
        }
    }

    #[test]
    fn what_others_packed_is_unpacked() {
        // 32 times "ab", by hand: two literals, and a match of 62 bytes at distance 2 that ends the block with five literals.
        let compressed = [&[64, 0, 0, 0, 0x2f][..], b"ab", &[2, 0, 38, 0x50], b"babab"].concat();
        let packed = [&crc32c::crc32c(&compressed).to_le_bytes()[..], &compressed].concat();
        assert_eq!(unpack(&packed, 64).unwrap(), b"ab".repeat(32));
    }

    #[test]
    fn what_would_hardly_get_shorter_is_left_as_it_is() {
        assert_eq!(pack(&records(100)[..WORTH_BYTES - 1]), None);
        assert_eq!(pack(&noise(100)), None);
        assert_eq!(pack(&[]), None);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let packed = pack(&records(20)).unwrap();
        for bit in 0..packed.len() * 8 {
            let mut bad = packed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unpack(&bad, 1 << 20), Err(Damage::Checksum), "bit {bit}");
        }
        for length in 0..packed.len() {
            assert_eq!(unpack(&packed[..length], 1 << 20), Err(Damage::Checksum), "{length}");
        }
    }
}
