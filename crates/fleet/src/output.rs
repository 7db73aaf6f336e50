//! Where answers go: stdout, and files that are there whole or not at all.

use anyhow::Context;
use serde_json::Value;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Prints text. Somebody who has read enough is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("cannot write to stdout"),
        _ => Ok(()),
    }
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

/// Writes a file beside its place, and gives it its name when it is complete. What is no plain file (`/dev/stdout`, a pipe) is
/// written to as it is.
pub fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> io::Result<()> {
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return File::options().write(true).open(path)?.write_all(bytes);
        }
        // A temporary file is its owner's alone otherwise; a report is as others may read files here (umask).
        let readable = Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
