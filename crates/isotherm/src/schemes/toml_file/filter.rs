//! One `[[scheme.filter]]`.

use crate::args::refused::Refused;
use crate::schemes::fault::FileError;
use crate::schemes::node::Node;
use crate::schemes::value::{self, End, Scalar, end_of};
use isotherm_core::addr::AddrRange;
use isotherm_core::scheme::filter::{Filter, FilterType, pages_of};
use isotherm_core::scheme::pattern::Bounds;
use regex_lite::Regex;

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

const ALL: Bounds<u64> = Bounds { min: 0, max: u64::MAX };

/// Reads a filter. As in DAMOS, it speaks of what matches and rejects, unless said otherwise.
pub fn read(node: &Node) -> Result<Filter, FileError> {
    node.only(&["type", "matching", "allow", "invert", "start", "end", "index", "path", "min", "max"])?;
    let kind = node.need("type")?.read(value::text)?;
    let Some((_, keys)) = TYPES.iter().find(|(name, _)| *name == kind) else {
        let names = TYPES.map(|(name, _)| name).join(", ");
        return Err(node.fault_at("type", format!("'{kind}' is not a filter; use one of {names}")));
    };
    for key in TYPES.iter().flat_map(|(_, keys)| *keys).filter(|key| !keys.contains(key)) {
        if let Some(node) = node.get(key)? {
            return Err(node.fault(format!("a filter of type {kind} takes no {key}; leave it out")));
        }
    }
    let missing = |key: &str, example: &str| {
        let why = format!("it is missing; write {example}");
        node.fault(why).at_key(&format!("{}.{key}", node.path()))
    };
    let what = match kind.as_str() {
        "anon" => FilterType::Anon,
        "locked" => FilterType::Locked,
        "young" => FilterType::Young,
        "addr" => addresses(node)?,
        "target" => {
            let index = node.optional("index", value::count32)?;
            FilterType::Target(index.ok_or_else(|| missing("index", "the number of the target, from 0: index = 0"))?)
        }
        "mapping" => {
            let name =
                node.get("matching")?.ok_or_else(|| missing("matching", "an expression: matching = \"heap\""))?;
            FilterType::Mapping(name.read(expression)?)
        }
        "memcg" => match node.optional("path", value::text)? {
            Some(path) if !path.trim().is_empty() => FilterType::Cgroup(path),
            _ => return Err(missing("path", "the path of a control group: path = \"/system.slice\"")),
        },
        _ => huge_pages(node)?,
    };
    let matching = match kind.as_str() {
        "mapping" => !node.optional("invert", value::flag)?.unwrap_or(false),
        _ => node.optional("matching", matches)?.unwrap_or(true),
    };
    Ok(Filter { what, matching, allow: node.optional("allow", value::flag)?.unwrap_or(false) })
}

fn matches(value: &Scalar) -> Result<bool, Refused> {
    let why = "is neither true nor false; only a filter of type mapping takes a text";
    value::flag(value).map_err(|_| Refused::new(value, why))
}

fn expression(value: &Scalar) -> Result<Regex, Refused> {
    match value {
        Scalar::Text(text) => {
            Regex::new(text).map_err(|e| Refused::new(text, format!("is not a regular expression: {e}")))
        }
        other => Err(Refused::new(
            other,
            "is no text: for a mapping it holds a regular expression, for example \"heap\"; use invert to exclude",
        )),
    }
}

/// An address: a number, or a text in hexadecimal with 0x.
fn address(value: &Scalar) -> Result<u64, Refused> {
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

fn addresses(node: &Node) -> Result<FilterType, FileError> {
    let start = node.optional("start", address)?.unwrap_or(0);
    let end = node.optional("end", |v| end_of(v, End::Largest, ALL, address))?.unwrap_or(u64::MAX);
    if start >= end {
        return Err(node.fault(format!("no address lies from {start:#x} to {end:#x}: start must be below end")));
    }
    let range = AddrRange::new(start, end);
    if pages_of(&range).is_empty() {
        return Err(
            node.fault(format!("no page begins from {start:#x} to {end:#x}: both are rounded down to whole pages"))
        );
    }
    Ok(FilterType::Addr(range))
}

fn huge_pages(node: &Node) -> Result<FilterType, FileError> {
    let limit = |end| move |v: &Scalar| end_of(v, end, ALL, value::size);
    let min = node.optional("min", limit(End::Least))?.unwrap_or(0);
    let max = node.optional("max", limit(End::Largest))?.unwrap_or(u64::MAX);
    if min > max {
        return Err(node.fault(format!("the least size, {min}, is above the largest, {max}")));
    }
    Ok(FilterType::HugepageSize { min, max })
}
