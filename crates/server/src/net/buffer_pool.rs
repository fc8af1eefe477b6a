//! Empty output buffers of a worker, for the next connections that have something to say.
//!
//! A connection holds one only while it has replies to send. After a burst of connections, each tick frees the buffers
//! that were not needed since the tick before.

// A larger one is not worth keeping: to fill it takes longer than to get it.
const BUFFER_BYTES_MAX: usize = 256 << 10;
// All together. A thousand connections in one turn with replies of 16 KiB each.
const BYTES_MAX: usize = 16 << 20;

/// See the module.
#[derive(Default)]
pub struct BufferPool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    // The minimum number since the last tick: that many were not needed.
    least: usize,
}

impl BufferPool {
    /// One of them, if there are any.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop()?;
        self.bytes -= buffer.capacity();
        self.least = self.least.min(self.buffers.len());
        Some(buffer)
    }

    /// Keeps an empty buffer, or frees it.
    pub fn give(&mut self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes > 0 && bytes <= BUFFER_BYTES_MAX && self.bytes + bytes <= BYTES_MAX {
            self.bytes += bytes;
            self.buffers.push(buffer);
        }
    }

    /// Frees the buffers that were not needed since the last tick.
    pub fn tick(&mut self) {
        for buffer in self.buffers.drain(..self.least) {
            self.bytes -= buffer.capacity();
        }
        self.least = self.buffers.len();
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_a_burst_are_freed_within_two_ticks() {
        let mut buffer_pool = BufferPool::default();
        for _ in 0..1000 {
            buffer_pool.give(Vec::with_capacity(64 << 10));
        }
        assert_eq!(buffer_pool.buffers.len(), BYTES_MAX / (64 << 10), "all together are bounded");
        buffer_pool.give(Vec::with_capacity(BUFFER_BYTES_MAX + 1));
        buffer_pool.tick();
        // One is needed at a time.
        for _ in 0..10 {
            let buffer = buffer_pool.take().unwrap();
            buffer_pool.give(buffer);
        }
        buffer_pool.tick();
        assert_eq!(buffer_pool.buffers.len(), 1);
        buffer_pool.tick();
        assert!(buffer_pool.is_empty() && buffer_pool.bytes == 0);
    }
}
