//! `/proc/PID/maps`: parsing, telling kinds apart, joining lines.

use super::dir::ProcessDir;
use super::error::ProcessError;
use super::filesystems::{Filesystems, MemoryFs};
use super::lines::{for_each_line, with_buffer};
use isotherm_core::addr::AddrRange;
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::printable::printable;
use std::borrow::Cow;

/// One line of `/proc/PID/maps` (or a header line of `smaps`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapsLine<'a> {
    pub range: AddrRange,
    /// `rwxp` or `rwxs`, a dash for what is not allowed.
    pub perms: [u8; 4],
    /// Where in the file it begins.
    pub offset: u64,
    /// Major and minor device number of the file; (0, 0) without one.
    pub device: (u32, u32),
    /// Inode of the file; 0 without one.
    pub inode: u64,
    /// What the kernel calls it, as printed: a newline in a file's name is written `\012`.
    pub name: &'a [u8],
}

impl<'a> MapsLine<'a> {
    /// Parses a line without its newline; `None` if it does not have the documented form.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let (start, rest) = hex(line, b'-')?;
        let (end, rest) = hex(rest, b' ')?;
        let (perms, rest) = rest.split_at_checked(5)?;
        let perms = perms.first_chunk::<4>().copied()?;
        let (offset, rest) = hex(rest, b' ')?;
        let (major, rest) = hex(rest, b':')?;
        let (minor, rest) = hex(rest, b' ')?;
        let digits = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let inode = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        // Blanks pad the column; a file's path begins with a slash and the kernel's own names with a letter or bracket.
        let name = rest[digits..].trim_ascii_start();
        (start < end).then_some(Self {
            range: AddrRange { start, end },
            perms,
            offset,
            device: (major.try_into().ok()?, minor.try_into().ok()?),
            inode,
            name,
        })
    }

    /// Whether writes go to the shared object.
    pub(crate) const fn is_shared(&self) -> bool {
        self.perms[3] == b's'
    }

    /// What backs it, as far as a line of maps tells. hugetlb memory on the kernel's internal mounts (memfd, SysV)
    /// looks like shared memory here; only `VmFlags` in smaps tells.
    pub fn kind(&self, filesystems: &Filesystems) -> MappingKind {
        let name = self.name;
        let shmem = |prefix: &[u8]| name.starts_with(prefix);
        if self.inode == 0 {
            let special = [&b"[vdso]"[..], b"[vsyscall]", b"[vvar", b"[uprobes]", b"[vectors]", b"[sigpage]"];
            return match name {
                _ if special.iter().any(|s| name.starts_with(s)) => MappingKind::Special,
                _ if shmem(b"[anon_shmem:") => MappingKind::Shmem,
                // Ring buffers and other kernel pages behind an anonymous inode's descriptor.
                _ if name.starts_with(b"/") || name.starts_with(b"anon_inode:") => MappingKind::Special,
                _ => MappingKind::Anon,
            };
        }
        if name.starts_with(b"/anon_hugepage") {
            return MappingKind::Hugetlb;
        }
        match filesystems.get(self.device) {
            Some(MemoryFs::Hugetlbfs) => return MappingKind::Hugetlb,
            Some(MemoryFs::Tmpfs) if !name.starts_with(b"/dev/") || name.starts_with(b"/dev/shm/") => {
                return MappingKind::Shmem;
            }
            _ => {}
        }
        if name.starts_with(b"/dev/zero") {
            // A private mapping of /dev/zero is plain anonymous memory, a shared one is shared anonymous memory.
            return if self.is_shared() { MappingKind::Shmem } else { MappingKind::Anon };
        }
        if shmem(b"/memfd:") || shmem(b"/SYSV") || shmem(b"/dev/shm/") || shmem(b"[anon_shmem:") {
            return MappingKind::Shmem;
        }
        let device = [&b"/dev/"[..], b"anon_inode:", b"socket:", b"/[aio]", b"/dmabuf:"];
        if device.iter().any(|d| name.starts_with(d)) { MappingKind::Special } else { MappingKind::File }
    }
}

/// A hexadecimal number up to the byte `end`, and what follows that byte.
fn hex(text: &[u8], end: u8) -> Option<(u64, &[u8])> {
    let (mut value, mut digits) = (0u64, 0);
    for (i, &b) in text.iter().enumerate() {
        let digit = match b {
            b'0'..=b'9' => b - b'0',
            b'a'..=b'f' => b - b'a' + 10,
            _ if b == end && digits > 0 => return Some((value, &text[i + 1..])),
            _ => return None,
        };
        digits += 1;
        if digits > 16 {
            return None;
        }
        value = value << 4 | u64::from(digit);
    }
    None
}

