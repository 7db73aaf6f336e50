//! What a probe costs that nobody listens to: `cargo run --release -p isotherm-linux --example unheard_probe`.

use isotherm_core::trace::{TraceEvent, Tracer};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::usdt::Probes;
use std::hint::black_box;

const EVENTS: u64 = 100_000_000;
const ROUNDS: u32 = 7;

/// Nanoseconds an event, the least of all rounds: what else ran on the machine only adds.
fn cost(mut tracer: Box<dyn Tracer>) -> f64 {
    let mut round = |_| {
        let begin = monotonic_ns();
        for n in 0..EVENTS {
            let event =
                TraceEvent::Aggregated { target: n, nr_regions: 10, start: n, end: n + 1, nr_accesses: 3, age: 12 };
            assert!(!black_box(&mut tracer).trace(black_box(&event)), "somebody listens");
        }
        (monotonic_ns() - begin) as f64 / EVENTS as f64
    };
    (0..ROUNDS).map(&mut round).fold(f64::INFINITY, f64::min)
}

fn main() {
    let [nothing, probe] = [cost(Box::new(())), cost(Box::new(Probes))];
    println!("{probe:.2} ns an event, {nothing:.2} of it without any probe");
}
