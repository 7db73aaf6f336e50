//! What `valgrind --tool=lackey --trace-mem=yes` prints: `I  04001000,3` for instructions, ` L`, ` S` and ` M` for
//! loads, stores and both, with address and size in bytes; lines of valgrind itself begin with `==`. Instructions count
//! as reads of a mapped file, the rest as anonymous memory, for lackey does not tell. Pages are 4 KiB; an access over
//! an edge is two.

use super::source::{Source, lines};
use super::{Builder, Manner, Next, TraceError};
use std::io::BufRead;

const PAGE_SHIFT: u32 = 12;
/// Largest size of one access: the largest registers are smaller.
const LARGEST: u64 = 1 << PAGE_SHIFT;

/// Digits without `0x`.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0u64, |n, &b| Some(n << 4 | u64::from((b as char).to_digit(16)?)))
}

/// How, from which page, to which page.
fn access(line: &[u8]) -> Option<(Manner, u64, u64)> {
    let (manner, rest) = match line.split_at_checked(3)? {
        (b"I  ", rest) => (Manner::MAPPED.of_file(), rest),
        (b" L ", rest) => (Manner::MAPPED, rest),
        (b" S " | b" M ", rest) => (Manner::MAPPED.with_write(true), rest),
        _ => return None,
    };
    let comma = rest.iter().position(|&b| b == b',')?;
    let address = hexadecimal(&rest[..comma])?;
    let size: u64 = std::str::from_utf8(&rest[comma + 1..]).ok()?.parse().ok()?;
    if !(1..=LARGEST).contains(&size) {
        return None;
    }
    let last = address.checked_add(size - 1)?;
    Some((manner, address >> PAGE_SHIFT, last >> PAGE_SHIFT))
}

pub(super) fn looks_like(prefix: &[u8]) -> bool {
    let mut lines = prefix.split(|&b| b == b'\n').map(<[u8]>::trim_ascii_end);
    lines.find(|l| !l.is_empty() && !l.starts_with(b"==")).is_some_and(|l| access(l).is_some())
}

pub(super) fn read(stream: &mut dyn BufRead, source: &Source<'_>, builder: &mut Builder<'_>) -> Result<(), TraceError> {
    lines(stream, source, |number, line| {
        if line.is_empty() || line.starts_with(b"==") {
            return Ok(true);
        }
        let Some((manner, first, last)) = access(line) else {
            let shown = line.get(..60).unwrap_or(line).escape_ascii();
            let why = format!(
                "'{shown}' is no line of lackey such as ' L 1ffe8a10,8'; \
                 keep the program's own output apart with valgrind's --log-file"
            );
            return Err(source.line(number, why));
        };
        for page in first..=last {
            if builder.add(page, manner)? == Next::Enough {
                return Ok(false);
            }
        }
        Ok(true)
    })
}
