//! Type information: reads the few offsets needed from the running kernel's BTF, and writes the tiny blob that a
//! program with a callback must bring along.
//!
//! Format: "BPF Type Format (BTF)" in the kernel's documentation.

use super::blob::Blob;
use memchr::memmem;
use std::ops::Range;
use std::path::{Path, PathBuf};

const MAGIC: u16 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
/// Unnamed structs inside each other; the kernel has at most a few.
const MAX_NESTING: u32 = 8;

/// Why the kernel's types cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file is missing or unreadable.
    #[error("cannot read {path}: {source}; the kernel must be built with CONFIG_DEBUG_INFO_BTF=y")]
    Read {
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not BTF, cut off, or of an unknown kind.
    #[error("the kernel's type information is malformed at byte {0}")]
    Malformed(usize),
    /// A name that every supported kernel should have.
    #[error("the kernel's type information does not contain {0}; this kernel is not supported")]
    Missing(String),
}

/// Parsed type information of a kernel.
#[derive(Debug)]
pub(crate) struct Btf {
    blob: Blob,
    types: Range<usize>,
    strings: Range<usize>,
    /// Byte offset in `types` of each type; index 0 is type id 1.
    offsets: Vec<u32>,
}

/// The fixed first words of a type.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u32,
    vlen: u32,
    bitfield_offsets: bool,
    /// Where the kind's own data starts.
    data: usize,
}

/// A struct of the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Struct<'a> {
    btf: &'a Btf,
    name: &'a str,
    header: Header,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// The same, as an error where it ends before.
fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    u32_at(bytes, at).ok_or(BtfError::Malformed(at))
}

impl Btf {
    /// Reads the running kernel's types.
    pub fn kernel() -> Result<Self, BtfError> {
        Self::read(Path::new("/sys/kernel/btf/vmlinux"))
    }

    /// Reads the types in file `path`.
    pub fn read(path: &Path) -> Result<Self, BtfError> {
        Self::of(Blob::open(path).map_err(|source| BtfError::Read { path: path.to_owned(), source })?)
    }

    #[cfg(test)]
    pub fn parse(blob: Vec<u8>) -> Result<Self, BtfError> {
        Self::of(Blob::Read(blob))
    }

    fn of(blob: Blob) -> Result<Self, BtfError> {
        if blob.first_chunk() != Some(&MAGIC.to_le_bytes()) {
            return Err(BtfError::Malformed(0));
        }
        let header_len = word(&blob, 4)? as usize;
        let section = |at: usize| -> Result<Range<usize>, BtfError> {
            let (offset, len) = (word(&blob, at)? as usize, word(&blob, at + 4)? as usize);
            let start = header_len.checked_add(offset).ok_or(BtfError::Malformed(at))?;
            let end = start.checked_add(len).ok_or(BtfError::Malformed(at))?;
            blob.get(start..end).map(|_| start..end).ok_or(BtfError::Malformed(at))
        };
        let (types, strings) = (section(8)?, section(16)?);
        let offsets = offsets(&blob[types.clone()]).map_err(BtfError::Malformed)?;
        Ok(Self { blob, types, strings, offsets })
    }

    fn types(&self) -> &[u8] {
        &self.blob[self.types.clone()]
    }

    fn strings(&self) -> &[u8] {
        &self.blob[self.strings.clone()]
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        self.strings()
            .get(offset as usize..)
            .and_then(|s| s.strip_prefix(name.as_bytes()))
            .is_some_and(|s| s.first() == Some(&0))
    }

    /// The first type of this kind and name, with its id.
    fn find(&self, kind: u32, name: &str) -> Result<(u32, Header), BtfError> {
        // Where a type's name begins is compared, not each name: those lie all over some MiB.
        let ended = [name.as_bytes(), &[0]].concat();
        let names: Vec<u32> = memmem::find_iter(self.strings(), &ended).map(|at| at as u32).collect();
        let types = self.types();
        let is_it = |at: usize| {
            u32_at(types, at).is_some_and(|name| names.contains(&name))
                && header(types, at).is_some_and(|h| h.kind == kind)
        };
        let found = self.offsets.iter().position(|&at| is_it(at as usize));
        let id = found.ok_or_else(|| BtfError::Missing(name.to_owned()))?;
        let at = self.offsets[id] as usize;
        Ok((id as u32 + 1, header(types, at).ok_or(BtfError::Malformed(at))?))
    }

    /// Type id of the kernel function `name`.
    pub(crate) fn func_id(&self, name: &str) -> Result<u32, BtfError> {
        Ok(self.find(KIND_FUNC, name)?.0)
    }

