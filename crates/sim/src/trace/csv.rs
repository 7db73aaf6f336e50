//! Comma-separated values: a header line names the columns, in any order. `page` (decimal, or hexadecimal with 0x) is
//! required; `op` (r, w), `channel` (map, fd) and `type` (anon, file) are optional; other columns are passed over.

use super::input::{Source, lines};
use super::{Builder, Manner, Next, TraceError};
use std::io::BufRead;

/// Columns that mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Page,
    Op,
    Channel,
    Type,
    Other,
}

impl Column {
    fn of(name: &[u8]) -> Self {
        match name {
            b"page" => Self::Page,
            b"op" => Self::Op,
            b"channel" => Self::Channel,
            b"type" => Self::Type,
            _ => Self::Other,
        }
    }
}

fn columns(header: &[u8]) -> Vec<Column> {
    let header = header.strip_prefix(b"\xef\xbb\xbf").unwrap_or(header);
    header.split(|&b| b == b',').map(|name| Column::of(name.trim_ascii())).collect()
}

pub(super) fn looks_like(prefix: &[u8]) -> bool {
    let line = prefix.split(|&b| b == b'\n').next().unwrap_or(&[]);
    columns(line).contains(&Column::Page)
}

pub(super) fn read(stream: &mut dyn BufRead, source: &Source<'_>, builder: &mut Builder<'_>) -> Result<(), TraceError> {
    let mut header: Option<Vec<Column>> = None;
    lines(stream, source, |number, line| {
        if line.is_empty() {
            return Ok(true);
        }
        let Some(columns) = &header else {
            let named = columns(line);
            if named.iter().filter(|c| **c == Column::Page).count() != 1 {
                return Err(source.line(number, "the header line must name one column 'page', for example: page,op"));
            }
            header = Some(named);
            return Ok(true);
        };
        let (page, manner) = request(columns, line).map_err(|why| source.line(number, why))?;
        Ok(builder.add(page, manner)? == Next::More)
    })
}

fn request(columns: &[Column], line: &[u8]) -> Result<(u64, Manner), String> {
    let (mut page, mut write, mut fd, mut file) = (None, false, false, None);
    let mut fields = line.split(|&b| b == b',');
    for column in columns {
        let Some(field) = fields.next() else {
            return Err(format!("fewer fields than the {} that the header names", columns.len()));
        };
        let field = field.trim_ascii();
        let wrong = |expected: &str| format!("'{}' is not {expected}", field.escape_ascii());
        match column {
            Column::Page => {
                page = Some(number(field).ok_or_else(|| wrong("a page number (decimal, or 0x and hexadecimal)"))?);
            }
            Column::Op => match field {
                b"r" | b"R" => {}
                b"w" | b"W" => write = true,
                _ => return Err(wrong("an op: r or w")),
            },
            Column::Channel => match field {
                b"map" => {}
                b"fd" => fd = true,
                _ => return Err(wrong("a channel: map or fd")),
            },
            Column::Type => match field {
                b"anon" => file = Some(false),
                b"file" => file = Some(true),
                _ => return Err(wrong("a type: anon or file")),
            },
            Column::Other => {}
        }
    }
    if fields.next().is_some() {
        return Err(format!("more fields than the {} that the header names", columns.len()));
    }
    if fd && file == Some(false) {
        return Err("anonymous memory cannot be reached through a file descriptor (channel fd, type anon)".into());
    }
    let manner = match (fd, file) {
        (true, _) => Manner::FD,
        (false, Some(true)) => Manner::MAPPED.of_file(),
        (false, _) => Manner::MAPPED,
    };
    Ok((page.ok_or("no page")?, manner.with_write(write)))
}

fn number(field: &[u8]) -> Option<u64> {
    if let Some(hex) = field.strip_prefix(b"0x") {
        return super::lackey::hexadecimal(hex);
    }
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0u64, |n, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}
