//! Working sets of a program whose accesses have a long tail: many pages, each accessed now and then, and more of them
//! than the budget pays for clearing within a second.

use isotherm_core::clock::Clock;
use isotherm_core::engine::Engine;
use isotherm_core::event::{Event, Subscriber, SubscriberError};
use isotherm_core::history::frame::{PageFrame, bytes};
use isotherm_core::monitor::Monitor;
use isotherm_core::monitor::config::MonitorConfig;
use isotherm_sim::machine::activity::Activity;
use isotherm_sim::machine::{CostModel, Process, SimClock, SimSource};
use isotherm_sim::workload::patterns::{Parameters, Pattern};

const S: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;
const ARENA: u64 = 1 << 40;

#[derive(Default)]
struct Latest(Option<PageFrame>);

impl Subscriber for Latest {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        if let Event::Pages(frame) = event {
            self.0 = Some(frame.clone());
        }
        Ok(())
    }
}

/// Bytes of `pages` pages that are accessed at least once in `seconds`, of a Zipf distribution with exponent `theta`,
/// on average.
fn expected(pages: u64, theta: f64, touches_per_second: f64, seconds: f64) -> f64 {
    let weights: Vec<f64> = (1..=pages).map(|rank| (rank as f64).powf(-theta)).collect();
    let touches = touches_per_second * seconds / weights.iter().sum::<f64>();
    bytes(1) as f64 * weights.iter().map(|w| 1.0 - (-w * touches).exp()).sum::<f64>()
}

#[test]
fn working_sets_with_a_long_tail_are_right_at_the_default_budget() {
    const TOUCHES: f64 = 20_000.0;
    let parameters = Parameters { scattered: true, ..Parameters::new(10 * GIB) };
    let activity = Activity::new(Pattern::Zipf.build(&parameters).unwrap(), TOUCHES);
    let clock = SimClock::new(0);
    let process = Process::running(1, ARENA, activity).unwrap();
    let source = SimSource::new(clock.clone(), CostModel::default(), vec![process]);
    let mut monitor = Monitor::new(source, MonitorConfig { seed: 1, ..MonitorConfig::default() });
    let (mut driver, mut latest) = (clock.clone(), Latest::default());
    for seconds in [60, 100, 140, 180] {
        while clock.now_ns() < seconds * S {
            monitor.run_interval(&mut driver, &mut latest).expect("the simulation never fails");
        }
        let ages = latest.0.as_ref().expect("figures").total();
        for window in [10, 60] {
            // The watch begins with the first walk.
            let Some(accessed) = ages.accessed_within(window * S) else {
                assert!(window + 5 > seconds, "nothing is known of {window} s after {seconds} s");
                continue;
            };
            let [least, said, most] = [accessed.least, accessed.pages, accessed.most].map(|p| bytes(p) as f64);
            let truth = expected(10 * GIB / bytes(1), parameters.theta, TOUCHES, window as f64);
            println!(
                "after {seconds} s, within {window} s: {said:.3e} ({least:.3e} to {most:.3e}), expected {truth:.3e}"
            );
            assert!((said / truth - 1.0).abs() < 0.25, "{said:.3e} for {truth:.3e} within {window} s");
            assert!((least * 0.95..=most * 1.05).contains(&truth), "{truth:.3e} is not in {least:.3e} to {most:.3e}");
        }
    }
}
