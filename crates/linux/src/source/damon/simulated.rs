//! A kernel's DAMON control files in a temporary folder: folders appear and values are refused as the kernel does it.

use super::files::ControlFiles;
use crate::facts::KDAMONDS;
use crate::roots::Roots;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Start, end, nr_accesses, age.
pub(super) type Region = (u64, u64, u32, u32);

/// What the test sees and decides.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Every write, in order.
    pub(super) writes: Vec<(String, String)>,
    /// All files at each time it was switched on.
    pub(super) at_start: Vec<BTreeMap<String, String>>,
    /// Fails writes whose path ends so, with this errno.
    pub(super) fail: Option<(String, i32)>,
    /// Regions of each target at each request; the last ones repeat.
    pub(super) regions: Vec<Vec<Vec<Region>>>,
    /// Ends by itself at so many requests.
    pub(super) stop: u32,
    /// Whether filters know targets (6.6).
    pub(super) target_filters: bool,
    requests: usize,
    /// What the guard would write back if we were killed now, as it was given.
    pub(super) guarded: Vec<(String, String)>,
    /// Whether the guard has ended.
    pub(super) unguarded: bool,
}

#[derive(Debug)]
pub(super) struct SimulatedKernel {
    dir: Rc<tempfile::TempDir>,
    roots: Roots,
    pub(super) control: Rc<RefCell<Control>>,
}

impl Clone for SimulatedKernel {
    fn clone(&self) -> Self {
        Self { dir: self.dir.clone(), roots: self.roots.clone(), control: self.control.clone() }
    }
}

impl SimulatedKernel {
    /// A kernel that nobody uses DAMON of.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::captured(dir.path());
        fs::create_dir_all(roots.path(KDAMONDS)).unwrap();
        fs::create_dir_all(roots.path("/proc/4242")).unwrap();
        fs::write(roots.path("/proc/4242/schedstat"), "7000 0 0\n").unwrap();
        fs::write(roots.path("/proc/iomem"), "00001000-00ffffff : System RAM\n10000000-1fffffff : System RAM\n")
            .unwrap();
        let control = Control { target_filters: true, ..Control::default() };
        let kernel = Self { dir: Rc::new(dir), roots, control: Rc::new(RefCell::new(control)) };
        kernel.put("nr_kdamonds", "0");
        kernel
    }

    /// All control files and their contents.
    pub(super) fn files(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let base = self.roots.path(KDAMONDS);
        let mut folders = vec![base.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    let name = entry.path().strip_prefix(&base).unwrap().to_string_lossy().into_owned();
                    out.insert(name, fs::read_to_string(entry.path()).unwrap().trim().to_owned());
                }
            }
        }
        out
    }

    /// Creates a file without the kernel's checks.
    pub(super) fn put(&self, path: &str, value: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{value}\n")).unwrap();
    }

    fn at(&self, path: &str) -> PathBuf {
        self.roots.path(KDAMONDS).join(path)
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default().trim().to_owned()
    }

    /// Replaces the numbered folders of `folder` by `count` ones with these files.
    fn number(&self, folder: &str, count: &str, files: &[(&str, &str)]) -> io::Result<()> {
        let count: usize = count.parse().map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        for entry in fs::read_dir(self.at(folder))?.flatten().filter(|e| e.path().is_dir()) {
            if entry.file_name().to_string_lossy().parse::<usize>().is_ok() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        for i in 0..count {
            for (name, value) in files {
                self.put(&Path::new(folder).join(i.to_string()).join(name).to_string_lossy(), value);
            }
        }
        Ok(())
    }

    fn state(&self, value: &str) -> io::Result<()> {
        let invalid = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        match value {
            "on" => {
                let files = self.files();
                let value = |name: &str| files.get(&format!("0/contexts/0/{name}")).and_then(|v| v.parse::<u64>().ok());
                let (sample, aggr) =
                    (value("monitoring_attrs/intervals/sample_us"), value("monitoring_attrs/intervals/aggr_us"));
                if sample > aggr
                    || value("targets/nr_targets") == Some(0)
                    || self.get("0/contexts/0/operations").is_empty()
                {
                    return invalid();
                }
                self.control.borrow_mut().at_start.push(files);
                self.put("0/state", "on");
                self.put("0/pid", "4242");
                Ok(())
            }
            "off" => {
                self.put("0/state", "off");
                self.put("0/pid", "-1");
                Ok(())
            }
            "update_schemes_tried_regions" => {
                if self.control.borrow().stop > 0 {
                    self.control.borrow_mut().stop -= 1;
                    self.state("off")?;
                }
                if self.get("0/state") != "on" {
                    return invalid();
                }
                self.list_regions()
            }
            _ => invalid(),
        }
    }

    fn list_regions(&self) -> io::Result<()> {
        let mut control = self.control.borrow_mut();
        let Some(last) = control.regions.len().checked_sub(1) else { return Ok(()) };
        let targets = control.regions[control.requests.min(last)].clone();
        control.requests += 1;
        // Names count on over the schemes, as in Linux 6.12.
        let mut name = 0;
        for (i, regions) in targets.iter().enumerate() {
            let folder = format!("0/contexts/0/schemes/{i}/tried_regions");
            if !self.at(&folder).exists() {
                continue;
            }
            self.number(&folder, "0", &[])?;
            for (start, end, nr_accesses, age) in regions {
                self.put(&format!("{folder}/{name}/start"), &start.to_string());
                self.put(&format!("{folder}/{name}/end"), &end.to_string());
                self.put(&format!("{folder}/{name}/nr_accesses"), &nr_accesses.to_string());
                self.put(&format!("{folder}/{name}/age"), &age.to_string());
                name += 1;
            }
            self.put(&format!("{folder}/total_bytes"), &regions.iter().map(|r| r.1 - r.0).sum::<u64>().to_string());
        }
        Ok(())
    }
}

