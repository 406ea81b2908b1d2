//! Cuts a stream of bytes into lines. Tests: `watch/tests.rs`.

/// Lines of a stream, as they become complete.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Where the first line not yet given begins.
    start: usize,
    /// Up to where no line end was found.
    seen: usize,
}

impl Lines {
    /// Above this an empty buffer is given back.
    const KEPT: usize = 1 << 16;

    /// Takes in what came.
    pub fn add(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
    }

    /// The next complete line, without its end.
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

    /// Forgets the lines that were given.
    pub fn forget(&mut self) {
        self.bytes.drain(..self.start);
        self.seen -= self.start;
        self.start = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > Self::KEPT {
            self.bytes = Vec::new();
        }
    }
}