    /// `struct name`.
    pub(crate) fn structure<'a>(&'a self, name: &'a str) -> Result<Struct<'a>, BtfError> {
        Ok(Struct { btf: self, name, header: self.find(KIND_STRUCT, name)?.1 })
    }

    /// The value of one of the names in `enum name`.
    pub(crate) fn enum_value(&self, name: &str, value: &str) -> Result<u32, BtfError> {
        let (_, h) = self.find(KIND_ENUM, name)?;
        for at in (h.data..).step_by(8).take(h.vlen as usize) {
            if self.is_named(word(self.types(), at)?, value) {
                return word(self.types(), at + 4);
            }
        }
        Err(BtfError::Missing(format!("{name}.{value}")))
    }

    fn member_bits(&self, h: Header, member: &str, depth: u32) -> Result<Option<u32>, BtfError> {
        if depth > MAX_NESTING {
            return Ok(None);
        }
        for m in 0..h.vlen as usize {
            let at = h.data + m * 12;
            let (name, ty, raw) = (word(self.types(), at)?, word(self.types(), at + 4)?, word(self.types(), at + 8)?);
            let bits = if h.bitfield_offsets { raw & 0xff_ffff } else { raw };
            if self.is_named(name, member) {
                return Ok(Some(bits));
            }
            if !self.is_named(name, "") {
                continue;
            }
            let inner = self.offsets.get((ty as usize).wrapping_sub(1)).ok_or(BtfError::Malformed(at))?;
            let inner = header(self.types(), *inner as usize).ok_or(BtfError::Malformed(at))?;
            if matches!(inner.kind, KIND_STRUCT | KIND_UNION)
                && let Some(more) = self.member_bits(inner, member, depth + 1)?
            {
                return Ok(Some(bits + more));
            }
        }
        Ok(None)
    }
}

impl Struct<'_> {
    /// Offset in bytes of `member`, also if it is inside unnamed structs or unions.
    pub(crate) fn offset(&self, member: &str) -> Result<u32, BtfError> {
        let bits = self.btf.member_bits(self.header, member, 0)?;
        bits.map(|b| b / 8).ok_or_else(|| BtfError::Missing(format!("{}.{member}", self.name)))
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> Result<u32, BtfError> {
        word(self.btf.types(), self.header.data - 4)
    }
}

fn header(types: &[u8], at: usize) -> Option<Header> {
    let info = u32_at(types, at + 4)?;
    Some(Header { kind: info >> 24 & 0x1f, vlen: info & 0xffff, bitfield_offsets: info >> 31 == 1, data: at + 12 })
}

/// Where each type begins; else where one does that is cut off or of an unknown kind.
fn offsets(types: &[u8]) -> Result<Vec<u32>, usize> {
    // A kernel's take 25 bytes on average.
    let (mut offsets, mut at) = (Vec::with_capacity(types.len() / 20), 0);
    while at < types.len() {
        offsets.push(at as u32);
        let next = header(types, at).and_then(|h| Some(h.data + payload_len(h.kind, h.vlen)?));
        at = next.filter(|next| *next <= types.len()).ok_or(at)?;
    }
    Ok(offsets)
}

