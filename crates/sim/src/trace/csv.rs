//! Comma-separated values: a header line names the columns, in any order. `page` (decimal, or hexadecimal with 0x) is
//! required; `op` (r, w), `channel` (map, fd), `type` (anon, file) and `group` (a name) are optional; other columns are
//! passed over.

use super::groups::MOST_GROUPS;
use super::source::{Source, lines};
use super::{Builder, Manner, Next, TraceError};
use std::io::BufRead;

/// Columns that mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Page,
    Op,
    Channel,
    Type,
    Group,
    Other,
}

/// Longest name of a group, bytes.
const LONGEST_GROUP: usize = 255;

struct Request<'a> {
    page: u64,
    manner: Manner,
    group: Option<&'a str>,
}

impl Column {
    fn of(name: &[u8]) -> Self {
        match name {
            b"page" => Self::Page,
            b"op" => Self::Op,
            b"channel" => Self::Channel,
            b"type" => Self::Type,
            b"group" => Self::Group,
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
        let Request { page, manner, group } = request(columns, line, &|why| source.line(number, why))?;
        let next = match group {
            None => builder.add(page, manner)?,
            Some(name) => {
                let too_many = || source.line(number, format!("more than {MOST_GROUPS} groups"));
                let group = builder.group(name).ok_or_else(too_many)?;
                builder.add_for(group, page, manner)?
            }
        };
        Ok(next == Next::More)
    })
}

/// Reads a line; `fail` makes an error of what is wrong with it.
fn request<'a>(
    columns: &[Column],
    line: &'a [u8],
    fail: &dyn Fn(String) -> TraceError,
) -> Result<Request<'a>, TraceError> {
    let (mut page, mut write, mut fd, mut file, mut group) = (None, false, false, None, None);
    let mut fields = line.split(|&b| b == b',');
    for column in columns {
        let Some(field) = fields.next() else {
            return Err(fail(format!("fewer fields than the {} that the header names", columns.len())));
        };
        let field = field.trim_ascii();
        let wrong = |expected: &str| fail(format!("'{}' is not {expected}", field.escape_ascii()));
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
            Column::Group => {
                let name = std::str::from_utf8(field).ok().filter(|n| (1..=LONGEST_GROUP).contains(&n.len()));
                group = Some(name.ok_or_else(|| wrong("a group's name of 1 to 255 bytes"))?);
            }
            Column::Other => {}
        }
    }
    if fields.next().is_some() {
        return Err(fail(format!("more fields than the {} that the header names", columns.len())));
    }
    if fd && file == Some(false) {
        let why = "anonymous memory cannot be reached through a file descriptor (channel fd, type anon)";
        return Err(fail(why.into()));
    }
    let manner = match (fd, file) {
        (true, _) => Manner::FD,
        (false, Some(true)) => Manner::MAPPED.of_file(),
        (false, _) => Manner::MAPPED,
    };
    Ok(Request { page: page.ok_or_else(|| fail("no page".into()))?, manner: manner.with_write(write), group })
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
