//! Schemes in a TOML file. docs/schemes.md lists every key.

mod filter;
mod goal;
mod scheme;
mod settings;
mod write;

pub use write::to_toml;

use super::fault::FileError;
use super::node::Tree;
use super::parsed::Parsed;

/// Reads a file's text. `name` is what errors call it.
pub fn parse(name: &str, text: &str) -> Result<Parsed, FileError> {
    let tree = Tree::of_toml(name, text)?;
    let file = tree.root(name);
    file.only(&["scheme", "monitor", "target"])?;
    Ok(Parsed {
        schemes: file.each("scheme", scheme::read)?,
        monitor: file.part("monitor", settings::monitor)?,
        target: file.part("target", settings::target)?,
    })
}

#[cfg(test)]
mod tests;
