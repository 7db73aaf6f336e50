//! Where answers go: stdout and files; and messages: stderr.

use anyhow::Context;
use isotherm_files::NewFile;
use serde_json::Value;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Prints text. Somebody who has read enough is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("cannot write to stdout"),
        _ => Ok(()),
    }
}

/// Says something on stderr. Where nobody can be told, nobody is.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "isotherm-fleet: {text}");
}

/// Prints a value on each line.
pub fn print_lines(lines: &[Value]) -> anyhow::Result<()> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    print(&text)
}

/// Writes a file that is there whole or not at all. What is no plain file (`/dev/stdout`, a pipe) is written to as it is, and `-` is
/// stdout.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return print_bytes(bytes);
    }
    NewFile::create(path, NewFile::READABLE)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.commit()))
        .with_context(|| format!("cannot write {}", path.display()))
}
