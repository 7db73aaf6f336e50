//! Names that other programs chose, made fit for people's eyes.
//!
//! A mapping, a process, a control group, a guest can be called anything: what a terminal takes for a command, a line
//! end, characters that change the direction of reading. So that no output has to think of it, names are made printable
//! where they come in: read from the system, from a record, or from a guest.

use std::borrow::Cow;

/// `text` with every character escaped that is not to reach a terminal: `\n`, `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unprintable) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unprintable(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out.into()
}

/// Makes a name printable in its place.
pub fn make_printable(text: &mut String) {
    if let Cow::Owned(safe) = printable(text) {
        *text = safe;
    }
}

/// Control characters of both sets, line and paragraph separators, and what changes the direction of reading
/// (Unicode's UAX 9) or cannot be seen.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        assert_eq!(printable("a\x1b[31mb\nc\u{9b}2J\u{202e}x"), "a\\u{1b}[31mb\\nc\\u{9b}2J\\u{202e}x");
        assert!(matches!(printable("/usr/lib/libc.so.6 (größer)"), Cow::Borrowed(_)));
        let mut name = "\t".to_owned();
        make_printable(&mut name);
        assert_eq!(name, "\\t");
    }

    proptest! {
        #[test]
        fn the_outcome_is_printable_and_stays_as_it_is(text in "\\PC{0,20}|[\\x00-\\x9f]{0,20}|.{0,20}") {
            let once = printable(&text).into_owned();
            prop_assert!(!once.chars().any(is_unprintable));
            prop_assert_eq!(printable(&once), once.as_str());
        }
    }
}