/// Bytes that follow the three header words of a type; `None` for a kind this does not know.
fn payload_len(kind: u32, vlen: u32) -> Option<usize> {
    let n = vlen as usize;
    Some(match kind {
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => 4,
        // ARRAY
        3 => 12,
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => 12 * n,
        // ENUM, FUNC_PROTO
        6 | 13 => 8 * n,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

/// Type ids in [`two_functions`].
pub(crate) const MAIN_FUNC: u32 = 3;
/// Type ids in [`two_functions`].
pub(crate) const CALLBACK_FUNC: u32 = 4;

/// A blob that declares two static functions `main` and `step`, both `int f()`: what the verifier wants to know before
/// it accepts a callback.
pub(crate) fn two_functions() -> Vec<u8> {
    const STRINGS: &[u8] = b"\0int\0main\0step\0";
    let types: [u32; 13] = [
        // 1: int, signed, 32 bits
        1,
        KIND_INT << 24,
        4,
        1 << 24 | 32, //
        // 2: int (void)
        0,
        KIND_FUNC_PROTO << 24,
        1, //
        // 3: main, 4: step
        5,
        KIND_FUNC << 24,
        2, //
        10,
        KIND_FUNC << 24,
        2,
    ];
    let mut blob = Vec::new();
    blob.extend(MAGIC.to_le_bytes());
    blob.extend([1, 0]);
    for word in [24, 0, size_of_val(&types) as u32, size_of_val(&types) as u32, STRINGS.len() as u32] {
        blob.extend(word.to_le_bytes());
    }
    types.iter().for_each(|t| blob.extend(t.to_le_bytes()));
    blob.extend(STRINGS);
    blob
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `struct outer { int a; struct { union { int pad; int deep:24; }; int b; }; }` and one function.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0outer\0a\0deep\0b\0f\0pad\0flags\0low\0high\0";
        let at = |s: &str| {
            let s: Vec<u8> = [&[0u8][..], s.as_bytes(), &[0]].concat();
            strings.windows(s.len()).position(|w| w == s).unwrap() as u32 + 1
        };
        let types: Vec<u32> = vec![
            // 1 int
            at("int"),
            1 << 24,
            4,
            1 << 24 | 32, //
            // 2 union { int pad; int deep; } with bit-field offsets (kind flag)
            0,
            1 << 31 | 5 << 24 | 2,
            4,
            at("pad"),
            1,
            0,
            at("deep"),
            1,
            24 << 24, //
            // 3 struct { union; int b; }
            0,
            4 << 24 | 2,
            8,
            0,
            2,
            0,
            at("b"),
            1,
            32, //
            // 4 struct outer { int a; struct 3; }
            at("outer"),
            4 << 24 | 2,
            12,
            at("a"),
            1,
            0,
            0,
            3,
            32, //
            // 5 int ()
            0,
            13 << 24,
            1, //
            // 6 f
            at("f"),
            12 << 24,
            5, //
            // 7 enum flags { low, high = 6 }
            at("flags"),
            6 << 24 | 2,
            4,
            at("low"),
            0,
            at("high"),
            6,
        ];
        let mut b = vec![0x9f, 0xeb, 1, 0];
        let len = (types.len() * 4) as u32;
        for w in [24, 0, len, len, strings.len() as u32] {
            b.extend(w.to_le_bytes());
        }
        types.iter().for_each(|t| b.extend(t.to_le_bytes()));
        b.extend(strings);
        b
    }

    #[test]
    fn offsets_through_unnamed_members() {
        let btf = Btf::parse(sample()).unwrap();
        let outer = btf.structure("outer").unwrap();
        assert_eq!(outer.offset("a").unwrap(), 0);
        assert_eq!(outer.offset("deep").unwrap(), 4);
        assert_eq!(outer.offset("b").unwrap(), 8);
        assert_eq!(btf.func_id("f").unwrap(), 6);
        assert!(matches!(outer.offset("dee"), Err(BtfError::Missing(n)) if n == "outer.dee"));
        assert!(matches!(btf.func_id("outer"), Err(BtfError::Missing(_))));
        assert_eq!(outer.size().unwrap(), 12);
        assert_eq!(btf.enum_value("flags", "high").unwrap(), 6);
        assert!(matches!(btf.enum_value("flags", "hig"), Err(BtfError::Missing(n)) if n == "flags.hig"));
    }

    #[test]
    fn own_blob_is_valid() {
        let btf = Btf::parse(two_functions()).unwrap();
        assert_eq!(btf.func_id("main").unwrap(), MAIN_FUNC);
        assert_eq!(btf.func_id("step").unwrap(), CALLBACK_FUNC);
    }

    #[test]
    fn a_name_may_lie_at_the_end_of_another() {
        let mut blob = two_functions();
        // The name of the second function, behind ten words of types: "in" of "main".
        blob[24 + 40..][..4].copy_from_slice(&7u32.to_le_bytes());
        let btf = Btf::parse(blob).unwrap();
        assert_eq!((btf.func_id("main").unwrap(), btf.func_id("in").unwrap()), (MAIN_FUNC, CALLBACK_FUNC));
        assert!(matches!(btf.func_id("step"), Err(BtfError::Missing(_))), "it is a string, but nothing's name");
    }

    #[test]
    fn missing_file_names_the_kernel_option() {
        let e = Btf::read(Path::new("/nonexistent/btf")).unwrap_err();
        assert!(e.to_string().contains("CONFIG_DEBUG_INFO_BTF"), "{e}");
    }

    proptest! {
        #[test]
        fn damaged_blobs_never_panic(cut in 0usize..200, flips in prop::collection::vec((0usize..200, any::<u8>()), 0..8)) {
            let mut b = sample();
            for (at, v) in flips {
                if let Some(x) = b.get_mut(at) {
                    *x ^= v;
                }
            }
            b.truncate(b.len().min(cut.max(1)));
            if let Ok(btf) = Btf::parse(b) {
                let _ = btf.structure("outer").and_then(|outer| outer.offset("b"));
                let _ = btf.func_id("f");
                let _ = btf.enum_value("flags", "high");
            }
        }
    }
}
