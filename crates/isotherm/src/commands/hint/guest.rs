//! `isotherm hint guest`.

use super::host::secret;
use crate::args::monitor::{CpuBudget, cpu_budget};
use crate::args::units;
use crate::exit::Unsupported;
use crate::exit::Usage;
use crate::sandbox::{SandboxArgs, hint};
use anyhow::Context;
use isotherm_hint::guest::{Address, Agent, GuestError, Settings, Status, Wish};
use isotherm_hint::protocol::auth::Key;
use isotherm_linux::signals::StopSignals;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Run in a virtual machine: tell the host which memory is free.
///
/// Free memory is isolated, so that nobody can use it, reported, and given back to the guest once the host has dropped
/// it. Memory is never isolated below the reserve, and given back as soon as a task of the guest waits for memory.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Virtio-serial port that leads to the host [default: the port named isotherm.hint]
    #[arg(long, value_name = "DEVICE", conflicts_with = "connect")]
    port: Option<PathBuf>,
    /// Where the host listens instead: vsock:CID:PORT, tcp:HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<Address>,
    /// The secret that this guest shares with a host that it calls over TCP, in a file that nobody else may read
    #[arg(long, value_name = "FILE", requires = "connect", value_parser = secret)]
    key: Option<Key>,
    /// How to isolate memory: memory blocks offline, or huge pages allocated and touched; auto chooses
    #[arg(long, value_name = "auto|offline|touch", default_value = "auto")]
    isolate: Wish,
    /// Free memory to be left alone [default: a 32nd of all, at least 16M]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    reserve: Option<u64>,
    /// What passes over free memory may take of one core while the guest is busy, or none for no limit
    #[arg(long, value_name = "PERCENT|none", default_value = "1%", value_parser = cpu_budget)]
    cpu_budget: CpuBudget,
    /// Whether the kernel may be asked to put free memory together that lies about in pieces smaller than 2 MiB
    #[arg(long, value_name = "auto|off", default_value = "auto")]
    compact: Compact,
    /// Report once what is free, then end
    #[arg(long)]
    once: bool,
    /// Between looks at free memory
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::time)]
    interval: Duration,
    /// Print a line of JSON at each interval
    #[arg(long)]
    stats: bool,
    /// Hint although the balloon reports free pages already, or although the kernel clears memory that is freed
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

/// Whether scattered free memory is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Compact {
    /// Where it is worth it, while the guest is calm.
    Auto,
    /// Never.
    Off,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let signals = StopSignals::catch().context("cannot catch signals")?;
    let address = args.connect.or(args.port.map(Address::Port)).unwrap_or(Address::NamedPort);
    check_key(&address, args.key.is_some())?;
    let needs = hint::guest(&address, args.compact == Compact::Auto);
    let settings = Settings {
        address,
        key: args.key,
        wish: args.isolate,
        reserve: args.reserve,
        interval: args.interval.max(Duration::from_millis(10)),
        cpu_budget: args.cpu_budget.0,
        compact: args.compact == Compact::Auto,
        once: args.once,
        force: args.force,
    };
    let mut agent = Agent::new(&signals, settings).map_err(|e| match e {
        GuestError::NoWay(_) | GuestError::ClearsOnFree => Unsupported(e.to_string()).into(),
        e if e.is_denied() => Unsupported(e.to_string()).into(),
        e => anyhow::Error::new(e),
    })?;
    args.sandbox.enter(&needs)?;
    tracing::info!("{}", agent.introduction());
    let stats = args.stats;
    agent.run(|status| {
        if stats {
            print(status);
        }
    })?;
    Ok(())
}

/// Only over TCP there is a key: elsewhere the connection itself tells the host who calls, and it asks for none.
fn check_key(address: &Address, given: bool) -> Result<(), Usage> {
    match (address, given) {
        (Address::Tcp(_), false) => {
            Err(Usage("over TCP a guest has to prove who it is; give --key FILE, the same key on both sides".into()))
        }
        (Address::Tcp(_), true) | (_, false) => Ok(()),
        (_, true) => Err(Usage(format!("no key is used over {address}; it is for --connect tcp:HOST:PORT"))),
    }
}

/// A line of JSON. Nobody who reads it is no reason to end.
fn print(status: &Status) {
    if let Ok(line) = serde_json::to_string(status) {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_with_tcp() {
        let check = |address: &str, given| check_key(&address.parse().unwrap(), given);
        assert!(check("tcp:a:1", true).is_ok() && check("vsock:2:1", false).is_ok());
        assert!(check("tcp:a:1", false).unwrap_err().0.contains("--key FILE"));
        assert!(check("vsock:2:1", true).unwrap_err().0.contains("vsock:2:1"));
        assert!(check_key(&Address::NamedPort, true).is_err());
    }
}
