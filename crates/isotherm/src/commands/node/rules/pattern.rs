//! Which control groups a rule is for.

use crate::args::refused::Refused;
use glob::{MatchOptions, Pattern};
use std::fmt;

/// As in a shell: `*` does not go beyond a slash, `**` does.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// Paths of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupPattern {
    /// The whole path: `/kubepods/*/pod*/**`.
    Path(Pattern),
    /// A systemd unit, and all that is below it: `batch.slice`, `redis@*.service`.
    Unit(Pattern),
}

impl GroupPattern {
    /// With a slash it is a path, else the name of a unit.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let text = text.trim();
        let refused = |why: &str| Refused::new(text, why);
        if text.is_empty() {
            return Err(refused("names no control group; write a path like \"/a/**\" or a unit like \"batch.slice\""));
        }
        let pattern = Pattern::new(text).map_err(|e| refused(&format!("is no pattern of paths: {}", e.msg)))?;
        if text.starts_with('/') {
            Ok(Self::Path(pattern))
        } else if text.contains('/') {
            Err(refused("must begin with / where it is a path"))
        } else {
            Ok(Self::Unit(pattern))
        }
    }

    /// Whether it is known to mean every group that `other` means: the same pattern, or the one path that this is.
    pub fn covers(&self, other: &Self) -> bool {
        let is_one = |pattern: &Pattern| !pattern.as_str().contains(['*', '?', '[']);
        self == other || matches!(other, Self::Path(pattern) if is_one(pattern) && self.matches(pattern.as_str()))
    }

    /// Whether the group at `path` is meant.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Path(pattern) => pattern.matches_with(path, OPTIONS),
            Self::Unit(pattern) => path.split('/').any(|name| pattern.matches_with(name, OPTIONS)),
        }
    }
}

impl fmt::Display for GroupPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Path(pattern) | Self::Unit(pattern)) = self;
        f.write_str(pattern.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        GroupPattern::parse(pattern).unwrap().matches(path)
    }

    #[test]
    fn paths_are_matched_whole_and_units_wherever_they_are() {
        assert!(matches("/a/b", "/a/b") && !matches("/a/b", "/a/b/c") && !matches("/a", "/a/b"));
        assert!(matches("/a/*", "/a/b") && !matches("/a/*", "/a/b/c") && !matches("/a/*", "/a"));
        assert!(matches("/a/**", "/a/b/c") && matches("/*/pod[0-9]/**", "/kube/pod7/x"));
        assert!(matches("/**", "/a") && matches("/", "/") && !matches("/a", "/A"));
        assert!(matches("batch.slice", "/batch.slice/x.service") && matches("batch.slice", "/batch.slice"));
        assert!(matches("redis@*.service", "/system.slice/redis@7.service") && !matches("redis", "/redis.slice"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (text, part) in [("", "no control group"), ("a/b", "begin with /"), ("/a/[", "'/a/['"), ("/a**", "'/a**'")]
        {
            let error = GroupPattern::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(GroupPattern::parse(" /a/** ").unwrap().to_string(), "/a/**");
    }
}
