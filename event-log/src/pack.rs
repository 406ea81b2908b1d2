//! Packing: how the entries of a block are stored where that takes fewer bytes than the entries themselves.
//!
//! Owns the packed form (a checksum, a length, LZ4) and when it is worth it; knows nothing of headers or entries. Records are
//! JSON that repeats itself, so a full block shrinks to about a fifth, on the disk and in the storage engine's cache.
//! `docs/log-format.md` has the bytes. Tests: at the end of this file.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use crate::error::Damage;

/// Bytes before the compressed ones: their checksum, and how many they are when unpacked.
const PREFIX_BYTES: usize = 8;
/// Fewer are stored as they are: one record alone hardly repeats itself.
const WORTH_BYTES: usize = 1024;

/// The packed form of some bytes, if that is shorter by an eighth.
pub(crate) fn pack(plain: &[u8]) -> Option<Vec<u8>> {
    if plain.len() < WORTH_BYTES {
        return None;
    }
    let mut packed = vec![0; PREFIX_BYTES + get_maximum_output_size(plain.len())];
    let length = compress_into(plain, packed.get_mut(PREFIX_BYTES..)?).ok()?;
    packed.truncate(PREFIX_BYTES + length);
    if packed.len() > plain.len() - plain.len() / 8 {
        return None;
    }
    packed.get_mut(4..PREFIX_BYTES)?.copy_from_slice(&u32::try_from(plain.len()).ok()?.to_le_bytes());
    let checksum = crc32c::crc32c(packed.get(4..)?);
    packed.get_mut(..4)?.copy_from_slice(&checksum.to_le_bytes());
    packed.shrink_to_fit();
    Some(packed)
}

/// The bytes that were packed, of which there are at most `most`.
pub(crate) fn unpack(packed: &[u8], most: usize) -> Result<Vec<u8>, Damage> {
    let (checksum, rest) = packed.split_first_chunk::<4>().ok_or(Damage::Checksum)?;
    let (length, compressed) = rest.split_first_chunk::<4>().ok_or(Damage::Checksum)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if crc32c::crc32c(rest) != u32::from_le_bytes(*checksum) || length > most {
        return Err(Damage::Checksum);
    }
    let mut plain = vec![0; length];
    match decompress_into(compressed, &mut plain) {
        Ok(got) if got == length => Ok(plain),
        _ => Err(Damage::Checksum),
    }
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
