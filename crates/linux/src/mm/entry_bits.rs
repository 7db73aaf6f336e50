//! Collects bits of page table entries, 16 at a time.

use std::arch::x86_64::*;

/// Present (bit 0, or bit 8: mapped without access rights; without bit 9: not memory that counts as the process's) and accessed (bit 5, of
/// present ones) bits of 16 entries; bit `i` of the results belongs to entry `i`.
pub(crate) fn present_and_accessed(entries: &[u64; 16]) -> (u16, u16) {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { collect(entries) }
}

#[target_feature(enable = "sse2")]
fn collect(e: &[u64; 16]) -> (u16, u16) {
    // The low 10 bits of four entries, 32 bits each.
    let four = |i: usize| {
        let low = _mm_castsi128_ps(_mm_set_epi64x(e[i + 1] as i64, e[i] as i64));
        let high = _mm_castsi128_ps(_mm_set_epi64x(e[i + 3] as i64, e[i + 2] as i64));
        _mm_and_si128(_mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(low, high)), _mm_set1_epi32(0x3ff))
    };
    let eight = [_mm_packs_epi32(four(0), four(4)), _mm_packs_epi32(four(8), four(12))];
    let one = _mm_set1_epi16(1);
    // One bit of each entry, moved to bit 0 of a byte, then to its top, from where it can be collected.
    let top_bits = |bits: [__m128i; 2]| {
        let bytes = _mm_packus_epi16(_mm_and_si128(bits[0], one), _mm_and_si128(bits[1], one));
        _mm_movemask_epi8(_mm_slli_epi16::<7>(bytes)) as u16
    };
    let present =
        top_bits(eight.map(|v| _mm_andnot_si128(_mm_srli_epi16::<9>(v), _mm_or_si128(v, _mm_srli_epi16::<8>(v)))));
    let accessed = top_bits(eight.map(|v| _mm_srli_epi16::<5>(v)));
    (present, accessed & present)
}
