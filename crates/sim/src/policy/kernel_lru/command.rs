//! The two commands of `/sys/kernel/debug/lru_gen`: create a generation, evict generations.

use super::lruvec::{Lruvec, MAX_GENS, MIN_GENS};
use super::pages::Pages;
use super::tables::PageTables;
use super::{Variant, lruvec};
use std::str::FromStr;

/// A command, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `+ memcg node max_gen [swappiness [force]]`: creates the generation after `generation`.
    Age {
        memcg: u16,
        node: u32,
        generation: u64,
        /// None: the current one.
        swappiness: Option<u8>,
        /// Whether to read all page tables.
        force: bool,
    },
    /// `- memcg node min_gen [swappiness [pages]]`: evicts all generations up to `generation`.
    Evict {
        memcg: u16,
        node: u32,
        /// The youngest generation to go.
        generation: u64,
        /// None: the current one.
        swappiness: Option<u8>,
        /// Pages after which to stop.
        pages: u64,
    },
}

/// Why a command is refused: the kernel's error, and what it means.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// EINVAL.
    #[error(
        "{0:?} is no command; write \"+ memcg node max_gen [swappiness [force]]\" or \"- memcg node min_gen [swappiness [pages]]\""
    )]
    Syntax(String),
    /// EINVAL.
    #[error("there is no generation {generation}; the youngest is {max_seq}")]
    Missing {
        /// The one asked for.
        generation: u64,
        max_seq: u64,
    },
    /// EINVAL.
    #[error(
        "generation {generation} is one of the two youngest (up to {max_seq}), which are never evicted; create a generation first"
    )]
    TooYoung {
        /// The one asked for.
        generation: u64,
        max_seq: u64,
    },
    #[error("there are {MAX_GENS} generations already; evict the oldest first, or force it")]
    Full,
    #[error("the generation after {0} exists already: someone else created it")]
    Exists(u64),
}

fn swappiness(text: &str) -> Option<u8> {
    match text {
        "max" => Some(lruvec::ANON_ONLY),
        _ => text.parse().ok().filter(|&n| n <= 200),
    }
}

impl FromStr for Command {
    type Err = CommandError;

    fn from_str(text: &str) -> Result<Self, CommandError> {
        let read = || {
            let text = text.trim_start();
            let mut words = text.get(1..)?.split_ascii_whitespace();
            let (memcg, node) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let generation = words.next()?.parse().ok()?;
            let swappiness = match words.next() {
                Some(word) => Some(swappiness(word)?),
                None => None,
            };
            let last: Option<u64> = match words.next() {
                Some(word) => Some(word.parse().ok()?),
                None => None,
            };
            if words.next().is_some() {
                return None;
            }
            match text.as_bytes()[0] {
                b'+' => Some(Self::Age { memcg, node, generation, swappiness, force: last != Some(0) }),
                b'-' => Some(Self::Evict { memcg, node, generation, swappiness, pages: last.unwrap_or(u64::MAX) }),
                _ => None,
            }
        };
        read().ok_or_else(|| CommandError::Syntax(text.to_owned()))
    }
}

/// The commands of one write, separated by newline, comma or semicolon. An error takes the place of the command that
/// has it.
pub fn commands(text: &str) -> impl Iterator<Item = Result<Command, CommandError>> + '_ {
    text.split(['\n', ',', ';']).filter(|part| !part.trim().is_empty()).map(str::parse)
}

impl Lruvec {
    /// Creates the generation after `generation`, if that is the youngest.
    pub fn create<T: PageTables>(
        &mut self,
        pages: &mut Pages,
        tables: &mut T,
        generation: u64,
        swappiness: u8,
        force: bool,
        now: u64,
    ) -> Result<(), CommandError> {
        let max_seq = self.max_seq;
        if generation > max_seq {
            return Err(CommandError::Missing { generation, max_seq });
        }
        if self.variant == Variant::V6_12 {
            if generation < max_seq {
                return Ok(());
            }
            if !force && self.oldest(swappiness) + MAX_GENS - 1 <= max_seq {
                return Err(CommandError::Full);
            }
        }
        let created = self.age(pages, tables, swappiness, force, now);
        if created || self.variant == Variant::V6_12 { Ok(()) } else { Err(CommandError::Exists(max_seq)) }
    }

