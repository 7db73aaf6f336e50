//! Paths of control groups.

/// Whether the control group at `path` is that at `group`, or below it.
pub fn is_below(path: &str, group: &str) -> bool {
    let (path, group) = (path.trim_end_matches('/'), group.trim_end_matches('/'));
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_holds_itself_and_those_in_it() {
        let below_a = ["/a", "/a/", "/a/x", "/ab", "/", ""].map(|path| is_below(path, "/a/"));
        assert_eq!(below_a, [true, true, true, false, false, false]);
        assert!(is_below("/a", "/") && is_below("/", "/") && is_below("", ""));
    }
}
