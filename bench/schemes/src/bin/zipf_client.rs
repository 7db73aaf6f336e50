//! A YCSB-like client for redis: `zipf_client SOCKET RECORDS REQUESTS WORK_US`.
//!
//! Stores RECORDS records of about 1000 bytes of words, then asks for REQUESTS of them, one at a time, with YCSB's
//! scrambled Zipfian distribution and the mix of its workload B: 95 % reads, 5 % updates. Every value read is compared
//! with the last one written. Between two requests it computes for WORK_US microseconds, as a program that uses the
//! data would.
#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use isotherm_bench_schemes::random::{Random, mix};
use isotherm_bench_schemes::redis::Redis;
use isotherm_bench_schemes::zipf::Zipf;
use isotherm_bench_schemes::{finish, wait_for_start};
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 1000;
/// Records stored with one write.
const LOAD_AT_ONCE: u64 = 1000;
const UPDATE_PERCENT: u64 = 5;
const WORDS: [&str; 16] = [
    "amber", "birch", "copper", "dune", "ember", "fjord", "granite", "harbour", "indigo", "juniper", "kelp", "lagoon",
    "meadow", "nimbus", "opal", "prairie",
];

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, records, requests, work_us] = &args[..] else {
        anyhow::bail!("usage: zipf_client SOCKET RECORDS REQUESTS WORK_US");
    };
    let records: u64 = records.parse().context("RECORDS")?;
    let requests: u64 = requests.parse().context("REQUESTS")?;
    let work = Duration::from_micros(work_us.parse().context("WORK_US")?);
    ensure!(records >= 2, "RECORDS must be 2 or more");
    let mut redis = Redis::connect(socket)?;
    let mut versions = vec![0u32; records as usize];
    for first in (0..records).step_by(LOAD_AT_ONCE as usize) {
        let mut keys = first..records.min(first + LOAD_AT_ONCE);
        let commands: Vec<u8> = keys.clone().flat_map(|key| set(key, 0)).collect();
        redis.send(&commands)?;
        keys.try_for_each(|_| redis.expect_ok())?;
    }
    let zipf = Zipf::new(records);
    let mut random = Random::new(11);
    let mut answer = Vec::new();

    let begin = wait_for_start()?;
    for _ in 0..requests {
        let key = zipf.key(&mut random);
        let version = &mut versions[key as usize];
        if random.below(100) < UPDATE_PERCENT {
            *version += 1;
            redis.send(&set(key, *version))?;
            redis.expect_ok()?;
        } else {
            redis.send(format!("*2\r\n$3\r\nGET\r\n$16\r\n{}\r\n", name(key)).as_bytes())?;
            redis.read_value(&mut answer)?;
            ensure!(answer == value(key, *version), "{}: not the value that was written last", name(key));
        }
        let answered = Instant::now();
        while answered.elapsed() < work {
            std::hint::spin_loop();
        }
    }
    finish(begin)
}

fn name(key: u64) -> String {
    format!("user{key:012}")
}

fn set(key: u64, version: u32) -> Vec<u8> {
    let mut command = format!("*3\r\n$3\r\nSET\r\n$16\r\n{}\r\n${VALUE_BYTES}\r\n", name(key)).into_bytes();
    command.extend(value(key, version));
    command.extend(b"\r\n");
    command
}

/// What is stored: words that depend on key and version, so that the value cannot be taken for another one.
fn value(key: u64, version: u32) -> Vec<u8> {
    let mut value = format!("user{key:012} version={version}").into_bytes();
    let mut random = Random::new(mix(key) ^ u64::from(version));
    while value.len() < VALUE_BYTES {
        let mut bits = random.next();
        for _ in 0..16 {
            value.push(b' ');
            value.extend(WORDS[(bits & 15) as usize].as_bytes());
            bits >>= 4;
        }
    }
    value.truncate(VALUE_BYTES);
    value
}