    /// Evicts all generations up to `generation`, at most so many pages. How many it evicted.
    pub fn evict_up_to<T: PageTables>(
        &mut self,
        pages: &mut Pages,
        tables: &mut T,
        generation: u64,
        swappiness: u8,
        count: u64,
    ) -> Result<u64, CommandError> {
        let max_seq = self.max_seq;
        if generation.saturating_add(MIN_GENS) > max_seq {
            return Err(CommandError::TooYoung { generation, max_seq });
        }
        let mut reclaimed = 0;
        while generation >= self.oldest(swappiness) && reclaimed < count {
            let round = self.evict_batch(pages, tables, swappiness);
            reclaimed += round.reclaimed;
            if round.scanned == 0 && round.reclaimed == 0 {
                break;
            }
        }
        Ok(reclaimed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::invariants::check;
    use super::super::mglru::{MgConfig, MgLru};
    use super::super::{Access, PageKind};
    use super::*;

    #[test]
    fn commands_are_read_as_the_kernel_reads_them() {
        let age = |swappiness, force| Command::Age { memcg: 1, node: 0, generation: 7, swappiness, force };
        let evict = |swappiness, pages| Command::Evict { memcg: 1, node: 0, generation: 7, swappiness, pages };
        let read: Vec<_> = commands("+ 1 0 7\n  + 1 0 7 1 0;- 1 0 7,-1 0 7 max 99;\n").map(Result::unwrap).collect();
        assert_eq!(read, [age(None, true), age(Some(1), false), evict(None, u64::MAX), evict(Some(201), 99)]);
        for wrong in ["", "+", "+ 1 0", "* 1 0 7", "+ 1 0 7 201", "- 1 0 7 60 9 junk", "- 1 0 x", "é 1 0 7", "1 0 7"] {
            assert!(wrong.parse::<Command>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_two_youngest_survive_the_command_to_evict() {
        for variant in [Variant::V6_12, Variant::V6_14] {
            let mut lru = MgLru::new(MgConfig { variant, batch: 8, ..MgConfig::new(1000) });
            (0..600).for_each(|page| _ = lru.access(page, Access::mapped(PageKind::Anon, true)));
            let (lruvec, pages, tables) = lru.parts_mut();
            for round in 0..2 {
                (0..100).for_each(|page| tables.touch(page));
                lruvec.create(pages, tables, lruvec.max_seq(), 100, true, round).unwrap();
            }
            let max_seq = lruvec.max_seq();
            let young = [max_seq - 1, max_seq].map(|seq| lruvec.size(seq, 0));
            assert!(young.iter().sum::<u64>() >= 100);
            let count = lruvec.evict_up_to(pages, tables, max_seq - 2, 100, u64::MAX).unwrap();
            assert_eq!(count, 500, "{variant:?}");
            assert_eq!(lruvec.max_seq(), max_seq);
            assert_eq!([max_seq - 1, max_seq].map(|seq| lruvec.size(seq, 0)), young);
            check(lruvec, pages).unwrap();
            assert_eq!(
                lruvec.evict_up_to(pages, tables, max_seq - 1, 100, 1),
                Err(CommandError::TooYoung { generation: max_seq - 1, max_seq })
            );
        }
    }

    #[test]
    fn the_variants_refuse_differently() {
        let create = |variant, generation, force| {
            let mut lru = MgLru::new(MgConfig { variant, ..MgConfig::new(100) });
            let (lruvec, pages, tables) = lru.parts_mut();
            (lruvec.create(pages, tables, generation, 60, force, 0), lruvec.max_seq())
        };
        assert_eq!(create(Variant::V6_12, 3, false), (Err(CommandError::Full), 3));
        assert_eq!(create(Variant::V6_12, 3, true), (Ok(()), 4));
        assert_eq!(create(Variant::V6_12, 2, true), (Ok(()), 3), "done already");
        assert_eq!(create(Variant::V6_14, 3, false), (Ok(()), 4));
        assert_eq!(create(Variant::V6_14, 2, false), (Ok(()), 4), "makes one all the same");
        for variant in [Variant::V6_12, Variant::V6_14] {
            assert_eq!(create(variant, 4, true), (Err(CommandError::Missing { generation: 4, max_seq: 3 }), 3));
        }
    }
}
