//! What runs in a guest while its memory is hinted: programs that know what they wrote, and one that means ill.
//!
//! ```text
//! guest_load hog MIB                  write to so much memory, then end
//! guest_load hold MIB                 write, say "ready", wait for a line, check, say "intact"
//! guest_load churn MIB SECONDS SEED   allocate, write, check and free up to so much at a time, say "intact ROUNDS"
//! guest_load map MIB SECONDS          map so much at once, again and again, and write to none of it; say how often, and end at a refusal
//! guest_load scale MIB SECONDS PROCS  processes that map, write to and unmap so much again and again; say the rounds
//! guest_load stream MIB SECONDS MS    copy so much again and again, check; say the median of MiB a second in times of MS, and the
//!                                     rate of which a hundredth of them stayed below
//! guest_load net SECONDS               send over TCP to itself; say the MiB a second
//! guest_load hostile DEVICE SECONDS   send a host reports that it must refuse, as fast as it goes
//! ```
//!
//! What is not as it was written ends the program with status 1 and a line that begins with `CORRUPT`.
#![forbid(unsafe_code)]

use isotherm_core::addr::AddrRange;
use isotherm_hint::protocol::{Decoder, Hello, MemoryArea, MemoryKind, Message, VERSION};
use isotherm_linux::guestmem::MemoryMap;
use isotherm_linux::roots::Roots;
use std::fs::OpenOptions;
use std::io::{self, BufRead, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const WORDS_A_PAGE: usize = 512;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|text| text.parse::<u64>().ok());
    let done = match (args.first().map(String::as_str), number(1), number(2), number(3)) {
        (Some("hog"), Some(mib), None, _) => hog(mib),
        (Some("hold"), Some(mib), None, _) => hold(mib),
        (Some("churn"), Some(mib), Some(seconds), Some(seed)) => churn(mib, seconds, seed),
        (Some("map"), Some(mib), Some(seconds), None) => map(mib, seconds),
        (Some("scale"), Some(mib), Some(seconds), Some(procs)) => scale(mib, seconds, procs),
        (Some("scale-one"), Some(mib), Some(seconds), None) => scale_one(mib, seconds),
        (Some("stream"), Some(mib), Some(seconds), Some(ms)) => stream(mib, seconds, ms),
        (Some("net"), Some(seconds), None, _) => net(seconds),
        (Some("hostile"), None, Some(seconds), _) => hostile(&args[1], seconds),
        _ => {
            eprintln!("guest_load: see the top of its source for its arguments");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            println!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// Memory whose content follows from a seed.
struct Patch {
    words: Vec<u64>,
    seed: u64,
}

impl Patch {
    fn new(bytes: usize, seed: u64) -> Self {
        let mut words = vec![0u64; bytes / 8];
        for (page, chunk) in words.chunks_mut(WORDS_A_PAGE).enumerate() {
            // Not every word: emulation is slow, and what is dropped is dropped by the page. First, last and one in 64.
            for i in Self::places(chunk.len()) {
                chunk[i] = word(seed, page, i);
            }
        }
        Self { words, seed }
    }

    fn check(&self) -> Result<(), String> {
        for (page, chunk) in self.words.chunks(WORDS_A_PAGE).enumerate() {
            for i in Self::places(chunk.len()) {
                if chunk[i] != word(self.seed, page, i) {
                    return Err(format!(
                        "CORRUPT page {page} of {} word {i}: {:#x} instead of {:#x}",
                        self.words.len() / WORDS_A_PAGE,
                        chunk[i],
                        word(self.seed, page, i)
                    ));
                }
            }
        }
        Ok(())
    }

    fn places(len: usize) -> impl Iterator<Item = usize> {
        (0..len).step_by(64).chain(len.checked_sub(1))
    }
}

/// Never zero, which is what dropped memory reads as.
fn word(seed: u64, page: usize, i: usize) -> u64 {
    let mut x = seed ^ ((page as u64) << 20) ^ i as u64 ^ 0x9e37_79b9_7f4a_7c15;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) | 1
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn hog(mib: u64) -> Result<String, String> {
    let begin = Instant::now();
    let patch = Patch::new(mib as usize * MIB, 1);
    patch.check()?;
    Ok(format!("hog {} ms", begin.elapsed().as_millis()))
}

fn hold(mib: u64) -> Result<String, String> {
    let patch = Patch::new(mib as usize * MIB, 2);
    println!("ready");
    // The end of input counts as a line.
    let _ = io::stdin().lock().read_line(&mut String::new());
    patch.check()?;
    Ok("intact".into())
}

fn churn(mib: u64, seconds: u64, seed: u64) -> Result<String, String> {
    let most = mib as usize * MIB;
    let (mut state, mut rounds, mut held) = (seed | 1, 0u64, 0usize);
    let mut patches: Vec<Patch> = Vec::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        // Pieces from 64 KiB to 16 MiB: huge pages and small ones.
        let size = (64 << 10) << (next(&mut state) % 9);
        while held + size > most && !patches.is_empty() {
            let patch = patches.swap_remove(next(&mut state) as usize % patches.len());
            patch.check()?;
            held -= patch.words.len() * 8;
        }
        held += size;
        patches.push(Patch::new(size, next(&mut state)));
        rounds += 1;
    }
    patches.iter().try_for_each(Patch::check)?;
    Ok(format!("intact {rounds}"))
}

/// A program that reserves nearly all memory at once, as some do when they start.
fn map(mib: u64, seconds: u64) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut times = 0u64;
    while Instant::now() < end {
        let mut memory: Vec<u8> = Vec::new();
        memory.try_reserve_exact(mib as usize * MIB).map_err(|e| format!("refused after {times} times: {e}"))?;
        std::hint::black_box(&memory);
        times += 1;
    }
    Ok(format!("mapped {times} times"))
}

