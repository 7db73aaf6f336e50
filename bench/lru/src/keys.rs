//! Which records are asked for: YCSB's distributions.

use anyhow::bail;
use isotherm_bench_schemes::random::Random;
use isotherm_bench_schemes::zipf::Zipf;

/// YCSB's exponential distribution: this share of requests goes to ...
const EXPONENTIAL_PERCENTILE: f64 = 0.95;
/// ... this share of the records.
const EXPONENTIAL_FRACTION: f64 = 0.857_142_857_1;

/// A distribution over records 0 to n - 1.
#[derive(Debug, Clone)]
pub enum Keys {
    /// All alike.
    Uniform(u64),
    /// The newest most, the older the less.
    Exponential {
        /// How many there are.
        records: u64,
        /// Records over which the popularity falls to 1/e.
        mean: f64,
    },
    /// Few get most, and they lie anywhere.
    Zipfian(Zipf),
}

impl Keys {
    /// The distribution of this name.
    pub fn named(name: &str, records: u64) -> anyhow::Result<Self> {
        Ok(match name {
            "uniform" => Self::Uniform(records),
            "exponential" => {
                let mean = records as f64 * EXPONENTIAL_FRACTION / -(1.0 - EXPONENTIAL_PERCENTILE).ln();
                Self::Exponential { records, mean }
            }
            "zipfian" => Self::Zipfian(Zipf::new(records)),
            _ => bail!("no distribution called '{name}'; there are uniform, exponential and zipfian"),
        })
    }

    /// Draws a record.
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Self::Uniform(records) => random.below(*records),
            Self::Exponential { records, mean } => loop {
                // As YCSB does: what falls off the end is drawn again.
                let back = -(1.0 - random.fraction()).ln() * mean;
                if back < *records as f64 {
                    return records - 1 - back as u64;
                }
            },
            Self::Zipfian(zipf) => zipf.key(random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_ycsbs() {
        let records = 10_000;
        let share_of_newest = |name: &str, share: f64| {
            let (keys, mut random) = (Keys::named(name, records).unwrap(), Random::new(1));
            let from = (records as f64 * (1.0 - share)) as u64;
            (0..100_000).filter(|_| keys.draw(&mut random) >= from).count() as f64 / 100_000.0
        };
        assert!((share_of_newest("uniform", 0.3) - 0.3).abs() < 0.01);
        let exponential = share_of_newest("exponential", EXPONENTIAL_FRACTION);
        assert!((0.95..0.99).contains(&exponential), "{exponential}");
        assert!((share_of_newest("zipfian", 0.5) - 0.5).abs() < 0.12, "popular ones lie anywhere");
        assert!(Keys::named("normal", 1).is_err());
    }
}