impl ControlFiles for SimulatedKernel {
    fn changes(&mut self, path: &str, before: &str) -> io::Result<()> {
        let mut control = self.control.borrow_mut();
        if control.unguarded {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        control.guarded.push((path.to_owned(), before.to_owned()));
        Ok(())
    }

    fn leaves(&mut self, path: &str) {
        self.control.borrow_mut().guarded.retain(|(known, _)| known != path);
    }

    fn roots(&self) -> &Roots {
        &self.roots
    }

    fn write(&mut self, path: &str, value: &str) -> io::Result<()> {
        self.control.borrow_mut().writes.push((path.to_owned(), value.to_owned()));
        let held = self.control.borrow().guarded.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(held, ["nr_kdamonds", "0/state"], "{path} is written while the guard does not know");
        if let Some((end, errno)) = &self.control.borrow().fail
            && path.ends_with(end)
        {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        if !self.at(path).exists() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        match name {
            "state" => return self.state(value),
            "nr_kdamonds" => {
                if self.get("0/state") == "on" {
                    return Err(io::Error::from_raw_os_error(libc::EBUSY));
                }
                self.number(folder, value, &[("state", "off"), ("pid", "-1"), ("contexts/nr_contexts", "0")])?;
            }
            "nr_contexts" => self.number(
                folder,
                value,
                &[
                    ("avail_operations", "vaddr\nfvaddr\npaddr"),
                    ("operations", ""),
                    ("monitoring_attrs/intervals/sample_us", "5000"),
                    ("monitoring_attrs/intervals/aggr_us", "100000"),
                    ("monitoring_attrs/intervals/update_us", "60000000"),
                    ("monitoring_attrs/nr_regions/min", "10"),
                    ("monitoring_attrs/nr_regions/max", "1000"),
                    ("targets/nr_targets", "0"),
                    ("schemes/nr_schemes", "0"),
                ],
            )?,
            "nr_targets" => self.number(folder, value, &[("pid_target", "0"), ("regions/nr_regions", "0")])?,
            "nr_regions" => self.number(folder, value, &[("start", "0"), ("end", "0")])?,
            "nr_schemes" => self.number(
                folder,
                value,
                &[
                    ("action", "stat"),
                    ("access_pattern/sz/min", "0"),
                    ("access_pattern/sz/max", "0"),
                    ("access_pattern/nr_accesses/min", "0"),
                    ("access_pattern/nr_accesses/max", "0"),
                    ("access_pattern/age/min", "0"),
                    ("access_pattern/age/max", "0"),
                    ("filters/nr_filters", "0"),
                    ("tried_regions/total_bytes", "0"),
                ],
            )?,
            "nr_filters" => {
                self.number(folder, value, &[("type", "anon"), ("matching", "N"), ("damon_target_idx", "0")])?;
            }
            "type" if value == "target" && !self.control.borrow().target_filters => {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            _ => {}
        }
        self.put(path, value);
        Ok(())
    }
}
