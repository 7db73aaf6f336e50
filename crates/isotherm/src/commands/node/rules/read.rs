//! Reading the file of rules, at the start and again.

use super::config::Config;
use crate::exit::Usage;
use crate::schemes::file::{read_again, read_file};
use std::path::Path;

/// The rules of `file`. `dry_run`: none of them does anything.
pub fn first(file: &Path, dry_run: bool) -> anyhow::Result<Config> {
    parse(file, &read_file(file)?, dry_run)
}

/// The same while the rules of `before` are in force. A file that holds nothing at all where rules stood is refused: more often
/// somebody is just writing it, or has cut it off, than wants every rule to end.
pub fn again(file: &Path, dry_run: bool, before: &Config) -> anyhow::Result<Config> {
    let text = read_again(file)?;
    if text.trim().is_empty() && !before.rules.is_empty() {
        let why = format!("{} is empty now; to have no rule any more, leave a comment in it", file.display());
        return Err(Usage(why).into());
    }
    parse(file, &text, dry_run)
}

fn parse(file: &Path, text: &str, dry_run: bool) -> anyhow::Result<Config> {
    let mut config = Config::parse(&file.display().to_string(), text).map_err(|e| Usage(e.to_string()))?;
    config.rules.iter_mut().for_each(|rule| rule.dry_run |= dry_run);
    for never in config.never_counts() {
        tracing::warn!("{}: {never}", file.display());
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_file_ends_no_rule() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        std::fs::write(&file, "[[rule]]\ngroups = \"a.slice\"\naction = \"reclaim\"\n").unwrap();
        let config = first(&file, false).unwrap();
        assert_eq!(again(&file, false, &config).unwrap(), config);
        for text in ["", " \n\n"] {
            std::fs::write(&file, text).unwrap();
            let error = again(&file, false, &config).unwrap_err().to_string();
            assert!(error.contains("node.toml is empty now") && error.contains("a comment"), "{error}");
            let none = first(&file, false).unwrap();
            assert_eq!(none.rules, [], "at the start it has none");
            assert_eq!(again(&file, false, &none).unwrap(), none, "and where there were none nothing ends");
        }
        std::fs::write(&file, "# none for now\n").unwrap();
        assert_eq!(again(&file, false, &config).unwrap().rules, []);
    }
}
