//! Made-up traces: `NAME:KEY=VALUE,...`, for example `zipf:pages=1M,requests=20M,theta=0.8`.

mod ycsb;

use super::{Builder, Manner, Next, Selection, Trace, TraceError};
use crate::workload::zipf::Zipf;
use isotherm_core::units::parse_size;

/// What kind of requests to make up.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RequestPattern {
    Uniform,
    /// Falls exponentially: `percentile` of the requests go to the first `fraction` of the pages.
    Exponential {
        fraction: f64,
        percentile: f64,
    },
    Zipf {
        theta: f64,
    },
    /// Zipf over a tenth of the pages, interrupted by passes through the others once in `every` requests.
    Scan {
        theta: f64,
        every: u64,
        length: u64,
    },
    /// All pages in order, over and over.
    Loop,
    /// A working set of `set` pages that moves on to others after `period` requests.
    Phases {
        set: u64,
        period: u64,
    },
    Ycsb(ycsb::Workload),
}

/// A description of a made-up trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Generator {
    kind: RequestPattern,
    pages: u64,
    requests: u64,
    seed: u64,
}

/// What generators there are, for help and errors.
const KNOWN: &str = "uniform, exponential, zipf, scan, loop, phases, ycsb-a to ycsb-f";

impl Generator {
    /// Reads a description. Defaults: 1 Mi pages, 10 Mi requests, seed 1.
    pub fn parse(spec: &str) -> Result<Self, TraceError> {
        let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
        let mut keys = Keys { spec, pairs: Vec::new() };
        for pair in rest.split(',').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| keys.wrong(format!("'{pair}' is not KEY=VALUE")))?;
            keys.pairs.push((key, value));
        }
        let pages = keys.count("pages", 1 << 20)?;
        let requests = keys.count("requests", 10 << 20)?;
        let seed = keys.count("seed", 1)?;
        if !(1..=u64::from(super::MOST_PAGES)).contains(&pages) {
            return Err(keys.wrong(format!("pages must lie between 1 and {}", super::MOST_PAGES)));
        }
        if requests == 0 {
            return Err(keys.wrong("requests must be at least 1"));
        }
        let kind = match name {
            "uniform" => RequestPattern::Uniform,
            "exponential" => RequestPattern::Exponential {
                fraction: keys.share("fraction", 6.0 / 7.0)?,
                percentile: keys.share("percentile", 0.95)?,
            },
            "zipf" => RequestPattern::Zipf { theta: keys.theta()? },
            "scan" => RequestPattern::Scan {
                theta: keys.theta()?,
                every: keys.positive("every", (requests / 10).max(1))?,
                length: keys.positive("length", (pages / 10).max(1))?,
            },
            "loop" => RequestPattern::Loop,
            "phases" => RequestPattern::Phases {
                set: keys.positive("set", (pages / 10).max(1))?.min(pages),
                period: keys.positive("period", (requests / 10).max(1))?,
            },
            _ => match name.strip_prefix("ycsb-").and_then(ycsb::Workload::parse) {
                Some(workload) => RequestPattern::Ycsb(workload),
                None => return Err(keys.wrong(format!("known are {KNOWN}"))),
            },
        };
        match keys.pairs.first() {
            Some((key, _)) => Err(keys.wrong(format!("{name} knows no '{key}' (or it is given twice)"))),
            None => Ok(Self { kind, pages, requests, seed }),
        }
    }
}

/// What was given and not yet used.
struct Keys<'a> {
    spec: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Keys<'a> {
    fn wrong(&self, why: impl Into<String>) -> TraceError {
        TraceError::Spec { spec: self.spec.to_owned(), why: why.into() }
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.pairs.iter().position(|p| p.0 == key)?;
        Some(self.pairs.remove(at).1)
    }

    fn count(&mut self, key: &str, default: u64) -> Result<u64, TraceError> {
        let Some(text) = self.take(key) else { return Ok(default) };
        parse_size(text)
            .map_err(|_| self.wrong(format!("{key} must be a whole number such as 20000000 or 16M (M is 1024 * 1024)")))
    }

    fn positive(&mut self, key: &str, default: u64) -> Result<u64, TraceError> {
        match self.count(key, default)? {
            0 => Err(self.wrong(format!("{key} must be at least 1"))),
            n => Ok(n),
        }
    }

    fn theta(&mut self) -> Result<f64, TraceError> {
        let Some(text) = self.take("theta") else { return Ok(1.0) };
        let theta = text.parse().ok().filter(|t: &f64| t.is_finite() && (0.0..=100.0).contains(t));
        theta.ok_or_else(|| self.wrong(format!("theta must be a number from 0 to 100, not '{text}'")))
    }

    /// A share above 0 and below 1.
    fn share(&mut self, key: &str, default: f64) -> Result<f64, TraceError> {
        let Some(text) = self.take(key) else { return Ok(default) };
        let share = text.parse().ok().filter(|s: &f64| *s > 0.0 && *s < 1.0);
        share.ok_or_else(|| self.wrong(format!("{key} must be above 0 and below 1, not '{text}'")))
    }
}

/// Makes a trace up. The same description gives the same trace.
pub fn generate(g: &Generator, selection: Selection, progress: &mut dyn FnMut(u64)) -> Result<Trace, TraceError> {
    let limit = Some(selection.limit.unwrap_or(u64::MAX).min(g.requests));
    let mut builder = Builder::new(Selection { limit, ..selection }, progress);
    let mut rng = fastrand::Rng::with_seed(g.seed);
    let n = g.pages;
    let mut each = |page: &mut dyn FnMut(u64, &mut fastrand::Rng) -> u64| {
        for i in 0.. {
            if builder.add(page(i, &mut rng), Manner::MAPPED)? == Next::Enough {
                break;
            }
        }
        Ok::<(), TraceError>(())
    };
    match g.kind {
        RequestPattern::Uniform => each(&mut |_, rng| rng.u64(0..n))?,
        RequestPattern::Exponential { fraction, percentile } => {
            let mean = n as f64 * fraction / -(1.0 - percentile).ln();
            each(&mut |_, rng| loop {
                let page = -(1.0 - rng.f64()).ln() * mean;
                if page < n as f64 {
                    break page as u64;
                }
            })?;
        }
        RequestPattern::Zipf { theta } => {
            let zipf = Zipf::new(n, theta);
            each(&mut |_, rng| zipf.draw(|| rng.f64()))?;
        }
        RequestPattern::Scan { theta, every, length } => {
            let hot = (n / 10).max(1);
            let zipf = Zipf::new(hot, theta);
            let mut scanned = 0;
            each(&mut |i, rng| {
                if i % every >= length || hot == n {
                    return zipf.draw(|| rng.f64());
                }
                scanned = (scanned + 1) % (n - hot);
                hot + scanned
            })?;
        }
        RequestPattern::Loop => each(&mut |i, _| i % n)?,
        RequestPattern::Phases { set, period } => each(&mut |i, rng| {
            let start = u128::from(i / period) * u128::from(set) % u128::from(n);
            (start as u64 + rng.u64(0..set)) % n
        })?,
        RequestPattern::Ycsb(workload) => ycsb::run(workload, n, &mut rng, &mut |page, write| {
            Ok(builder.add(page, Manner::MAPPED.with_write(write))? == Next::More)
        })?,
    }
    Ok(builder.finish())
}
