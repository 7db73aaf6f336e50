//! How long names of targets and mappings may be.

/// Bytes of a name, at most: as many as a path has. What we record is shorter.
const MAX_NAME: usize = 4096;

/// Cuts a name that nobody could read, and that would be kept for each target until the end.
pub(crate) fn shorten(name: &mut String) {
    if name.len() > MAX_NAME {
        let end = (0..=MAX_NAME - '…'.len_utf8()).rev().find(|at| name.is_char_boundary(*at));
        name.truncate(end.unwrap_or_default());
        name.push('…');
        name.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        for (name, len) in
            [("x".repeat(MAX_NAME), MAX_NAME), ("x".repeat(9999), MAX_NAME), ("€".repeat(9999), MAX_NAME / 3 * 3)]
        {
            let mut short = name.clone();
            shorten(&mut short);
            assert_eq!(short.len(), len);
            assert!(short == name || short.strip_suffix('…').is_some_and(|begin| name.starts_with(begin)));
        }
    }
}
