//! Reads a stream in a thread of its own: while one block is looked through, the next ones are read and unpacked.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

const BLOCK: usize = 1 << 20;
/// Blocks that may wait.
const AHEAD: usize = 4;

/// A stream that is read ahead.
///
/// The thread ends with the stream, or at its next block once this is dropped: until then one that waits for a pipe goes on
/// waiting, which nobody else does.
pub(super) struct ReadAhead {
    full: Receiver<io::Result<Vec<u8>>>,
    empty: Sender<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
}

impl ReadAhead {
    /// Begins to read. Fails where no thread can be started.
    pub(super) fn new(stream: Box<dyn Read + Send>) -> io::Result<Self> {
        let ((to_us, full), (empty, to_reader)) = (sync_channel(AHEAD), channel());
        thread::Builder::new().name("trace reader".to_owned()).spawn(move || read(stream, &to_us, &to_reader))?;
        Ok(Self { full, empty, block: Vec::new(), at: 0 })
    }
}

fn read(mut stream: Box<dyn Read + Send>, full: &SyncSender<io::Result<Vec<u8>>>, empty: &Receiver<Vec<u8>>) {
    loop {
        let mut block = empty.try_recv().unwrap_or_default();
        block.clear();
        let done = (&mut stream).take(BLOCK as u64).read_to_end(&mut block);
        let is_last = done.as_ref().map_or(true, |&read| read == 0);
        // What came before an error counts.
        let sent = block.is_empty() || full.send(Ok(block)).is_ok();
        let failed = done.is_err_and(|error| full.send(Err(error)).is_err());
        if is_last || failed || !sent {
            return;
        }
    }
}

impl BufRead for ReadAhead {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.block.len() {
            let block = match self.full.recv() {
                Ok(block) => block?,
                // The end.
                Err(_) => Vec::new(),
            };
            // The reader may be through and gone.
            let _ = self.empty.send(std::mem::replace(&mut self.block, block));
            self.at = 0;
        }
        Ok(&self.block[self.at..])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

impl Read for ReadAhead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Hands out a byte at a time, then fails.
    struct Broken(u8);

    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("broken"))?;
            buffer[0] = self.0;
            Ok(1)
        }
    }

    #[test]
    fn all_comes_in_order() {
        let bytes: Vec<u8> = (0..5 * BLOCK as u32 / 4 + 3).flat_map(u32::to_le_bytes).collect();
        let mut read = Vec::new();
        ReadAhead::new(Box::new(Cursor::new(bytes.clone()))).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        assert_eq!(ReadAhead::new(Box::new(io::empty())).unwrap().read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn what_came_before_an_error_counts_and_the_error_is_said() {
        let mut stream = ReadAhead::new(Box::new(Broken(3))).unwrap();
        let mut read = Vec::new();
        assert_eq!(stream.read_to_end(&mut read).unwrap_err().to_string(), "broken");
        assert_eq!(read, [2, 1, 0]);
    }
}
