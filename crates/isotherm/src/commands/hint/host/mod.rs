//! `isotherm hint host`.

mod spec;

use super::status::{COMMAND, HostStatus};
use crate::args::control::ControlArgs;
use crate::args::units;
use crate::exit::{Unsupported, Usage};
use crate::sandbox::{SandboxArgs, hint};
use anyhow::Context;
use isotherm_daemon::instance::Instance;
use isotherm_daemon::server::Server;
use isotherm_daemon::service::StatusOnly;
use isotherm_daemon::socket::BoundSocket;
use isotherm_hint::host::door::Door;
use isotherm_hint::host::memory::{GuestMemory, MemoryError};
use isotherm_hint::host::pinned::PinnedFiles;
use isotherm_hint::host::scan::ScanConfig;
use isotherm_hint::host::server::{Host, HostConfig};
use isotherm_hint::host::slot::GuestSpec;
use isotherm_hint::host::status::GuestStatus;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::guard::{Guard, Purpose};
use isotherm_linux::hostmem::vsock_listener::VsockListener;
use isotherm_linux::proc::{PidFd, ProcessError};
use isotherm_linux::signals::StopSignals;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spec::Listen;
pub use spec::secret;

/// Take the free memory of virtual machines back
///
/// Guests' agents (`isotherm hint guest`) report what is free; the host side gives that part of
/// the VMM's shared memory back to the machine by punching holes into it. It needs no change to
/// QEMU, only memory that is shared:
///
///   qemu-system-x86_64 -object memory-backend-memfd,id=m,size=4G,share=on -machine memory-backend=m
///     -device virtio-serial-pci -chardev socket,id=h,path=/run/vm1.hint,server=on,wait=off
///     -device virtserialport,chardev=h,name=isotherm.hint …
///   isotherm hint host --guest socket=/run/vm1.hint
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A guest (repeatable): socket=PATH where its VMM listens, [pid=N] of its VMM, [qmp=PATH] where the VMM tells its
    /// memory map, [name=X], [cid=N] its vsock number and [key=FILE] its secret if it calls, separated by commas
    #[arg(long = "guest", value_name = "KEY=VALUE,…", value_parser = spec::guest)]
    guests: Vec<GuestSpec>,
    /// Let guests call (repeatable): unix:PATH for VMMs that connect to us, vsock (port 7482) or vsock:PORT,
    /// tcp:ADDR:PORT
    #[arg(long, value_name = "WHERE", value_parser = spec::listen)]
    listen: Vec<Listen>,
    /// Who may connect to the sockets of --listen unix:, as rights of a file; 660 lets their group in, 666 everybody
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = spec::socket_mode, requires = "listen")]
    listen_mode: u32,
    /// Bytes a second that are dropped of a guest, on average; 0: as many as come
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = units::size)]
    rate: u64,
    /// Look for memory that is all zeros in guests without an agent, and drop it; they should run with init_on_free=1
    #[arg(long)]
    scan_zero: bool,
    /// How often to do so
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time, requires = "scan_zero")]
    scan_every: Duration,
    /// How long a guest may be paused at a time for that
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = units::time, requires = "scan_zero")]
    pause: Duration,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    duration: Option<Duration>,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

/// How often the loop looks at what is asked, and at what has changed.
const TICK: Duration = Duration::from_millis(50);

