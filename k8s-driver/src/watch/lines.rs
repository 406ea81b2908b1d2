//! Splits a stream of bytes into lines. Tests: `watch/tests.rs`.

/// Buffers a stream and returns its complete lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Start of the first line that was not returned yet.
    start: usize,
    /// End of the bytes that were searched for a line end.
    seen: usize,
}

impl Lines {
    /// Capacity in bytes above which an empty buffer is freed.
    const KEPT: usize = 1 << 16;

    /// Appends received bytes.
    pub fn add(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
    }

    /// Returns the next complete line without its line end.
    pub fn line(&mut self) -> Option<&[u8]> {
        let rest = self.bytes.get(self.seen..)?;
        let Some(length) = memchr::memchr(b'\n', rest) else {
            self.seen = self.bytes.len();
            return None;
        };
        let (start, end) = (self.start, self.seen + length);
        (self.start, self.seen) = (end + 1, end + 1);
        self.bytes.get(start..end)
    }

    /// Drops the lines that were returned.
    pub fn forget(&mut self) {
        self.bytes.drain(..self.start);
        self.seen -= self.start;
        self.start = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > Self::KEPT {
            self.bytes = Vec::new();
        }
    }
}