/// Like page_fault1 of will-it-scale: processes that do nothing but fault pages in and give them back.
fn scale(mib: u64, seconds: u64, procs: u64) -> Result<String, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let spawn = |_| {
        let args = ["scale-one".to_owned(), mib.to_string(), seconds.to_string()];
        Command::new(&me).args(args).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())
    };
    let children = (0..procs).map(spawn).collect::<Result<Vec<_>, _>>()?;
    let mut rounds = 0u64;
    for child in children {
        let out = child.wait_with_output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        rounds += text.parse::<u64>().map_err(|_| format!("a process said '{text}'"))?;
    }
    Ok(rounds.to_string())
}

fn scale_one(mib: u64, seconds: u64) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0u64;
    while Instant::now() < end {
        let mut memory = vec![0u8; mib as usize * MIB];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        rounds += std::hint::black_box(&memory).len() as u64 / 4096;
    }
    Ok(rounds.to_string())
}

/// A program bound by memory, in quanta of time: how slow it becomes for moments.
fn stream(mib: u64, seconds: u64, ms: u64) -> Result<String, String> {
    const PIECE: usize = 16 << 10;
    let source = Patch::new(mib as usize * MIB / 2, 3);
    let mut copy = Patch { words: vec![0; source.words.len()], seed: source.seed };
    let quantum = Duration::from_millis(ms.max(1));
    let mut rates: Vec<f64> = Vec::new();
    let begin = Instant::now();
    let (mut since, mut bytes) = (begin, 0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        for (from, to) in source.words.chunks(PIECE / 8).zip(copy.words.chunks_mut(PIECE / 8)) {
            std::hint::black_box(&mut *to).copy_from_slice(from);
            bytes += size_of_val(from);
            let took = since.elapsed();
            if took >= quantum {
                rates.push(bytes as f64 / MIB as f64 / took.as_secs_f64());
                (since, bytes) = (Instant::now(), 0);
            }
        }
        copy.check()?;
        // The check does not count.
        (since, bytes) = (Instant::now(), 0);
    }
    rates.sort_by(f64::total_cmp);
    let rate = |part: usize| rates.get(rates.len() / part).ok_or("no quantum was over: too little memory or time");
    Ok(format!("{:.1} {:.1}", rate(2)?, rate(100)?))
}