pub fn run(args: Args) -> anyhow::Result<()> {
    check(&args)?;
    let signals = StopSignals::catch().context("cannot catch signals")?;
    for guest in &args.guests {
        probe(guest)?;
    }
    let mut sockets = Vec::new();
    let open = |listen| open(listen, args.listen_mode, &mut sockets);
    let (doors, listening): (Vec<Door>, Vec<String>) =
        args.listen.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?.into_iter().unzip();
    let bound = args.control.bind()?;
    let scan = args.scan_zero.then(|| -> anyhow::Result<ScanConfig> {
        let guard = Guard::start(Purpose::Processes).context("cannot start the process that pauses guests")?;
        Ok(ScanConfig { every: args.scan_every, pause: args.pause, guard: Mutex::new(guard) })
    });
    let config = HostConfig { guests: args.guests.clone(), bytes_per_second: args.rate, scan: scan.transpose()? };
    let sandbox = args.sandbox.enter(&hint::host(args.scan_zero))?;
    // Threads from here on.
    let begin = (Instant::now(), monotonic_ns());
    let host = Host::start(config, doors).context("cannot begin to serve")?;
    let mut changes = Changes::default();
    let end = args.duration.map(|duration| begin.0 + duration);
    let service: StatusOnly<HostStatus> = StatusOnly::default();
    let control = bound.serve(service).context("cannot listen")?;
    let status = |server: &Server<_>| HostStatus {
        instance: Instance::of_this_process(
            COMMAND,
            format!("{} guests", args.guests.len()),
            server.path().map(PathBuf::from),
            begin.1,
            monotonic_ns(),
        )
        .in_sandbox(&sandbox),
        listening: listening.clone(),
        problem: host.problem(),
        guests: host.status(),
    };
    let mut looked: Option<Instant> = None;
    let mut stop = false;
    while !stop && signals.received().is_none() && end.is_none_or(|end| Instant::now() < end) {
        if looked.is_none_or(|at| at.elapsed() >= 10 * TICK) {
            changes.log(&host.status());
            changes.log_problem(host.problem());
            looked = Some(Instant::now());
        }
        stop = control.as_ref().is_some_and(|server| server.answer(&status));
        std::thread::sleep(TICK);
    }
    drop(control);
    let last = host.status();
    // What has happened since the last look.
    changes.log(&last);
    changes.log_problem(host.problem());
    drop(host);
    Changes::say_sums(&last);
    drop(sockets);
    Ok(())
}

/// What makes no sense together.
fn check(args: &Args) -> anyhow::Result<()> {
    let usage = |text: String| Err(Usage(text).into());
    if args.guests.is_empty() && args.listen.is_empty() {
        return usage("nobody to serve; give --guest socket=PATH, or --listen unix:PATH".into());
    }
    for (name, time) in [("--scan-every", args.scan_every), ("--pause", args.pause)] {
        if time.is_zero() {
            return usage(format!("{name} of 0 makes no sense: other programs need time, too; give for example 2ms"));
        }
    }
    if let Some(twice) = args.listen.iter().enumerate().find(|(n, listen)| args.listen[..*n].contains(listen)) {
        return usage(format!("--listen {} is given twice", twice.1));
    }
    let listens = |what: fn(&Listen) -> bool| args.listen.iter().any(what);
    for (number, guest) in args.guests.iter().enumerate() {
        let calls = guest.cid.is_some() || guest.key.is_some() || listens(|l| matches!(l, Listen::Unix(_)));
        if guest.socket.is_none() && !calls && !args.scan_zero {
            return usage(format!(
                "guest {number} has no socket=PATH, does not call (cid=N, key=FILE, --listen), and --scan-zero is not given: there is nothing to do"
            ));
        }
        if guest.cid.is_some() && !listens(|l| matches!(l, Listen::Vsock(_))) {
            return usage(format!("guest {number} has a cid, but nobody listens; give --listen vsock"));
        }
        if guest.key.is_some() && !listens(|l| matches!(l, Listen::Tcp(_))) {
            return usage(format!("guest {number} has a key, but nobody listens; give --listen tcp:ADDR:PORT"));
        }
        for (place, other) in args.guests[..number].iter().enumerate() {
            if guest.pid.is_some() && guest.pid == other.pid {
                return usage(format!("two guests have the pid {}", guest.pid.unwrap_or_default()));
            }
            let called = guest.called(number);
            if called == other.called(place) {
                return usage(format!("two guests have the name {called}; give one of them another (name=X)"));
            }
            if guest.cid.is_some() && guest.cid == other.cid || guest.key.is_some() && guest.key == other.key {
                return usage(format!("guest {number} has the cid or the key of another one"));
            }
        }
    }
    Ok(())
}

