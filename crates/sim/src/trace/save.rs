//! Writes a trace as libCacheSim's oracleGeneral, so that other simulators can run it.

use super::Trace;
use crate::policy::opt::NextUse;
use isotherm_files::NewFile;
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::Path;

/// Bytes of a page.
const PAGE: u32 = 4096;

/// Writes the requests as records of 24 bytes; see `oracle.rs`. A file is there whole or not at all, a pipe is written to. Pages keep
/// their names; the time is the number of the request in thousands. How requests are made and on whose behalf has no place there.
pub fn save_oracle(trace: &Trace, path: &Path) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, NewFile::create(path, NewFile::READABLE)?);
    let next = NextUse::of(trace.pages(), trace.footprint());
    for (at, &page) in trace.pages().iter().enumerate() {
        // Positions count from 1 there.
        let next = next.after(at).map_or(-1, |next| i64::from(next) + 1);
        out.write_all(&((at / 1000) as u32).to_le_bytes())?;
        out.write_all(&trace.names()[page as usize].to_le_bytes())?;
        out.write_all(&PAGE.to_le_bytes())?;
        out.write_all(&next.to_le_bytes())?;
    }
    out.into_inner().map_err(IntoInnerError::into_error)?.commit()
}
