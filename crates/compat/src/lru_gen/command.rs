//! The commands that `lru_gen` takes, read as the kernel reads them.

use crate::errno::Errno;

/// The most swappiness there is: anonymous memory before files, as far as possible.
const MOST_SWAPPINESS: u64 = 200;

/// Which memory a command is to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swappiness {
    /// 0 (files only) to 200.
    Of(u8),
    /// The word `max` of Linux 6.15: anonymous memory only.
    AnonOnly,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `+`: create a generation after `seq`. `force`: also if there are as many as there may be.
    Age { force: bool },
    /// `-`: evict the generations up to `seq`, at most so many pages.
    Evict { pages: u64 },
}

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) verb: Verb,
    pub(crate) memcg: u32,
    pub(crate) node: u32,
    pub(crate) seq: u64,
    /// `None`: that of the group.
    pub(crate) swappiness: Option<Swappiness>,
}

/// Carries out the commands in a written text one by one, until one of them fails. A text without any is refused.
pub(crate) fn each(data: &[u8], mut run: impl FnMut(Command) -> Result<(), Errno>) -> Result<(), Errno> {
    let text = data.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut done = Err(Errno::Invalid);
    for part in text.split(|byte| b",;\n".contains(byte)) {
        let mut words = Words(part);
        words.blanks();
        if !words.0.is_empty() {
            run(parse(words)?)?;
            done = Ok(());
        }
    }
    done
}

fn parse(mut words: Words) -> Result<Command, Errno> {
    let letter = words.letter().ok_or(Errno::Invalid)?;
    let mut number = || {
        words.blanks();
        words.number().ok_or(Errno::Invalid)
    };
    let (memcg, node, seq) = (number()? as u32, number()? as u32, number()?);
    words.blanks();
    let swappiness = if words.0.starts_with(b"max") && words.0.get(3).is_none_or(|&byte| is_blank(byte)) {
        words.0 = &words.0[3..];
        Some(Swappiness::AnonOnly)
    } else {
        match words.number().map(|n| u64::from(n as u32)) {
            None => None,
            Some(n @ 0..=MOST_SWAPPINESS) => Some(Swappiness::Of(n as u8)),
            // The kernel's way to say that there is none.
            Some(n) if n == u64::from(u32::MAX) => None,
            Some(_) => return Err(Errno::Invalid),
        }
    };
    words.blanks();
    let last = words.number();
    words.blanks();
    if !words.0.is_empty() {
        return Err(Errno::Invalid);
    }
    let verb = match letter {
        b'+' => Verb::Age { force: last != Some(0) },
        b'-' => Verb::Evict { pages: last.unwrap_or(u64::MAX) },
        _ => return Err(Errno::Invalid),
    };
    Ok(Command { verb, memcg, node, seq, swappiness })
}

/// What is left of a text.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn blanks(&mut self) {
        let blanks = self.0.iter().take_while(|&&byte| is_blank(byte)).count();
        self.0 = &self.0[blanks..];
    }

    fn letter(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Decimal digits; what does not fit wraps around.
    fn number(&mut self) -> Option<u64> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(digits);
        self.0 = rest;
        let add = |n: u64, &digit: &u8| n.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        (!digits.is_empty()).then(|| digits.iter().fold(0, add))
    }
}

/// Blanks as the kernel has them.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0xa0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &str) -> (Vec<Command>, Result<(), Errno>) {
        let mut seen = Vec::new();
        let done = each(text.as_bytes(), |command| {
            seen.push(command);
            Ok(())
        });
        (seen, done)
    }

    fn one(text: &str) -> Option<Command> {
        match all(text) {
            (seen, Ok(())) if seen.len() == 1 => Some(seen[0]),
            (_, Err(Errno::Invalid)) => None,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn age(force: bool) -> Command {
        Command { verb: Verb::Age { force }, memcg: 7, node: 0, seq: 3, swappiness: None }
    }

    #[test]
    fn commands_are_read_in_all_their_lengths() {
        assert_eq!(one("+ 7 0 3"), Some(age(true)));
        assert_eq!(one("+7 0 3\n"), Some(age(true)), "blanks are wanted between numbers only");
        assert_eq!(one("\t +\t7  0 3 1 1 "), Some(Command { swappiness: Some(Swappiness::Of(1)), ..age(true) }));
        assert_eq!(one("+ 7 0 3 200 0"), Some(Command { swappiness: Some(Swappiness::Of(200)), ..age(false) }));
        let evict = |swappiness, pages| Command { verb: Verb::Evict { pages }, swappiness, ..age(true) };
        assert_eq!(one("- 7 0 3"), Some(evict(None, u64::MAX)));
        assert_eq!(one("- 7 0 3 0 25"), Some(evict(Some(Swappiness::Of(0)), 25)));
        assert_eq!(one("- 7 0 3 max 25"), Some(evict(Some(Swappiness::AnonOnly), 25)));
        assert_eq!(one("- 7 0 3 4294967295"), Some(evict(None, u64::MAX)), "as if it were left out");
        assert_eq!(one("- 4294967303 0 3"), Some(evict(None, u64::MAX)), "numbers wrap around");
        assert_eq!(one("- 7 0 3\0junk"), Some(evict(None, u64::MAX)), "the text ends there");
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for text in [
            "",
            "\n",
            " ; , ",
            "+",
            "+ 7",
            "+ 7 0",
            "* 7 0 3",
            "7 0 3",
            "+ 7 0 3 x",
            "+ 7 0 3 1 2 3",
            "+ 7 0 3x",
            "- 7 0 3 201",
            "- 7 0 3 maximum",
            "+ -7 0 3",
            "+ 0x7 0 3",
            "++ 7 0 3",
            "- 7 0 3 1 -5",
            "+ seven 0 3",
        ] {
            assert_eq!(one(text), None, "{text:?}");
        }
    }

    #[test]
    fn several_are_carried_out_until_one_fails() {
        let (seen, done) = all("+ 1 0 3,+ 2 0 3;\n\n+ 3 0 3\n");
        assert_eq!((seen.iter().map(|c| c.memcg).collect::<Vec<_>>(), done), (vec![1, 2, 3], Ok(())));
        let (seen, done) = all("+ 1 0 3\nnonsense\n+ 3 0 3");
        assert_eq!((seen.len(), done), (1, Err(Errno::Invalid)));
        let mut count = 0;
        let done = each(b"+ 1 0 3,+ 2 0 3", |_| {
            count += 1;
            Err(Errno::Range)
        });
        assert_eq!((count, done), (1, Err(Errno::Range)));
    }

    proptest! {
        #[test]
        fn anything_may_be_written(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut commands = 0;
            let done = each(&data, |_| { commands += 1; Ok(()) });
            prop_assert!(done == Err(Errno::Invalid) || (done.is_ok() && commands > 0));
        }

        #[test]
        fn what_looks_like_a_command_is_none_or_what_it_says(
            letter in "[+*-]", memcg in any::<u32>(), seq in any::<u64>(), swappiness in 0u64..400, last in any::<u64>(),
        ) {
            let read = one(&format!("{letter} {memcg} 0 {seq} {swappiness} {last}"));
            let expected = (letter != "*" && swappiness <= 200).then(|| Command {
                verb: if letter == "+" { Verb::Age { force: last != 0 } } else { Verb::Evict { pages: last } },
                memcg, node: 0, seq, swappiness: Some(Swappiness::Of(swappiness as u8)),
            });
            prop_assert_eq!(read, expected);
        }
    }
}
