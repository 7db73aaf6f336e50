//! The C programs of `docs/ebpf-program.md` against the assembled ones: compiled by clang where that is installed, they
//! find the same in the same page tables. Needs root.

use super::calibrate::calibrate;
use super::descriptors::{Descriptors, tests::frames_of_both_kinds};
use super::frames::Frames;
use super::walker::{Batch, Mapped, Span, TaskLink, Walker};
use crate::arena::{Arena, HugePages};
use crate::bpf::insn::Insn;
use crate::bpf::walk::{Built, KernelOffsets, LoopStyle, MapFds, Which};
use crate::proc::PidFd;
use crate::proc::ProcessDir;
use crate::proc::maps::mapped_ranges;
use crate::roots::Roots;
use crate::test_process::{Sleeper, wait_for};
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};
use std::process::{Command, Stdio};

const DOCUMENT: &str = include_str!("../../../../../docs/ebpf-program.md");

/// What the document leaves to a kernel's headers and to its reader.
const PRELUDE: &str = "
typedef unsigned long long u64;
typedef unsigned int u32;
#define NULL ((void *)0)
#define SEC(name) __attribute__((section(name), used))
#define barrier_var(x) asm volatile(\"\" : \"+r\"(x))
#define max(a, b) ((a) > (b) ? (a) : (b))
enum { NONE = 1, LEAF, TABLE, FAULT, BOUND };
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*bpf_loop)(u32 steps, void *step, void *context, u64 flags) = (void *)181;
#define AT(offset, type, name) struct { char before_##name[offset]; type name; } __attribute__((packed))
struct task_struct { union { AT(TGID, u32, tgid); AT(MM, u64, mm); AT(EXEC_ID, u32, self_exec_id); }; };
struct mm_struct { AT(PGD, u64, pgd); };
struct bpf_iter__task { void *meta; struct task_struct *task; };
";

/// The document's pieces put together. `None`: the program that reads descriptors.
fn source(which: Option<Which>) -> String {
    let blocks: Vec<&str> =
        DOCUMENT.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    let [common, walk, windows, copy, read] = blocks[..] else { panic!("five programs in C, not {}", blocks.len()) };
    let (types, main) = common.split_at(common.find("SEC(").expect("the program's section"));
    let step = match which {
        Some(Which::Windows) => windows,
        Some(Which::Copy) => copy,
        None => return [PRELUDE, read].concat(),
    };
    assert!(step.contains("\t/* walk */\n"));
    [PRELUDE, types, &step.replace("\t/* walk */\n", walk), main].concat()
}

/// Whether clang is here, and as what.
fn clang() -> Option<String> {
    let names = std::iter::once("clang".to_owned()).chain((11..30).rev().map(|version| format!("clang-{version}")));
    names.into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    })
}

/// Clang, and a calibrated walker with the helper that the document's programs need; says what is missing.
fn clang_and_walker() -> Option<(String, Walker)> {
    let Some(clang) = clang() else {
        eprintln!("skipped: clang is not installed");
        return None;
    };
    let mut walker = Walker::load_style(LoopStyle::Helper)
        .inspect_err(|e| eprintln!("skipped: the document's programs need bpf_loop: {e}"))
        .ok()?;
    calibrate(&mut walker).unwrap();
    Some((clang, walker))
}

fn compile(clang: &str, which: Option<Which>, k: KernelOffsets) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (c, o) = (folder.path().join("twin.c"), folder.path().join("twin.o"));
    std::fs::write(&c, source(which)).unwrap();
    let offsets = [("TGID", k.tgid), ("MM", k.mm), ("EXEC_ID", k.self_exec_id), ("PGD", k.pgd)];
    let done = Command::new(clang)
        .args(["-target", "bpf", "-O2", "-Wall", "-Werror", "-c", "-o"])
        .arg(&o)
        .args(offsets.map(|(name, value)| format!("-D{name}={value}")))
        .arg(&c)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read(o).unwrap()
}

/// The main function with the step function behind it, and the maps' descriptors in place of the variables.
fn link(object: &[u8], maps: MapFds) -> Built {
    const WIDE: u8 = 0x18;
    const PSEUDO_MAP_VALUE: u8 = 2;
    const PSEUDO_FUNC: u8 = 4;
    let file = object::File::parse(object).unwrap();
    let (main, text) = (file.section_by_name("iter/task").unwrap(), file.section_by_name(".text").unwrap());
    let decode = |section: &object::Section<'_, '_>| -> Vec<Insn> {
        let word = |b: &[u8]| Insn {
            op: b[0],
            regs: b[1],
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        };
        section.data().unwrap().chunks_exact(8).map(word).collect()
    };
    let mut insns = decode(&main);
    let step_at = insns.len();
    insns.extend(decode(&text));
    for (section, first) in [(&main, 0), (&text, step_at)] {
        for (offset, relocation) in section.relocations() {
            let at = first + offset as usize / 8;
            let RelocationTarget::Symbol(symbol) = relocation.target() else { panic!("{relocation:?}") };
            let symbol = file.symbol_by_index(symbol).unwrap();
            assert_eq!(insns[at].op, WIDE, "{symbol:?}");
            let register = insns[at].regs & 0xf;
            if symbol.kind() == SymbolKind::Section || symbol.kind() == SymbolKind::Text {
                // The step is the only function there.
                insns[at].regs = register | PSEUDO_FUNC << 4;
                insns[at].imm = step_at as i32 - at as i32 - 1;
                continue;
            }
            let map = match symbol.name().unwrap() {
                "control" => maps.ctrl,
                "data" => maps.data,
                other => panic!("{other} is not shared memory"),
            };
            insns[at].regs = register | PSEUDO_MAP_VALUE << 4;
            insns[at + 1].imm = insns[at].imm;
            insns[at].imm = map;
        }
    }
    Built { insns, step_at: step_at as u32 }
}

