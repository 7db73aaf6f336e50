//! A YCSB-like client for redis: `ycsb_client SOCKET RECORDS DISTRIBUTION [SEED]`.
//!
//! Stores RECORDS records of 1000 bytes, prints `ready`, and then does what each line on its input says: `run SECONDS
//! [RATE]` asks for records for so long, one at a time, 80 % reads and 20 % updates, and prints operations, seconds and
//! latencies as a JSON line. With a RATE, so many requests a second at most, evenly spaced; what is late does not wait,
//! and its time before it was sent does not count. Every value read must be the last one written. The end of the input
//! ends it. The same SEED asks for the same records.
#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use isotherm_bench_lru::keys::Keys;
use isotherm_bench_lru::latency::Latencies;
use isotherm_bench_schemes::random::{Random, mix};
use isotherm_bench_schemes::redis::Redis;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 1000;
/// Records stored with one write.
const LOAD_AT_ONCE: u64 = 1000;
const UPDATE_PERCENT: u64 = 20;
const SEED: u64 = 11;
/// What is compared of a value: it names key and version.
const CHECKED: usize = 48;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, records, distribution, seed @ ..] = &args[..] else {
        anyhow::bail!("usage: ycsb_client SOCKET RECORDS DISTRIBUTION [SEED]");
    };
    let seed: u64 = seed.first().map_or(Ok(SEED), |s| s.parse()).context("SEED")?;
    let records: u64 = records.parse().context("RECORDS")?;
    ensure!(records >= 2, "RECORDS must be 2 or more");
    let keys = Keys::named(distribution, records)?;
    let mut client = Client { redis: Redis::connect(socket)?, versions: vec![0; records as usize], filler: filler() };
    client.load(records)?;
    println!("ready");
    std::io::stdout().flush()?;
    let mut random = Random::new(seed);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (time, apart) = order(&line).with_context(|| format!("'{line}' is no command: run SECONDS [RATE]"))?;
        let (latencies, elapsed) = client.run(&keys, &mut random, time, apart)?;
        let us = |share| latencies.quantile(share) as f64 / 1000.0;
        println!(
            "{{\"operations\":{},\"seconds\":{},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{}}}",
            latencies.len(),
            elapsed.as_secs_f64(),
            us(0.5),
            us(0.99),
            us(0.999)
        );
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// What `run SECONDS [RATE]` asks for: for how long, and the time from one request to the next.
fn order(line: &str) -> Option<(Duration, Duration)> {
    let mut words = line.strip_prefix("run ")?.split_whitespace();
    let seconds = Duration::try_from_secs_f64(words.next()?.parse().ok()?).ok()?;
    let apart = match words.next() {
        Some(rate) => Duration::try_from_secs_f64(1.0 / rate.parse::<f64>().ok()?).ok()?,
        None => Duration::ZERO,
    };
    words.next().is_none().then_some((seconds, apart))
}

/// Bytes that compress about as well as text: half of them are random.
fn filler() -> Vec<u8> {
    let mut random = Random::new(5);
    (0..1u32 << 20).map(|i| if i.is_multiple_of(2) { random.below(64) as u8 + b'0' } else { b' ' }).collect()
}

struct Client {
    redis: Redis,
    versions: Vec<u32>,
    filler: Vec<u8>,
}

impl Client {
    fn load(&mut self, records: u64) -> anyhow::Result<()> {
        for first in (0..records).step_by(LOAD_AT_ONCE as usize) {
            let mut keys = first..records.min(first + LOAD_AT_ONCE);
            let mut commands = Vec::new();
            keys.clone().for_each(|key| self.set(key, 0, &mut commands));
            self.redis.send(&commands)?;
            keys.try_for_each(|_| self.redis.expect_ok())?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        keys: &Keys,
        random: &mut Random,
        time: Duration,
        apart: Duration,
    ) -> anyhow::Result<(Latencies, Duration)> {
        let (mut latencies, mut command, mut answer) = (Latencies::default(), Vec::new(), Vec::new());
        let begin = Instant::now();
        let (mut before, mut due) = (begin, begin);
        while before.duration_since(begin) < time {
            let key = keys.draw(random);
            command.clear();
            if random.below(100) < UPDATE_PERCENT {
                self.versions[key as usize] += 1;
                self.set(key, self.versions[key as usize], &mut command);
                self.redis.send(&command)?;
                self.redis.expect_ok()?;
            } else {
                write!(command, "*2\r\n$3\r\nGET\r\n$16\r\nuser{key:012}\r\n")?;
                self.redis.send(&command)?;
                self.redis.read_value(&mut answer)?;
                command.clear();
                self.value(key, self.versions[key as usize], &mut command);
                let same = answer.len() == VALUE_BYTES && answer[..CHECKED] == command[..CHECKED];
                ensure!(same, "user{key:012}: not the value that was written last");
            }
            let now = Instant::now();
            latencies.add(now.duration_since(before).as_nanos() as u64);
            before = now;
            if !apart.is_zero() {
                // After a long request the next ones are spaced from its end on, not sent all at once.
                due = (due + apart).max(now);
                std::thread::sleep(due.duration_since(now));
                before = Instant::now();
            }
        }
        Ok((latencies, begin.elapsed()))
    }

    fn set(&self, key: u64, version: u32, out: &mut Vec<u8>) {
        // Writing to a vector does not fail.
        let _ = write!(out, "*3\r\n$3\r\nSET\r\n$16\r\nuser{key:012}\r\n${VALUE_BYTES}\r\n");
        self.value(key, version, out);
        out.extend(b"\r\n");
    }

    /// What is stored: it begins with key and version, so that it cannot be taken for another one.
    fn value(&self, key: u64, version: u32, out: &mut Vec<u8>) {
        let end = out.len() + VALUE_BYTES;
        let _ = write!(out, "user{key:012} version={version:010} ");
        let rest = end - out.len();
        let at = mix(key ^ u64::from(version) << 40) as usize % (self.filler.len() - rest);
        out.extend(&self.filler[at..at + rest]);
    }
}

#[cfg(test)]
mod tests {
    use super::order;
    use std::time::Duration;

    #[test]
    fn orders_have_a_time_and_perhaps_a_rate() {
        assert_eq!(order("run 2.5"), Some((Duration::from_millis(2500), Duration::ZERO)));
        assert_eq!(order("run 60 1000"), Some((Duration::from_secs(60), Duration::from_millis(1))));
        for bad in ["", "run", "run x", "run -1", "run 1 0", "run 1 x", "run 1 2 3"] {
            assert_eq!(order(bad), None, "{bad}");
        }
    }
}