/// Addresses of every line of a process's maps, in order. The process may be another one with its pid: whoever
/// holds a [`PidFd`](super::PidFd) checks it afterwards.
pub(crate) fn mapped_ranges(dir: &ProcessDir) -> Result<Vec<AddrRange>, ProcessError> {
    ranges_of(dir, |_| true)
}

/// Addresses of the lines of private anonymous memory that may be written, stacks excepted: as the kernel has its
/// mappings, never joined.
pub(crate) fn anonymous_ranges(dir: &ProcessDir) -> Result<Vec<AddrRange>, ProcessError> {
    ranges_of(dir, |line| {
        let plain = line.inode == 0 && line.perms.starts_with(b"rw") && !line.is_shared();
        plain && (line.name.is_empty() || line.name == b"[heap]" || line.name.starts_with(b"[anon:"))
    })
}

fn ranges_of(dir: &ProcessDir, wanted: impl Fn(&MapsLine<'_>) -> bool) -> Result<Vec<AddrRange>, ProcessError> {
    const FILE: &str = "maps";
    let mut ranges = Vec::new();
    let mut file = dir.open(FILE)?;
    with_buffer(|buf| {
        for_each_line(&mut file, buf, |l| {
            ranges.extend(MapsLine::parse(l).filter(|line| wanted(line)).map(|line| line.range));
        })
    })
    .map_err(|e| dir.error(FILE, e))?;
    Ok(ranges)
}

/// The name as printable text; bytes that are not UTF-8 are replaced. A newline stays `\012`, as the kernel writes it.
pub(crate) fn display_name(name: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(name) {
        Cow::Borrowed(text) => printable(text),
        Cow::Owned(text) => printable(&text).into_owned().into(),
    }
}

/// Draws up a list of mappings from lines in address order, joining adjacent lines that agree in kind, sharing, locking
/// and name.
#[derive(Debug)]
pub(crate) struct MappingList<'a> {
    out: &'a mut Vec<Mapping>,
}

impl<'a> MappingList<'a> {
    /// Replaces the content of `out`.
    pub fn new(out: &'a mut Vec<Mapping>) -> Self {
        out.clear();
        Self { out }
    }

