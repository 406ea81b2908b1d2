//! Compressed exports, expanded no further than an export can expand. Tests: `tests/jsonl.rs`.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;

/// Maximum ratio of expanded to compressed bytes. Exports have about 15; a file made to fill memory or disk has up to 1032.
const MAX_RATIO: u64 = 200;
/// Expanded bytes that are allowed at any ratio: short files may begin with much repetition.
const ALWAYS_ALLOWED_BYTES: u64 = 64 << 20;

/// Reads a compressed file.
#[derive(Debug)]
pub(super) struct Packed<R> {
    decoder: MultiGzDecoder<Counted<R>>,
    expanded: u64,
}

impl<R: BufRead> Packed<R> {
    pub(super) fn new(input: R) -> Self {
        Self { decoder: MultiGzDecoder::new(Counted { input, bytes: 0 }), expanded: 0 }
    }
}

impl<R: BufRead> Read for Packed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.expanded = self.expanded.saturating_add(count as u64);
        let allowed = self.decoder.get_ref().bytes.saturating_mul(MAX_RATIO).saturating_add(ALWAYS_ALLOWED_BYTES);
        if self.expanded > allowed {
            let message = format!("it expands to more than {MAX_RATIO} times its compressed size, as no export does");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        Ok(count)
    }
}

/// Counts what is read.
#[derive(Debug)]
struct Counted<R> {
    input: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.bytes += count as u64;
        self.input.consume(count);
    }
}
