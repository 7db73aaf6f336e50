//! Filters of damo's.

use super::words;
use crate::schemes::fault::FileError;
use crate::schemes::node::Node;
use crate::schemes::value;
use isotherm_core::addr::AddrRange;
use isotherm_core::scheme::filter::{Filter, FilterType, pages_of};

const KEYS: [&str; 9] = [
    "filter_type",
    "type",
    "matching",
    "allow",
    "filter_pass",
    "memcg_path",
    "address_range",
    "damon_target_idx",
    "hugepage_size",
];

/// Reads a filter; `physical`: of a context that watches physical addresses.
pub fn read(node: &Node, physical: bool) -> Result<Filter, FileError> {
    node.only(&KEYS)?;
    let kind = match node.optional("filter_type", value::text)? {
        Some(kind) => Some(kind),
        None => node.optional("type", value::text)?,
    };
    let Some(kind) = kind else { return Err(node.fault("filter_type is missing")) };
    let need = |key: &str| node.get(key)?.ok_or_else(|| node.fault(format!("a filter of type {kind} needs {key}")));
    let what = match kind.as_str() {
        "anon" => FilterType::Anon,
        "young" => FilterType::Young,
        "memcg" => FilterType::Cgroup(need("memcg_path")?.read(value::text)?),
        "target" => FilterType::Target(need("damon_target_idx")?.read(words::count32)?),
        "addr" if physical => {
            return Err(node.fault("it names physical addresses, but Isotherm's schemes act on those of processes"));
        }
        "addr" => {
            let range = need("address_range")?;
            let start = range.optional("start", words::count)?.unwrap_or(0);
            let end = range.optional("end", words::count)?.unwrap_or(u64::MAX);
            if start >= end {
                return Err(range.fault("the range is empty: start must lie below end"));
            }
            let addresses = AddrRange::new(start, end);
            if pages_of(&addresses).is_empty() {
                return Err(range.fault("no page begins in it: both ends are rounded down to whole pages"));
            }
            FilterType::Addr(addresses)
        }
        "hugepage_size" => {
            let range = need("hugepage_size")?;
            let [min, max] = range.items()?.try_into().map_err(|_| range.fault("write [least size, largest size]"))?;
            let (min, max) = (min.read(words::size)?, max.read(words::size)?);
            if min > max {
                return Err(range.fault("the least size is above the largest"));
            }
            FilterType::HugepageSize { min, max }
        }
        other => {
            let why = format!(
                "Isotherm has no filter of type '{other}'; use one of anon, memcg, young, hugepage_size, addr, target"
            );
            return Err(node.fault(why));
        }
    };
    let allow = match node.optional("allow", words::flag)? {
        Some(allow) => allow,
        // Its older name.
        None => node.optional("filter_pass", words::flag)?.unwrap_or(false),
    };
    Ok(Filter { what, matching: node.optional("matching", words::flag)?.unwrap_or(true), allow })
}
