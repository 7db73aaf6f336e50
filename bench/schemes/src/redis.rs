//! A connection to redis, as little of it as the clients need.

use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// A connection.
#[derive(Debug)]
pub struct Redis {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    line: String,
}

impl Redis {
    /// Connects to the server at `socket`.
    pub fn connect(socket: &str) -> anyhow::Result<Self> {
        let writer = UnixStream::connect(socket).with_context(|| format!("connecting to redis at {socket}"))?;
        Ok(Self { reader: BufReader::new(writer.try_clone()?), writer, line: String::new() })
    }

    /// Sends commands, in redis's own form.
    pub fn send(&mut self, commands: &[u8]) -> anyhow::Result<()> {
        self.writer.write_all(commands).context("writing to redis")
    }

    fn read_line(&mut self) -> anyhow::Result<&str> {
        self.line.clear();
        self.reader.read_line(&mut self.line).context("reading from redis")?;
        Ok(self.line.trim_end())
    }

    /// Reads the answer to a SET.
    pub fn expect_ok(&mut self) -> anyhow::Result<()> {
        let line = self.read_line()?;
        ensure!(line == "+OK", "redis answered '{line}' to a SET");
        Ok(())
    }

    /// Replaces `value` by the answer to a GET.
    pub fn read_value(&mut self, value: &mut Vec<u8>) -> anyhow::Result<()> {
        let line = self.read_line()?;
        let length = line.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
        let length = length.with_context(|| format!("redis answered '{line}' to a GET"))?;
        value.resize(length + 2, 0);
        self.reader.read_exact(value).context("reading a value")?;
        value.truncate(length);
        Ok(())
    }
}
