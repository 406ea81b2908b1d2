//! The digest of a record, and the head of a log.
//!
//! Owns how a record is hashed. Knows nothing of blocks, stores and files. Tests: at the end of this file.

use std::fmt;
use std::str::FromStr;

use model::{Position, Term};

/// Maximum length of inputs hashed in one piece, in bytes; BLAKE3 hashes one chunk faster than its parts.
const ONE_CHUNK_BYTES: usize = 1024;
const PREFIX_BYTES: usize = 48;

/// BLAKE3 hash of a record and all records before it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Digest of an empty log.
    pub const ZERO: Self = Self([0; 32]);
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Error of a text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: 64 hexadecimal digits expected")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(NotADigest);
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            let value = pair.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)?));
            *byte = value.and_then(|v| u8::try_from(v).ok()).ok_or(NotADigest)?;
        }
        Ok(Self(out))
    }
}

/// Last position of a log and the digest there. An empty log has position 0 and the zero digest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Head {
    /// Position of the last record.
    pub position: Position,
    /// Digest of the last record.
    pub digest: Digest,
}

/// Hashes records; keeps a buffer so that hashing allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct RecordHasher {
    scratch: Vec<u8>,
}

impl RecordHasher {
    /// Returns the digest of a record: BLAKE3 of the digest before it, its position, its term (little-endian) and its body.
    pub(crate) fn digest(&mut self, previous: &Digest, position: Position, term: Term, body: &[u8]) -> Digest {
        self.scratch.clear();
        self.scratch.extend_from_slice(&previous.0);
        self.scratch.extend_from_slice(&position.0.to_le_bytes());
        self.scratch.extend_from_slice(&term.0.to_le_bytes());
        if body.len() <= ONE_CHUNK_BYTES - PREFIX_BYTES {
            self.scratch.extend_from_slice(body);
            return Digest(*blake3::hash(&self.scratch).as_bytes());
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.scratch).update(body);
        Digest(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_round_trip_through_text() {
        let digest = Digest(std::array::from_fn(|n| u8::try_from(n * 8).unwrap_or(255)));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.to_string().to_uppercase().parse(), Ok(digest));
        for text in ["", "00", &"g".repeat(64), &"0".repeat(65), &"é".repeat(32)] {
            assert_eq!(text.parse::<Digest>(), Err(NotADigest), "{text}");
        }
    }
}