    /// Adds a line. The address space may change between two pieces of one read, so that a line can begin before the
    /// end of the last one: the part seen first wins.
    pub fn push(&mut self, range: AddrRange, kind: MappingKind, shared: bool, locked: bool, name: &[u8]) {
        let floor = self.out.last().map_or(0, |m| m.range.end);
        let range = AddrRange::new(range.start.max(floor), range.end);
        if range.is_empty() {
            return;
        }
        let name = display_name(name);
        match self.out.last_mut() {
            Some(last)
                if last.range.end == range.start
                    && last.kind == kind
                    && last.shared == shared
                    && last.locked == locked
                    && last.name == name =>
            {
                last.range.end = range.end;
            }
            _ => self.out.push(Mapping { range, kind, shared, locked, name: name.into_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind_of(line: &str) -> MappingKind {
        let filesystems = Filesystems::parse(
            b"26 22 0:24 / /run rw - tmpfs tmpfs rw\n31 22 0:30 / /mnt/huge rw - hugetlbfs none rw\n27 22 0:25 / /dev rw - tmpfs tmpfs rw\n",
        );
        MapsLine::parse(line.as_bytes()).unwrap_or_else(|| panic!("{line}")).kind(&filesystems)
    }

    #[test]
    fn a_line_is_taken_apart() {
        let line = MapsLine::parse(
            b"7f4091d57000-7f4091dae000 r--s 0000a000 fe:01 316526                     /usr/lib/a b (deleted)",
        );
        assert_eq!(
            line,
            Some(MapsLine {
                range: AddrRange::new(0x7f40_91d5_7000, 0x7f40_91da_e000),
                perms: *b"r--s",
                offset: 0xa000,
                device: (0xfe, 1),
                inode: 316_526,
                name: b"/usr/lib/a b (deleted)",
            })
        );
        let nameless = MapsLine::parse(b"7f4091d35000-7f4091d57000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((nameless.name, nameless.is_shared()), (&b""[..], false));
    }

    #[test]
    fn lines_of_another_form_are_refused() {
        for bad in [
            "",
            "-",
            "Size:                 12 kB",
            "1000-1000 rw-p 00000000 00:00 0",
            "2000-1000 rw-p 00000000 00:00 0",
            "1000-2000 rw-p 00000000 00:00",
            "1000-2000 rw-p 00000000 00:00 x",
            "1000-11112222333344445 rw-p 00000000 00:00 0",
            "1000-2000 rw",
        ] {
            assert_eq!(MapsLine::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn kinds_follow_names_and_devices() {
        use MappingKind::{Anon, File, Hugetlb, Shmem, Special};
        for (tail, kind) in [
            ("rw-p 00000000 00:00 0 ", Anon),
            ("rw-p 00000000 00:00 0                          [heap]", Anon),
            ("rw-p 00000000 00:00 0                          [stack]", Anon),
            ("rw-p 00000000 00:00 0                          [anon:my cache]", Anon),
            ("rw-s 00000000 00:01 9                          [anon_shmem:shared cache]", Shmem),
            ("r-xp 00000000 00:00 0                          [vdso]", Special),
            ("r--p 00000000 00:00 0                          [vvar_vclock]", Special),
            ("--xp 00000000 00:00 0                          [vsyscall]", Special),
            ("rw-s 00000000 00:0f 1029                       anon_inode:[perf_event]", Special),
            ("rw-s 00000000 00:10 7                          /[aio] (deleted)", Special),
            ("rw-s 00000000 00:06 7                          /dev/nvidia0", Special),
            ("rw-s 00000000 00:19 7                          /dev/mem", Special),
            ("rw-s 00000000 00:01 1055                       /dev/zero (deleted)", Shmem),
            ("rw-p 00000000 00:06 5                          /dev/zero", Anon),
            ("rw-s 00000000 00:18 2                          /dev/shm/buffer", Shmem),
            ("rw-s 00000000 00:01 4                          /memfd:jit (deleted)", Shmem),
            ("rw-s 00000000 00:01 98304                      /SYSV00000000 (deleted)", Shmem),
            ("rw-s 00000000 00:18 98304                      /run/lock file", Shmem),
            ("rw-s 00000000 00:1e 98304                      /mnt/huge/page", Hugetlb),
            ("rw-p 00000000 00:0e 98304                      /anon_hugepage (deleted)", Hugetlb),
            ("r-xp 00000000 fe:00 98304                      /usr/bin/redis-server", File),
            ("r-xp 00000000 fe:00 98304                      /srv/dev/zero", File),
        ] {
            assert_eq!(kind_of(&format!("7f4091d35000-7f4091d57000 {tail}")), kind, "{tail}");
        }
    }

    #[test]
    fn adjacent_lines_that_agree_are_one_mapping() {
        let mut out = vec![Mapping::anon(0, 4096)];
        let mut list = MappingList::new(&mut out);
        list.push(AddrRange::new(0x1000, 0x2000), MappingKind::File, false, false, b"/lib\\012x");
        list.push(AddrRange::new(0x2000, 0x3000), MappingKind::File, false, false, b"/lib\\012x");
        list.push(AddrRange::new(0x3000, 0x4000), MappingKind::File, false, true, b"/lib\\012x");
        list.push(AddrRange::new(0x5000, 0x6000), MappingKind::File, false, true, b"/lib\\012x");
        list.push(AddrRange::new(0x5800, 0x7000), MappingKind::Anon, false, false, b"");
        list.push(AddrRange::new(0x5000, 0x7000), MappingKind::Anon, false, false, b"");
        let ends: Vec<_> = out.iter().map(|m| (m.range.start, m.range.end)).collect();
        assert_eq!(ends, [(0x1000, 0x3000), (0x3000, 0x4000), (0x5000, 0x6000), (0x6000, 0x7000)]);
        assert_eq!(out[0].name, "/lib\\012x", "as the kernel writes a newline");
    }

    proptest! {
        #[test]
        fn no_line_panics(line in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Some(l) = MapsLine::parse(&line) {
                prop_assert!(!l.range.is_empty());
                l.kind(&Filesystems::default());
            }
        }

        #[test]
        fn printed_lines_come_back(
            start in 0u64..1 << 40, len in 1u64..1 << 30, inode in 0u64..1 << 50, name in "(/[a-z ]{1,20}[a-z])?",
        ) {
            let text = format!("{:x}-{:x} rw-p 0001f000 08:1a {inode} {name}", start, start + len);
            let line = MapsLine::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(line.range, AddrRange::new(start, start + len));
            prop_assert_eq!((line.device, line.inode), ((8, 0x1a), inode));
            prop_assert_eq!(line.name, name.as_bytes());
        }
    }
}
