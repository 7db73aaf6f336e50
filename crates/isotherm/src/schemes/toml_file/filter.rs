//! One `[[scheme.filter]]`.

use super::tables::{Cell, FilterTable, optional};
use crate::args::refused::Refused;
use crate::schemes::fault::{FileError, Source};
use crate::schemes::value::{self, End, Scalar, end_of};
use isotherm_core::addr::AddrRange;
use isotherm_core::scheme::filter::{Filter, FilterType};
use isotherm_core::scheme::pattern::Bounds;
use regex_lite::Regex;
use std::ops::Range;
use toml::Spanned;

/// The types with the keys that each takes.
const TYPES: [(&str, &[&str]); 8] = [
    ("anon", &[]),
    ("addr", &["start", "end"]),
    ("target", &["index"]),
    ("mapping", &["invert"]),
    ("locked", &[]),
    ("memcg", &["path"]),
    ("young", &[]),
    ("hugepage_size", &["min", "max"]),
];

/// Reads a filter. As in DAMOS, it speaks of what matches and rejects, unless said otherwise.
pub fn read(source: Source, table: &Spanned<FilterTable>) -> Result<Filter, FileError> {
    let t = table.get_ref();
    let kind = t.kind.get_ref().as_str();
    let Some((_, keys)) = TYPES.iter().find(|(name, _)| *name == kind) else {
        let names = TYPES.map(|(name, _)| name).join(", ");
        let why = format!("'{kind}' is not a filter; use one of {names}");
        return Err(source.fault(&t.kind.span(), "scheme.filter.type", why));
    };
    if let Some((key, span)) = given(t).find(|(key, _)| !keys.contains(key)) {
        let why = format!("a filter of type {kind} takes no {key}; leave it out");
        return Err(source.fault(&span, &format!("scheme.filter.{key}"), why));
    }
    let missing = |key: &str, example: &str| {
        source.fault(&table.span(), &format!("scheme.filter.{key}"), format!("it is missing; write {example}"))
    };
    let what = match kind {
        "anon" => FilterType::Anon,
        "locked" => FilterType::Locked,
        "young" => FilterType::Young,
        "addr" => addresses(source, table)?,
        "target" => {
            let index = optional(source, "scheme.filter.index", t.index.as_ref(), value::count32)?;
            FilterType::Target(index.ok_or_else(|| missing("index", "the number of the target, from 0: index = 0"))?)
        }
        "mapping" => {
            let name = t.matching.as_ref().ok_or_else(|| missing("matching", "an expression: matching = \"heap\""))?;
            FilterType::Mapping(expression(source, name)?)
        }
        "memcg" => match &t.path {
            Some(path) if !path.get_ref().trim().is_empty() => FilterType::Cgroup(path.get_ref().clone()),
            _ => return Err(missing("path", "the path of a control group: path = \"/system.slice\"")),
        },
        _ => huge_pages(source, table)?,
    };
    let matching = match &t.matching {
        _ if kind == "mapping" => !t.invert.as_ref().is_some_and(|i| *i.get_ref()),
        None => true,
        Some(cell) => match cell.get_ref() {
            Scalar::Bool(b) => *b,
            other => {
                let why = Refused::new(other, "is neither true nor false; only a filter of type mapping takes a text");
                return Err(source.fault(&cell.span(), "scheme.filter.matching", why));
            }
        },
    };
    Ok(Filter { what, matching, allow: t.allow.unwrap_or(false) })
}

/// The keys that only some types take, where they are given.
fn given(t: &FilterTable) -> impl Iterator<Item = (&'static str, Range<usize>)> {
    let cell = |c: &Option<Cell>| c.as_ref().map(Spanned::span);
    [
        ("start", cell(&t.start)),
        ("end", cell(&t.end)),
        ("index", cell(&t.index)),
        ("min", cell(&t.min)),
        ("max", cell(&t.max)),
        ("path", t.path.as_ref().map(Spanned::span)),
        ("invert", t.invert.as_ref().map(Spanned::span)),
    ]
    .into_iter()
    .filter_map(|(key, span)| span.map(|s| (key, s)))
}

fn expression(source: Source, cell: &Cell) -> Result<Regex, FileError> {
    let fault = |why| source.fault(&cell.span(), "scheme.filter.matching", why);
    match cell.get_ref() {
        Scalar::Text(text) => Regex::new(text).map_err(|e| fault(format!("'{text}' is not a regular expression: {e}"))),
        other => Err(fault(format!(
            "'{other}' is no text: for a mapping it holds a regular expression, for example \"heap\"; use invert to exclude"
        ))),
    }
}

/// An address: a number, or a text in hexadecimal with 0x.
pub fn address(value: &Scalar) -> Result<u64, Refused> {
    let number = match value {
        Scalar::Int(n) => Some(*n),
        Scalar::Text(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
        _ => None,
    };
    number.ok_or_else(|| Refused::new(value, "is not an address; write for example 0x7f0000000000"))
}

fn addresses(source: Source, table: &Spanned<FilterTable>) -> Result<FilterType, FileError> {
    let t = table.get_ref();
    let start = optional(source, "scheme.filter.start", t.start.as_ref(), address)?.unwrap_or(0);
    let all = Bounds::new(0, u64::MAX);
    let end = |v: &Scalar| end_of(v, End::Largest, all, address);
    let end = optional(source, "scheme.filter.end", t.end.as_ref(), end)?.unwrap_or(u64::MAX);
    if start >= end {
        let why = format!("no address lies from {start:#x} to {end:#x}: start must be below end");
        return Err(source.fault(&table.span(), "scheme.filter", why));
    }
    Ok(FilterType::Addr(AddrRange::new(start, end)))
}

fn huge_pages(source: Source, table: &Spanned<FilterTable>) -> Result<FilterType, FileError> {
    let t = table.get_ref();
    let all = Bounds::new(0, u64::MAX);
    let limit = |end| move |v: &Scalar| end_of(v, end, all, value::size);
    let min = optional(source, "scheme.filter.min", t.min.as_ref(), limit(End::Least))?.unwrap_or(0);
    let max = optional(source, "scheme.filter.max", t.max.as_ref(), limit(End::Largest))?.unwrap_or(u64::MAX);
    if min > max {
        let why = format!("the least size, {min}, is above the largest, {max}");
        return Err(source.fault(&table.span(), "scheme.filter", why));
    }
    Ok(FilterType::HugepageSize { min, max })
}