/// What can be known to go wrong is reported before anything is begun.
fn probe(spec: &GuestSpec) -> anyhow::Result<()> {
    let Some(pid) = spec.pid else { return Ok(()) };
    let process = PidFd::open(pid).with_context(|| format!("there is no process {pid} (--guest pid={pid})"))?;
    let pinned = Arc::new(PinnedFiles::found());
    match GuestMemory::of_process(Arc::new(process), spec.qmp.as_deref(), Arc::default(), pinned) {
        Ok(_) => Ok(()),
        Err(MemoryError::Process(error @ ProcessError::Permission { .. })) => {
            Err(error).context("cannot look into the VMM; run as root, or as its user")
        }
        Err(error) => Err(error).with_context(|| format!("guest pid={pid}")),
    }
}

/// Listens; and where that is, for people.
fn open(listen: &Listen, mode: u32, sockets: &mut Vec<BoundSocket>) -> anyhow::Result<(Door, String)> {
    let mut place = listen.clone();
    let door = match listen {
        Listen::Unix(path) => {
            let socket = BoundSocket::bind_for(path, mode)
                .map_err(|e| anyhow::anyhow!("{}; give another --listen unix:PATH", e.problem()))?;
            let door = Door::Unix(socket.listener.try_clone().context("cannot listen")?);
            // Its file goes when all is over.
            sockets.push(socket);
            door
        }
        Listen::Vsock(port) => Door::Vsock(VsockListener::bind(*port).map_err(|e| {
            Unsupported(format!(
                "cannot listen on vsock port {port}: {e}; vsock needs the module vhost_vsock here, or use virtio-serial"
            ))
        })?),
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
            // The port that the kernel chose, where it was left to it.
            place = Listen::Tcp(listener.local_addr().unwrap_or(*address));
            Door::Tcp(listener)
        }
    };
    Ok((door, place.to_string()))
}

/// Logs what has changed; no two guests have the same name.
#[derive(Default)]
struct Changes {
    known: BTreeMap<String, (bool, Option<String>)>,
    problem: Option<String>,
}

impl Changes {
    fn log(&mut self, guests: &[GuestStatus]) {
        self.known.retain(|name, _| guests.iter().any(|guest| guest.name == *name));
        for guest in guests {
            let now = (guest.connected, guest.problem.clone());
            let before = self.known.insert(guest.name.clone(), now.clone()).unwrap_or_default();
            if before == now {
                continue;
            }
            match (before.0, now.0) {
                (false, true) => {
                    tracing::info!("{} is here: {}", guest.name, guest.agent.as_deref().unwrap_or_default());
                }
                (true, false) => tracing::info!("{} has gone", guest.name),
                _ => {}
            }
            if let Some(problem) = now.1.filter(|now| before.1.as_ref() != Some(now)) {
                tracing::warn!("{}: {problem}", guest.name);
            }
        }
    }

    fn log_problem(&mut self, now: Option<String>) {
        if let Some(problem) = now.as_ref().filter(|_| self.problem != now) {
            tracing::warn!("{problem}");
        }
        self.problem = now;
    }

    fn say_sums(guests: &[GuestStatus]) {
        use isotherm_core::units::format_size;
        for guest in guests.iter().filter(|guest| guest.dropped > 0) {
            say!(
                "{}: dropped {}, which gave {} back",
                guest.name,
                format_size(guest.dropped),
                format_size(guest.returned)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_that_are_no_longer_there_are_forgotten() {
        let named = |name: &str| GuestStatus { name: name.into(), ..GuestStatus::default() };
        let mut changes = Changes::default();
        changes.log(&[named("a"), named("b")]);
        changes.log(&[named("b"), named("c")]);
        assert_eq!(changes.known.keys().collect::<Vec<_>>(), ["b", "c"]);
    }
}