/// Throughput of the loopback device.
fn net(seconds: u64) -> Result<String, String> {
    let text = |e: io::Error| e.to_string();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let mut sender = std::net::TcpStream::connect(listener.local_addr().map_err(text)?).map_err(text)?;
    let (mut receiver, _) = listener.accept().map_err(text)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let thread = std::thread::spawn(move || {
        let mut buf = vec![0u8; 256 << 10];
        let mut bytes = 0u64;
        while let Ok(n @ 1..) = receiver.read(&mut buf) {
            bytes += n as u64;
        }
        bytes
    });
    let buf = vec![1u8; 256 << 10];
    while Instant::now() < end {
        sender.write_all(&buf).map_err(text)?;
    }
    drop(sender);
    let bytes = thread.join().map_err(|_| "the receiver died".to_owned())?;
    Ok(format!("{:.1}", bytes as f64 / MIB as f64 / seconds.max(1) as f64))
}

/// Reports what it must not: misaligned, outside, overlapping, far too much, in frames both sound and broken.
fn hostile(device: &str, seconds: u64) -> Result<String, String> {
    let mut port = OpenOptions::new().read(true).write(true).open(device).map_err(|e| format!("{device}: {e}"))?;
    let mut reader = port.try_clone().map_err(|e| e.to_string())?;
    // The host's answers have to be read, or the port fills up; the token of the last Welcome makes reports count.
    let token = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let heard = token.clone();
    std::thread::spawn(move || {
        let mut decoder = Decoder::new();
        let mut buf = [0u8; 4096];
        while let Ok(n) = reader.read(&mut buf) {
            if n == 0 {
                // Nobody is there (any more): whoever comes next has to be greeted.
                heard.store(0, std::sync::atomic::Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
            let mut rest = &buf[..n];
            while !rest.is_empty() {
                let taken = decoder.push(rest);
                rest = &rest[taken..];
                while let Ok(Some(message)) = decoder.message() {
                    if let Message::Welcome { token, .. } = message {
                        heard.store(token, std::sync::atomic::Ordering::SeqCst);
                    }
                }
            }
        }
    });
    // What is so, for a start: only a guest that is welcome can do harm.
    let memory = MemoryMap::read(&Roots::system()).map_err(|e| e.to_string())?.areas;
    let hello = Hello {
        version: VERSION,
        session: 1,
        guest_id: [7; 16],
        page_size: 4096,
        block_size: 4096,
        memory,
        agent: "hostile".into(),
    };
    let (mut state, mut sent, mut batch) = (1u64, 0u64, 0u64);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        batch += 1;
        let token = token.load(std::sync::atomic::Ordering::SeqCst);
        let mut hello = hello.clone();
        hello.session = next(&mut state) % 4;
        // Now and then a memory map that is far too large.
        if next(&mut state).is_multiple_of(8) {
            hello.memory = vec![MemoryArea { range: AddrRange::new(0, 1 << 50), kind: MemoryKind::Ram }];
        }
        let wild = |state: &mut u64| {
            let start = match next(state) % 4 {
                0 => next(state) % (1 << 30),
                1 => (next(state) % (1 << 18)) << 12,
                2 => u64::MAX / 2 + next(state) % 4096,
                _ => (next(state) % 512) << 21,
            };
            // Small ones, as a guest may report, and absurd ones.
            let len = if next(state).is_multiple_of(2) {
                (1 + next(state) % 1024) << 12
            } else {
                1 + next(state) % (1 << 40)
            };
            AddrRange::new(start, start.saturating_add(len))
        };
        let ranges: Vec<AddrRange> = (0..1 + next(&mut state) % 64).map(|_| wild(&mut state)).collect();
        let message = match next(&mut state) % 16 {
            // Until it is welcome.
            _ if token == 0 => Message::Hello(hello),
            0 => Message::Hello(hello),
            1 => Message::Ping(next(&mut state)),
            2 => Message::Report { token: next(&mut state), batch, ranges },
            _ => Message::Report { token, batch, ranges },
        };
        let Ok(mut frame) = message.encode() else { continue };
        if next(&mut state).is_multiple_of(64) {
            let at = next(&mut state) as usize % frame.len();
            frame[at] ^= 1 << (next(&mut state) % 8);
        }
        if port.write_all(&frame).is_ok() {
            sent += 1;
        }
        if token == 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(format!("sent {sent}"))
}
