//! Notes about static probes in an ELF file: section `.note.stapsdt`, as SystemTap defines it.

use object::NativeEndian;
use object::elf::{FileHeader64, NoteType, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// A probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Who offers it.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Where its instruction lies in the file.
    pub offset: u64,
    /// Where the counter of its listeners lies in the file; `None`: it has none.
    pub semaphore: Option<u64>,
    /// Where its fields are when it is hit.
    pub arguments: Vec<Argument>,
}

/// A field of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// Bytes; negative: it has a sign.
    pub size: i8,
    /// The register that holds it, as number `PERF_REG_X86_*`; `None`: it is in memory or a constant.
    pub register: Option<u32>,
}

/// Why notes cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    /// The file is no ELF file of 64 bits for this machine, or is damaged.
    #[error("it is no ELF program for this machine, or is damaged: {0}")]
    Elf(#[from] object::read::Error),
    /// A note has another form than SystemTap's.
    #[error("a note about a probe has an unknown form")]
    Form,
}

/// The kind of note, and its owner.
const NT_STAPSDT: NoteType = NoteType(3);
const OWNER: &[u8] = b"stapsdt";

/// The probes in the file whose content is `elf`, in the order in which they stand there.
pub fn notes(elf: &[u8]) -> Result<Vec<Note>, NoteError> {
    let header = FileHeader64::<NativeEndian>::parse(elf)?;
    let endian: NativeEndian = header.endian()?;
    let segments = header.program_headers(endian, elf)?;
    let sections = header.sections(endian, elf)?;
    let file_offset = |address: u64| {
        segments.iter().filter(|s| s.p_type(endian) == PT_LOAD).find_map(|s| {
            let within = address.checked_sub(s.p_vaddr(endian)).filter(|&at| at < s.p_filesz(endian))?;
            Some(within + s.p_offset(endian))
        })
    };
    // A tool that has moved the program (prelink) leaves notes as they were: this section tells by how much.
    let base = sections.section_by_name(endian, b".stapsdt.base").map(|(_, s)| s.sh_addr(endian));
    let mut found = Vec::new();
    for section in sections.iter() {
        let Some(mut notes) = section.notes(endian, elf)? else { continue };
        while let Some(note) = notes.next()? {
            if note.n_type(endian) != NT_STAPSDT || note.name() != OWNER {
                continue;
            }
            let reported = reported(note.desc()).ok_or(NoteError::Form)?;
            let moved = base.map_or(0, |base| base.wrapping_sub(reported.base));
            let place = |address: u64| file_offset(address.wrapping_add(moved)).ok_or(NoteError::Form);
            found.push(Note {
                provider: text(reported.provider)?,
                name: text(reported.name)?,
                offset: place(reported.location)?,
                semaphore: (reported.semaphore != 0).then(|| place(reported.semaphore)).transpose()?,
                arguments: text(reported.arguments)?
                    .split_ascii_whitespace()
                    .map(argument)
                    .collect::<Option<_>>()
                    .ok_or(NoteError::Form)?,
            });
        }
    }
    Ok(found)
}

/// What a note says.
struct Described<'a> {
    location: u64,
    base: u64,
    semaphore: u64,
    provider: &'a [u8],
    name: &'a [u8],
    arguments: &'a [u8],
}

fn reported(bytes: &[u8]) -> Option<Described<'_>> {
    let (location, rest) = bytes.split_first_chunk()?;
    let (base, rest) = rest.split_first_chunk()?;
    let (semaphore, rest) = rest.split_first_chunk()?;
    let mut texts = rest.split(|&b| b == 0);
    let [location, base, semaphore] = [location, base, semaphore].map(|b| u64::from_ne_bytes(*b));
    let (provider, name, arguments) = (texts.next()?, texts.next()?, texts.next()?);
    Some(Described { location, base, semaphore, provider, name, arguments })
}

fn text(bytes: &[u8]) -> Result<String, NoteError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| NoteError::Form)
}

/// `-8@%rdi`.
fn argument(text: &str) -> Option<Argument> {
    let (size, place) = text.split_once('@')?;
    let register = place.strip_prefix('%').and_then(|name| REGISTERS.iter().find(|r| r.0 == name));
    Some(Argument { size: size.parse().ok()?, register: register.map(|r| r.1) })
}

/// Registers of 64 bits and their numbers in perf's samples.
const REGISTERS: [(&str, u32); 16] = [
    ("rax", 0),
    ("rbx", 1),
    ("rcx", 2),
    ("rdx", 3),
    ("rsi", 4),
    ("rdi", 5),
    ("rbp", 6),
    ("rsp", 7),
    ("r8", 16),
    ("r9", 17),
    ("r10", 18),
    ("r11", 19),
    ("r12", 20),
    ("r13", 21),
    ("r14", 22),
    ("r15", 23),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usdt::{PROVIDER, Probes};
    use isotherm_core::trace::{TraceEvent, Tracer};

    #[test]
    fn arguments_tell_size_sign_and_register() {
        assert_eq!(argument("-8@%rdi"), Some(Argument { size: -8, register: Some(5) }));
        assert_eq!(argument("4@%r15"), Some(Argument { size: 4, register: Some(23) }));
        assert_eq!(argument("8@-16(%rbp)"), Some(Argument { size: 8, register: None }));
        assert_eq!(argument("-4@$7"), Some(Argument { size: -4, register: None }));
        assert_eq!(argument("%rdi"), None);
        assert_eq!(argument("x@%rdi"), None);
    }

    #[test]
    fn our_own_notes_are_read_and_damage_is_an_error() {
        // Otherwise the linker would leave the probes out of this test.
        assert!(!Probes.trace(&TraceEvent::IntervalsTune { sample_us: 1 }), "nobody listens");
        let elf = std::fs::read("/proc/self/exe").unwrap();
        let found = notes(&elf).unwrap();
        let tune = found.iter().find(|n| n.name == "damon_monitor_intervals_tune").unwrap();
        assert_eq!((tune.provider.as_str(), tune.arguments.len()), (PROVIDER, 1));
        // What is there while nobody listens: a nop.
        assert_eq!(elf[tune.offset as usize], 0x90);
        let semaphore = tune.semaphore.unwrap() as usize;
        assert_eq!(elf[semaphore..semaphore + 2], [0, 0]);
        for cut in [0, 10, 63, 64, 100, elf.len() / 2] {
            assert!(notes(&elf[..cut]).is_err(), "{cut}");
        }
        assert!(notes(b"#!/bin/sh").is_err());
        // Whatever else is damaged: an answer, and no panic.
        let mut damaged = elf.clone();
        let note = elf.windows(8).position(|w| w == b"stapsdt\0").unwrap() - 12;
        for at in (0..64).chain(note..note + 120) {
            for damage in [0, 0x7f, 0xff] {
                damaged[at] = damage;
                let _ = notes(&damaged);
            }
            damaged[at] = elf[at];
        }
        assert_eq!(notes(&damaged).unwrap(), found);
    }

    #[test]
    fn notes_of_another_form_are_refused() {
        assert!(reported(&[0; 24]).is_none(), "no texts");
        let mut bytes = [1u64, 2, 3].map(u64::to_ne_bytes).concat();
        bytes.extend(b"a\0b\0-8@%rax\0");
        let reported = reported(&bytes).unwrap();
        assert_eq!((reported.location, reported.base, reported.semaphore), (1, 2, 3));
        assert_eq!((reported.provider, reported.name, reported.arguments), (&b"a"[..], &b"b"[..], &b"-8@%rax"[..]));
    }
}