/// All tables of a process, as whoever copies them sees them.
fn copied(walker: &mut Walker, link: &TaskLink) -> Vec<(u64, Mapped, Vec<u64>)> {
    let everything = [AddrRange::new(0, 1 << 40), AddrRange::new(1 << 40, 1 << 47)];
    let (mut cursor, mut first, mut all) = (0, 0, Vec::new());
    while first < everything.len() {
        let (progress, batch) = walker.copy_tables(link, &everything[first..], cursor).unwrap();
        assert!(matches!(batch, Batch::Done(_)), "{batch:?}");
        all.extend(walker.records().map(|r| (r.addr, r.mapped, r.table.to_vec())));
        (cursor, first) = (progress.cursor, first + progress.ranges_done);
    }
    all
}

/// Windows at both ends of every mapping, beside them, and nowhere.
fn windows(walker: &mut Walker, link: &TaskLink, mappings: &[AddrRange]) -> Vec<(Mapped, Vec<u64>)> {
    let ends = mappings.iter().flat_map(|m| [m.start, m.end - PAGE_SIZE, m.start.saturating_sub(PAGE_SIZE), m.end]);
    let spans: Vec<Span> = ends
        .filter(|start| *start < 1 << 47)
        .chain([0, 1 << 30, 1 << 46, (1 << 47) - PAGE_SIZE])
        .enumerate()
        .map(|(i, start)| Span { start, pages: 1 + (i * 37 % 512) as u16 })
        .collect();
    let (mut at, mut all) = (0, Vec::new());
    while at < spans.len() {
        let (served, batch) = walker.read_spans(link, &spans[at..]).unwrap();
        assert!(matches!(batch, Batch::Done(_)), "{batch:?}");
        all.extend((0..served).map(|i| (walker.span(i).mapped, walker.span(i).entries.to_vec())));
        at += served;
    }
    all
}

#[test]
fn root_the_documented_programs_do_what_the_assembled_ones_do() {
    let Some((clang, mut assembled)) = clang_and_walker() else { return };
    let mut documented =
        Walker::built_by(LoopStyle::Helper, |which, k, maps| Ok(link(&compile(&clang, Some(which), k), maps))).unwrap();
    documented.set_layout(assembled.layout());

    // Somebody who stands still, and ourselves, who have huge pages.
    let sleeper = Sleeper::new();
    PidFd::open(sleeper.pid()).unwrap().send_signal(crate::proc::Signal::STOP).unwrap();
    wait_for("the stop", || crate::lru::freeze::is_stopped(sleeper.pid()));
    let mappings = mapped_ranges(&ProcessDir::live(sleeper.pid())).unwrap();
    let mut seen = Vec::new();
    for walker in [&mut assembled, &mut documented] {
        let link = walker.attach(sleeper.pid());
        seen.push((copied(walker, &link), windows(walker, &link, &mappings)));
    }
    let tables = seen[0].0.iter().filter(|(_, mapped, _)| *mapped == Mapped::Table).count();
    assert!(tables > 1 && seen[0].1.len() > 40, "{tables} tables");
    assert_eq!(seen[0], seen[1]);

    let mut arena = Arena::new(8 << 20, HugePages::Yes).unwrap();
    arena.touch(&[0, 512, 1024]);
    let mut seen = Vec::new();
    for walker in [&mut assembled, &mut documented] {
        let link = walker.attach(std::process::id());
        walker.copy_tables(&link, &[arena.range()], 0).unwrap();
        let kinds: Vec<_> = walker.records().map(|r| (r.addr, std::mem::discriminant(&r.mapped))).collect();
        seen.push(kinds);
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn root_the_documented_reader_does_what_the_assembled_one_does() {
    let Some((clang, mut walker)) = clang_and_walker() else { return };
    let flags = Frames::open(&Roots::system()).unwrap();
    let types = walker.descriptor_types().unwrap();
    let mut assembled = Descriptors::find(&mut walker, |frames| flags.large_by_flags(frames)).unwrap();
    let offsets = KernelOffsets { tgid: 0, mm: 0, self_exec_id: 0, pgd: 0 };
    let mut documented = Descriptors::built_by(LoopStyle::Helper, types, |control| {
        Ok(link(&compile(&clang, None, offsets), MapFds { ctrl: control, data: control }))
    })
    .unwrap();
    documented.begin_at(&assembled);
    let (_ours, of_ours) = frames_of_both_kinds(&mut walker);
    let frames: Vec<u64> = (0..3000).map(|i| i * 101).chain(of_ours).collect();
    let (a, b) = (assembled.large(&frames).unwrap(), documented.large(&frames).unwrap());
    let differ = a.iter().zip(&b).filter(|(a, b)| a != b).count();
    assert!(a.contains(&true) && a.contains(&false) && differ < 30, "{differ} differ");
}
