//! Texts that files take and show. Values are kept in the form in which they are shown, without the newline.

use crate::errno::Errno;

/// The form of a file's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An unsigned number of 64 bits.
    Ulong,
    /// An unsigned number of 32 bits.
    Uint,
    /// A signed number of 32 bits.
    Int,
    /// `Y` or `N`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
}

impl Form {
    /// What is kept of a written text.
    pub(crate) fn parse(self, text: &str) -> Result<String, Errno> {
        match self {
            Self::Ulong => Ok(unsigned(text)?.to_string()),
            Self::Uint => Ok(uint(text)?.to_string()),
            Self::Int => Ok(int(text)?.to_string()),
            Self::Flag => Ok(if flag(text)? { "Y" } else { "N" }.to_owned()),
            Self::Word(words) => {
                words.iter().find(|word| streq(text, word)).map(|&word| word.to_owned()).ok_or(Errno::Invalid)
            }
            Self::Text => Ok(text.strip_suffix('\n').unwrap_or(text).to_owned()),
        }
    }
}

/// Whether two texts are the same but for one newline at the end.
pub(crate) fn streq(text: &str, word: &str) -> bool {
    text.strip_suffix('\n').unwrap_or(text) == word
}

/// A number that fits 32 bits with its sign.
pub(crate) fn int(text: &str) -> Result<i32, Errno> {
    match text.strip_prefix('-') {
        // A second sign is no digit.
        Some(rest) => i32::try_from(-i128::from(digits(rest)?)).map_err(|_| Errno::Range),
        None => i32::try_from(unsigned(text)?).map_err(|_| Errno::Range),
    }
}

/// A number that fits 32 bits.
pub(crate) fn uint(text: &str) -> Result<u32, Errno> {
    u32::try_from(unsigned(text)?).map_err(|_| Errno::Range)
}

/// A number as the kernel reads it: an optional plus, `0x` for hexadecimal, `0` for octal, one newline at the end.
fn unsigned(text: &str) -> Result<u64, Errno> {
    digits(text.strip_prefix('+').unwrap_or(text))
}

fn digits(text: &str) -> Result<u64, Errno> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (rest, 16),
        _ if text.starts_with('0') => (text, 8),
        _ => (text, 10),
    };
    let mut value: u64 = 0;
    if digits.is_empty() {
        return Err(Errno::Invalid);
    }
    let mut overflow = false;
    for c in digits.chars() {
        let digit = c.to_digit(radix).ok_or(Errno::Invalid)?;
        match value.checked_mul(u64::from(radix)).and_then(|v| v.checked_add(u64::from(digit))) {
            Some(next) => value = next,
            None => overflow = true,
        }
    }
    if overflow { Err(Errno::Range) } else { Ok(value) }
}

/// A yes or no as the kernel reads it: by its first letter, `on` and `off` by the second.
fn flag(text: &str) -> Result<bool, Errno> {
    let mut letters = text.chars().map(|c| c.to_ascii_lowercase());
    match (letters.next(), letters.next()) {
        (Some('y' | 't' | '1'), _) | (Some('o'), Some('n')) => Ok(true),
        (Some('n' | 'f' | '0'), _) | (Some('o'), Some('f')) => Ok(false),
        _ => Err(Errno::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        let read = |text| Form::Ulong.parse(text);
        assert_eq!(read("5000\n").unwrap(), "5000");
        assert_eq!(read("+7").unwrap(), "7");
        assert_eq!(read("0x1F").unwrap(), "31");
        assert_eq!(read("010").unwrap(), "8");
        assert_eq!(read("0").unwrap(), "0");
        assert_eq!(read("18446744073709551615").unwrap(), "18446744073709551615");
        assert_eq!(read("18446744073709551616"), Err(Errno::Range));
        for bad in ["", "\n", "-1", "5000\n\n", " 5", "5 ", "5ms", "0x", "08", "++1", "99999999999999999999x"] {
            assert_eq!(read(bad), Err(Errno::Invalid), "{bad:?}");
        }
        assert_eq!(Form::Uint.parse("4294967296"), Err(Errno::Range));
        assert_eq!(Form::Int.parse("-1\n").unwrap(), "-1");
        assert_eq!(Form::Int.parse("2147483648"), Err(Errno::Range));
        assert_eq!(Form::Int.parse("-2147483648").unwrap(), "-2147483648");
        assert_eq!(Form::Int.parse("--1"), Err(Errno::Invalid));
        assert_eq!(Form::Int.parse("-+1"), Err(Errno::Invalid));
    }

    #[test]
    fn flags_words_and_texts() {
        for (text, is) in [("Y", "Y"), ("1\n", "Y"), ("on", "Y"), ("true", "Y"), ("N\n", "N"), ("off", "N"), ("0", "N")]
        {
            assert_eq!(Form::Flag.parse(text).unwrap(), is);
        }
        for bad in ["", "2", "o", "\n"] {
            assert_eq!(Form::Flag.parse(bad), Err(Errno::Invalid), "{bad:?}");
        }
        let words = Form::Word(&["none", "free_mem_rate"]);
        assert_eq!(words.parse("none\n").unwrap(), "none");
        assert_eq!(words.parse("none\n\n"), Err(Errno::Invalid));
        assert_eq!(words.parse("non"), Err(Errno::Invalid));
        assert_eq!(Form::Text.parse("/a/b\n").unwrap(), "/a/b");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(n in any::<u64>(), i in any::<i32>()) {
            prop_assert_eq!(Form::Ulong.parse(&format!("{n}\n")), Ok(n.to_string()));
            prop_assert_eq!(Form::Ulong.parse(&format!("{n:#x}")), Ok(n.to_string()));
            prop_assert_eq!(Form::Int.parse(&i.to_string()), Ok(i.to_string()));
        }

        #[test]
        fn no_text_upsets_the_reader(text in ".*") {
            for form in [Form::Ulong, Form::Uint, Form::Int, Form::Flag, Form::Word(&["a"]), Form::Text] {
                if let Ok(kept) = form.parse(&text) {
                    prop_assert_eq!(form.parse(&format!("{kept}\n")), Ok(kept));
                }
            }
        }
    }
}
