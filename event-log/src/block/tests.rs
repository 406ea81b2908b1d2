//! Tests of blocks: limits, damage, formats.

use super::*;
use crate::digest::RecordHasher;

fn group(sizes: &[usize]) -> (Vec<Vec<u8>>, Vec<Block>) {
    let bodies: Vec<Vec<u8>> = sizes.iter().map(|n| vec![b'x'; *n]).collect();
    let placed: Vec<Placed<'_>> =
        bodies.iter().map(|body| Placed { previous: Digest([7; 32]), term: Term(3), body }).collect();
    let end = Head { position: Position(10 + sizes.len() as u64 - 1), digest: Digest([9; 32]) };
    let blocks = encode_group(Position(10), end, 1000, &placed);
    (bodies, blocks)
}

#[test]
fn blocks_stay_within_the_limit_and_give_back_every_byte() {
    for sizes in [
        &[0][..],
        &[1, 2, 3],
        &[FRAGMENT_MAX],
        &[FRAGMENT_MAX + 1],
        &[300; 64],
        &[5, 40_000, 5, 5],
        &[FRAGMENT_MAX - 16, 0, 0],
        &[20_000, 20_000],
    ] {
        let (bodies, blocks) = group(sizes);
        let (mut got, mut partial) = (Vec::new(), Vec::new());
        for block in &blocks {
            assert!(block.bytes.len() <= MAX_BLOCK_BYTES, "{sizes:?}");
            let header = Header::read(&block.bytes).unwrap();
            assert_eq!(header.key(), block.key);
            assert_eq!(header.payload_bytes + HEADER_BYTES, block.bytes.len());
            assert_eq!((header.group_first, header.group_tag), (Position(10), tag(&Digest([9; 32]))));
            let entries = header.entries(&block.bytes).unwrap();
            let mut rest = &entries[..];
            while !rest.is_empty() {
                let (entry, used) = read_entry(rest).unwrap();
                assert_eq!(entry.term, Term(3));
                partial.extend_from_slice(entry.bytes);
                rest = &rest[used..];
                if header.fragment + 1 == header.fragments {
                    got.push(std::mem::take(&mut partial));
                }
            }
        }
        assert_eq!(got, bodies, "{sizes:?}");
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let read = |block: &[u8]| -> Result<(), Damage> {
        let header = Header::read(block).map_err(|_| Damage::Header("any"))?;
        let entries = header.entries(block)?;
        let (_, first) = read_entry(&entries)?;
        read_entry(&entries[first..]).map(|_| ())
    };
    for (sizes, packed) in [([40, 3], false), ([40, 3000], true)] {
        let (_, blocks) = group(&sizes);
        let block = &blocks[0].bytes;
        assert_eq!((Header::read(block).unwrap().packed, read(block)), (packed, Ok(())));
        for bit in 0..block.len() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad).is_err(), "bit {bit} of {sizes:?}");
        }
    }
}

#[test]
fn every_cut_is_noticed() {
    for sizes in [[40, 3], [40, 3000]] {
        let (_, blocks) = group(&sizes);
        for length in 0..blocks[0].bytes.len() {
            assert!(Header::read(&blocks[0].bytes[..length]).is_err(), "{length} of {sizes:?}");
        }
    }
}

#[test]
fn a_newer_format_is_named() {
    let (_, mut blocks) = group(&[4]);
    let bytes = &mut blocks[0].bytes;
    bytes[4] = 3;
    assert!(matches!(Header::read(bytes), Err(HeaderFault::Damage(_))), "a flipped bit is not a newer format");
    let crc = header_crc(bytes.first_chunk().unwrap());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Header::read(bytes), Err(HeaderFault::TooNew(3)));
}

#[test]
fn the_format_is_frozen() {
    // Logs of format 1 exist. If this fails, the format changed: raise FORMAT and keep reading the old one.
    let body = br#"{"a":1}"#;
    let digest = RecordHasher::default().digest(&Digest::ZERO, Position(1), Term(5), body);
    assert_eq!(digest.to_string(), "7ba0625adabc072511096b01a4e1632b9dc977d15aa289f866437b215085e8ee");
    let placed = [Placed { previous: Digest::ZERO, term: Term(5), body }];
    let blocks = encode_group(Position(1), Head { position: Position(1), digest }, 0, &placed);
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|d| char::from_digit(u32::from(d), 16).unwrap());
    let hex: String = blocks[0].bytes.iter().flat_map(digits).collect();
    let expected = concat!(
        "f554594201000100cbe9e8fa1700000001000000000000000100000000000000",
        "01000000000000007ba0625adabc072500000000010000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "08d2971c0700000005000000000000007b2261223a317d",
    );
    assert_eq!(hex, expected);
}

#[test]
fn keys_sort_as_their_bytes_do() {
    let keys = [(0, 0), (0, 9), (1, 0), (1, u32::MAX), (255, 1), (256, 0), (u64::MAX, u32::MAX)];
    let keys = keys.map(|(position, fragment)| BlockKey { position: Position(position), fragment });
    assert!(keys.windows(2).all(|w| w[0] < w[1] && w[0].to_bytes() < w[1].to_bytes()));
    assert!(keys.iter().all(|key| BlockKey::from_bytes(&key.to_bytes()) == Some(*key)));
    assert_eq!(BlockKey::from_bytes(&[0; 11]), None);
    assert_eq!(BlockKey::from_bytes(&[0; 13]), None);
}
