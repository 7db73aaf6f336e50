//! What runs on a host of the made-up fleet: in each of its places instances of jobs, one after the other.

use super::class::{CLASSES, Life};
use super::instance::Instance;
use isotherm_record::parquet::window::{GroupWindow, Origin};

/// Instances of a class of how many jobs there are.
const JOBS: u64 = 12;
/// Machines of a cluster.
const CLUSTERS: [&str; 4] = ["eu-1", "eu-2", "us-1", "us-2"];
const KERNELS: [&str; 3] = ["6.1.0-32-amd64", "6.12.9-amd64", "6.18.0-amd64"];
/// For how long instances without end have run when the simulation begins, s.
const OLD_S: f64 = 1e6;

/// A host.
#[derive(Debug)]
pub struct Host {
    pub origin: Origin,
    rng: fastrand::Rng,
    places: Vec<Instance>,
    seed: u64,
    number: u64,
    begun: u64,
}

impl Host {
    /// Host `number` of the fleet of `seed`, with so many groups.
    pub fn new(seed: u64, number: u64, groups: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(mixed(seed, number));
        let origin = Origin {
            host: format!("host-{number:05}"),
            cluster: Some(CLUSTERS[(number % 4) as usize].to_owned()),
            boot_id: format!("{:08x}-{:04x}-4000-8000-{:012x}", rng.u32(..), rng.u16(..), rng.u64(..1 << 48)),
            source: "pagetable".to_owned(),
            kernel: KERNELS[rng.usize(..3)].to_owned(),
            isotherm_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut host = Self { origin, rng, places: Vec::new(), seed, number, begun: 0 };
        for place in 0..groups {
            let instance = host.instance(place, groups, -OLD_S, true);
            host.places.push(instance);
        }
        host
    }

    /// The rows of the window that begins at `start_s` after the simulation's begin.
    pub fn rows(&mut self, start_s: f64, window_s: f64) -> Vec<GroupWindow> {
        let groups = self.places.len() as u64;
        let mut rows = Vec::new();
        for place in 0..self.places.len() {
            if self.places[place].ends_s < start_s + window_s {
                let Life::Runs { gap_s, .. } = self.places[place].class.life else { continue };
                let born_s = start_s + window_s * (self.rng.f64() * gap_s / window_s).ceil();
                self.places[place] = self.instance(place as u64, groups, born_s, false);
            }
            let instance = &mut self.places[place];
            if instance.born_s <= start_s {
                let scans = self.rng.f64() < instance.class.scan_chance;
                rows.push(instance.window(start_s, window_s, scans));
            }
        }
        rows
    }

    /// A new instance of the class of a place. `in_midlife`: one of those that run when the simulation begins.
    fn instance(&mut self, place: u64, groups: u64, born_s: f64, in_midlife: bool) -> Instance {
        let at = (place as f64 + 0.5) / groups as f64;
        let ends = CLASSES.iter().scan(0.0, |sum, class| {
            *sum += class.share;
            Some(*sum)
        });
        let class_number = ends.take_while(|end| *end <= at).count().min(CLASSES.len() - 1);
        let class = &CLASSES[class_number];
        // Instances of a job are alike in size, wherever they run.
        let job = mixed(mixed(self.seed, self.number), place) % JOBS;
        let mut of_job = fastrand::Rng::with_seed(mixed(mixed(self.seed, class_number as u64), job));
        let bytes =
            class.median_bytes * (class.spread * normal(&mut of_job)).exp() * (0.1 * normal(&mut self.rng)).exp();
        let ends_s = match class.life {
            Life::Host => f64::MAX,
            Life::Runs { least_s, most_s, .. } => {
                let lives_s = least_s + self.rng.f64() * (most_s - least_s);
                if in_midlife { self.rng.f64() * lives_s } else { born_s + lives_s }
            }
        };
        self.begun += 1;
        let phase = of_job.f64() * 0.1 + (self.number % 4) as f64 * 0.25;
        Instance {
            class,
            bytes,
            born_s,
            ends_s,
            phase,
            scans_s: Vec::new(),
            names: self.names(class.name, class.in_pod, job, place, bytes),
        }
    }

    fn names(&mut self, class: &str, in_pod: bool, job: u64, place: u64, bytes: f64) -> GroupWindow {
        let inode = Some(1000 + self.begun);
        if !in_pod {
            // Two of the same job on a host are instances of a template.
            let cgroup = format!("/system.slice/{class}-{job:02}@{place}.service");
            return GroupWindow { cgroup, inode, ..GroupWindow::default() };
        }
        let uid = self.rng.u64(..);
        GroupWindow {
            cgroup: format!(
                "/kubepods.slice/kubepods-pod{uid:016x}.slice/cri-containerd-{:016x}.scope",
                self.rng.u64(..)
            ),
            inode,
            namespace: Some(class.to_owned()),
            pod: Some(format!("{class}-{job:02}-{:05x}", uid >> 44)),
            container: Some(format!("{class}-{job:02}")),
            limit_bytes: Some((bytes * 1.25) as u64 & !4095),
            ..GroupWindow::default()
        }
    }
}

/// A seed of its own for each pair (the finalizer of SplitMix64).
fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number of the standard normal distribution (Box and Muller).
fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}
