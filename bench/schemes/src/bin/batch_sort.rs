//! A batch job: `batch_sort BATCHES BATCH_MIB KEYS`.
//!
//! All batches of 16-byte records are in memory from the start and stay there. Each in turn is sorted by KEYS different
//! keys with a merge sort between two work areas. So the work areas and one batch are hot, all the other batches are
//! cold, and a cold batch is needed again when its turn comes. Each order is checked against the records, and at the
//! end every batch against the sum taken when it was made.
#![forbid(unsafe_code)]

use isotherm_bench_schemes::random::{Random, mix};
use isotherm_bench_schemes::{finish, numbers, wait_for_start};
use std::hint::black_box;

/// A record: what it is sorted by is derived from `id`; `payload` is what a real record would carry along.
#[derive(Clone, Copy)]
struct Record {
    id: u64,
    payload: u64,
}

/// What the work areas hold: the key, and where the record lies.
#[derive(Clone, Copy, Default)]
struct Entry {
    key: u32,
    index: u32,
}

fn main() -> anyhow::Result<()> {
    let [batches, batch_mib, keys] = numbers("batch_sort BATCHES BATCH_MIB KEYS")?;
    let records = (batch_mib << 20) as usize / size_of::<Record>();
    let mut random = Random::new(7);
    let batches: Vec<Vec<Record>> = (0..batches)
        .map(|_| (0..records).map(|_| Record { id: random.next() >> 24, payload: random.next() >> 40 }).collect())
        .collect();
    let sums: Vec<u64> = batches.iter().map(|b| sum(b)).collect();
    // Not zeros, which would be left to the kernel's zero page.
    let mut work = black_box(vec![Entry { key: 1, index: 1 }; records]);
    let mut spare = black_box(work.clone());

    let begin = wait_for_start()?;
    for (number, batch) in batches.iter().enumerate() {
        for key in 0..keys {
            for (index, (entry, record)) in work.iter_mut().zip(batch).enumerate() {
                *entry = Entry { key: key_of(record, key), index: index as u32 };
            }
            merge_sort(&mut work, &mut spare);
            check(&work, batch, key, number)?;
        }
    }
    for (number, (batch, &expected)) in batches.iter().zip(&sums).enumerate() {
        anyhow::ensure!(sum(batch) == expected, "batch {number} is not what it was");
    }
    finish(begin)
}

/// The key number `key` of a record.
fn key_of(record: &Record, key: u64) -> u32 {
    mix(record.id ^ key) as u32
}

fn sum(batch: &[Record]) -> u64 {
    batch.iter().fold(0, |sum, r| sum.rotate_left(1) ^ r.id ^ r.payload.rotate_left(32))
}

/// Bottom-up; the result is in `work`.
fn merge_sort(work: &mut Vec<Entry>, spare: &mut Vec<Entry>) {
    let mut run = 1;
    while run < work.len() {
        for (from, to) in work.chunks(2 * run).zip(spare.chunks_mut(2 * run)) {
            let (left, right) = from.split_at(run.min(from.len()));
            merge(left, right, to);
        }
        std::mem::swap(work, spare);
        run *= 2;
    }
}

fn merge(left: &[Entry], right: &[Entry], to: &mut [Entry]) {
    let (mut l, mut r) = (0, 0);
    for out in to {
        let from_left = r == right.len() || (l < left.len() && left[l].key <= right[r].key);
        *out = if from_left { left[l] } else { right[r] };
        l += usize::from(from_left);
        r += usize::from(!from_left);
    }
}

/// The order is right: keys ascend and belong to their records, and no record is missing or there twice.
fn check(order: &[Entry], batch: &[Record], key: u64, number: usize) -> anyhow::Result<()> {
    let mut found = 0u64;
    for (i, entry) in order.iter().enumerate() {
        anyhow::ensure!(i == 0 || order[i - 1].key <= entry.key, "batch {number}, key {key}: not sorted at {i}");
        let right = batch.get(entry.index as usize).is_some_and(|r| key_of(r, key) == entry.key);
        anyhow::ensure!(right, "batch {number}, key {key}: a wrong record at {i}");
        found = found.wrapping_add(mix(u64::from(entry.index)));
    }
    let all = (0..batch.len() as u64).fold(0u64, |sum, i| sum.wrapping_add(mix(i)));
    anyhow::ensure!(found == all, "batch {number}, key {key}: records are missing");
    Ok(())
}
