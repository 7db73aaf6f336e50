//! Schemes in a JSON file of damo: `{"kdamonds": [{"contexts": [{"schemes": [...]}]}]}`, `{"schemes": [...]}`, or a
//! list of schemes alone.
//!
//! Sizes, times and rates are read in damo's own words (`4.000 KiB`, `1 m 30 s`, `5 %`, `1,000`) and as bare numbers in
//! the unit that the key names. Zeros that stand for "not limited" there are limits that are not set here.

mod filter;
mod quota;
mod scheme;
mod words;

use super::fault::FileError;
use super::node::{Node, Tree};
use super::value;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::Scheme;

/// Reads a file's text. `name` is what errors call it. Samples and aggregation intervals are those of the file where it
/// names them, else those of `attrs`.
pub fn parse(name: &str, text: &str, attrs: &MonitorAttrs) -> Result<Vec<Scheme>, FileError> {
    let tree = Tree::of_json(name, text)?;
    let root = tree.root(name);
    if root.is_list() {
        return schemes(&root, attrs, false);
    }
    if let Some(list) = root.get("schemes")? {
        root.only(&["schemes"])?;
        return schemes(&list, attrs, false);
    }
    let Some(kdamonds) = root.get("kdamonds")? else {
        return Err(root.fault("neither \"kdamonds\" nor \"schemes\" is in it, so it is no scheme file of damo"));
    };
    let mut found: Option<(String, Vec<Scheme>)> = None;
    for kdamond in kdamonds.items()? {
        let Some(contexts) = kdamond.get("contexts")? else { continue };
        for context in contexts.items()? {
            let Some(list) = context.get("schemes")?.filter(|l| !l.is_empty()) else { continue };
            if let Some((first, _)) = &found {
                let why = format!(
                    "{first} has schemes, too; Isotherm watches one set of targets at a time: put each context into a \
                     file of its own"
                );
                return Err(context.fault(why));
            }
            found = Some((context.path().to_owned(), in_context(&context, &list, attrs)?));
        }
    }
    Ok(found.map(|(_, schemes)| schemes).unwrap_or_default())
}

fn in_context(context: &Node, list: &Node, attrs: &MonitorAttrs) -> Result<Vec<Scheme>, FileError> {
    let mut attrs = *attrs;
    if let Some(intervals) = context.get("intervals")? {
        let us = |key| intervals.optional(key, |v| words::time_ns(v, words::US).map(|ns| ns / 1000));
        attrs.sample_us = us("sample_us")?.unwrap_or(attrs.sample_us).max(1);
        attrs.aggr_us = us("aggr_us")?.unwrap_or(attrs.aggr_us).max(1);
    }
    let physical = context.optional("ops", value::text)?.is_some_and(|ops| ops == "paddr");
    schemes(list, &attrs, physical)
}

fn schemes(list: &Node, attrs: &MonitorAttrs, physical: bool) -> Result<Vec<Scheme>, FileError> {
    list.items()?.iter().map(|node| scheme::read(node, attrs, physical)).collect()
}

#[cfg(test)]
mod tests;
