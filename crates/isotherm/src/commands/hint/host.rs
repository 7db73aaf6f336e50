//! `isotherm hint host`.

mod answers;
mod metrics;
mod places;
mod spec;

use crate::args::units;
use crate::control::args::{address, bind_metrics};
use crate::control::socket::BoundSocket;
use crate::exit::{Unsupported, Usage};
use answers::{Answers, Shutter};
use anyhow::Context;
use isotherm_hint::host::guest::GuestError;
use isotherm_hint::host::memory::MemoryError;
use isotherm_hint::host::scan::ScanConfig;
use isotherm_hint::host::server::{Door, GuestSpec, Host, HostConfig};
use isotherm_hint::host::status::GuestStatus;
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::hostmem::vsock_listener::VsockListener;
use isotherm_linux::proc::ProcessError;
use isotherm_linux::signals::StopSignals;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use places::{control_folders, home};
use spec::Listen;
pub use spec::secret;

/// Take the free memory of virtual machines back
///
/// Guests' agents (`isotherm hint guest`) report what is free; the host side gives that part of the VMM's shared memory
/// back to the machine by punching holes into it. It needs no change to QEMU, only memory that is shared:
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
    /// Let guests call (repeatable): unix:PATH for VMMs that connect to us, vsock or vsock:PORT, tcp:ADDR:PORT
    #[arg(long, value_name = "WHERE", value_parser = spec::listen)]
    listen: Vec<Listen>,
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
    /// Listen for `isotherm hint status` here [default: hint/PID.sock in $RUNTIME_DIRECTORY, /run/isotherm or
    /// $XDG_RUNTIME_DIR/isotherm]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Serve OpenMetrics over TCP at /metrics, too; a port alone is that of 127.0.0.1
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    duration: Option<Duration>,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// How often the loop looks at what is asked, and at what has changed.
const TICK: Duration = Duration::from_millis(50);
/// How long a question and its answer may take.
const ASK_TIME: Duration = Duration::from_secs(2);

pub fn run(args: Args) -> anyhow::Result<()> {
    check(&args)?;
    let signals = StopSignals::catch().context("cannot catch signals")?;
    for guest in &args.guests {
        probe(guest)?;
    }
    let mut sockets = Vec::new();
    let doors = args.listen.iter().map(|listen| open(listen, &mut sockets)).collect::<anyhow::Result<Vec<_>>>()?;
    let control = match &args.socket {
        Some(path) => BoundSocket::bind(path)?,
        None => home()?,
    };
    control.listener.set_nonblocking(true).context("cannot listen")?;
    let port = args.metrics.map(|address| bind_metrics(address, args.quiet)).transpose()?;
    let config = HostConfig {
        guests: args.guests.clone(),
        bytes_per_second: args.rate,
        scan: args.scan_zero.then_some(ScanConfig { every: args.scan_every, pause: args.pause }),
    };
    let begin = (Instant::now(), monotonic_ns());
    let host = Host::start(config, doors).context("cannot begin to serve")?;
    let mut told = Told::new(args.quiet);
    let end = args.duration.map(|duration| begin.0 + duration);
    let answers = &Answers { host: &host, args: &args, begin_ns: begin.1 };
    let ending = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Dropped before the threads are waited for, also in a panic.
        let _shutter = Shutter::new(port.as_ref(), ending).context("cannot serve metrics")?;
        if let Some(port) = &port {
            scope.spawn(move || answers.at_port(port, ending));
        }
        let mut looked: Option<Instant> = None;
        while signals.received().is_none() && end.is_none_or(|end| Instant::now() < end) {
            if looked.is_none_or(|at| at.elapsed() >= 10 * TICK) {
                told.tell(&host.status());
                looked = Some(Instant::now());
            }
            if answers.at_socket(&control) {
                break;
            }
            std::thread::sleep(TICK);
        }
        anyhow::Ok(())
    })?;
    let last = host.status();
    drop(host);
    told.sum(&last);
    drop(sockets);
    Ok(())
}

/// What makes no sense together.
fn check(args: &Args) -> anyhow::Result<()> {
    let usage = |text: String| Err(Usage(text).into());
    if args.guests.is_empty() && args.listen.is_empty() {
        return usage("nobody to serve; give --guest socket=PATH, or --listen unix:PATH".into());
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
        for other in &args.guests[..number] {
            if guest.name.is_some() && guest.name == other.name {
                return usage(format!("two guests have the name {}", guest.name.as_deref().unwrap_or_default()));
            }
            if guest.pid.is_some() && guest.pid == other.pid {
                return usage(format!("two guests have the pid {}", guest.pid.unwrap_or_default()));
            }
            if guest.cid.is_some() && guest.cid == other.cid || guest.key.is_some() && guest.key == other.key {
                return usage(format!("guest {number} has the cid or the key of another one"));
            }
        }
    }
    Ok(())
}

/// What can be known to go wrong is told before anything is begun.
fn probe(spec: &GuestSpec) -> anyhow::Result<()> {
    let Some(pid) = spec.pid else { return Ok(()) };
    match isotherm_hint::host::guest::Guest::new(pid, String::new(), spec.qmp.as_deref(), 0) {
        Ok(_) => Ok(()),
        Err(GuestError::Memory(MemoryError::Process(error @ ProcessError::Permission { .. }))) => {
            Err(error).context("cannot look into the VMM; run as root, or as its user")
        }
        Err(error) => Err(error).with_context(|| format!("guest pid={pid}")),
    }
}

fn open(listen: &Listen, sockets: &mut Vec<BoundSocket>) -> anyhow::Result<Door> {
    Ok(match listen {
        Listen::Unix(path) => {
            let socket = BoundSocket::bind(path)?;
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
            Door::Tcp(TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?)
        }
    })
}

/// Says what has changed.
struct Told {
    quiet: bool,
    known: BTreeMap<String, (bool, Option<String>)>,
}

impl Told {
    const fn new(quiet: bool) -> Self {
        Self { quiet, known: BTreeMap::new() }
    }

    fn tell(&mut self, guests: &[GuestStatus]) {
        for guest in guests {
            let now = (guest.connected, guest.problem.clone());
            let before = self.known.insert(guest.name.clone(), now.clone()).unwrap_or_default();
            if self.quiet || before == now {
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

    fn sum(&self, guests: &[GuestStatus]) {
        use isotherm_core::units::format_size;
        for guest in guests.iter().filter(|guest| !self.quiet && guest.dropped > 0) {
            tracing::warn!(
                "{}: dropped {}, which gave {} back",
                guest.name,
                format_size(guest.dropped),
                format_size(guest.returned)
            );
        }
    }
}
