//! Arguments of commands that can be talked to while they run.

use crate::exit::Usage;
use anyhow::Context;
use isotherm_daemon::server::{MetricsPort, Server};
use isotherm_daemon::service::Service;
use isotherm_daemon::socket::BoundSocket;
use isotherm_daemon::socket_folders::{SocketFolders, bind_in};
use isotherm_linux::roots::Roots;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

/// Where to listen.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Control")]
pub struct ControlArgs {
    /// Listen for `isotherm ctl` here [default: PID.sock in $RUNTIME_DIRECTORY, /run/isotherm or
    /// $XDG_RUNTIME_DIR/isotherm]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Do not listen for `isotherm ctl`
    #[arg(long, conflicts_with = "socket")]
    pub no_control: bool,
    /// Serve OpenMetrics over TCP at /metrics, too; a port alone is that of 127.0.0.1, `[::]` is every address, of IPv4 too
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub metrics: Option<SocketAddr>,
    /// A name by which this machine may be asked for metrics (repeatable), beside its own, its addresses and localhost
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub metrics_host: Vec<String>,
}

/// Reads where to serve metrics.
fn address(text: &str) -> Result<SocketAddr, Usage> {
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        Usage(format!("'{text}' is not an address; write for example 9190 or 127.0.0.1:9190 or [::1]:9190"))
    })
}

/// Listens at `addr` by `bind`. `[::]` is every address that there is, and a kernel without IPv6 has those of IPv4 only.
fn listen<T>(addr: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    bind(addr).or_else(|e| match e.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(e),
        _ if addr.ip() == Ipv6Addr::UNSPECIFIED => bind((Ipv4Addr::UNSPECIFIED, addr.port()).into()),
        _ => Err(e),
    })
}

/// What is bound and not yet served.
#[derive(Debug)]
pub struct Bound {
    /// For `isotherm ctl`.
    pub socket: Option<BoundSocket>,
    /// For metrics.
    pub metrics: Option<MetricsPort>,
}

impl Bound {
    /// Serves `service` there; `None` where nothing is bound.
    pub fn serve<S: Service>(self, service: S) -> io::Result<Option<Server<S>>> {
        let is_any = self.socket.is_some() || self.metrics.is_some();
        is_any.then(|| Server::start(self.socket, self.metrics, service)).transpose()
    }
}

impl ControlArgs {
    /// Binds what was asked for. A socket that was not asked for is done without where that cannot be helped, and that
    /// is said.
    pub fn bind(&self) -> anyhow::Result<Bound> {
        let metrics = self.metrics.map(|addr| self.bind_metrics(addr)).transpose()?;
        Ok(Bound { socket: self.bind_socket()?, metrics })
    }

    /// Binds a port for metrics, and says where it is.
    fn bind_metrics(&self, addr: SocketAddr) -> anyhow::Result<MetricsPort> {
        let listener = listen(addr, TcpListener::bind)
            .with_context(|| format!("cannot serve metrics at {addr}; give another --metrics ADDR:PORT"))?;
        // The port that the kernel chose, where it was left to it.
        tracing::info!("metrics at http://{}/metrics", listener.local_addr().unwrap_or(addr));
        let own = Roots::system().line("/proc/sys/kernel/hostname");
        Ok(MetricsPort { listener, names: self.metrics_host.iter().cloned().chain(own).collect() })
    }

    fn bind_socket(&self) -> anyhow::Result<Option<BoundSocket>> {
        if self.no_control {
            return Ok(None);
        }
        if let Some(path) = &self.socket {
            if path.as_os_str().is_empty() {
                return Err(Usage("--socket needs a path".into()).into());
            }
            return Ok(Some(BoundSocket::bind(path)?));
        }
        let bound = match SocketFolders::from_env().home() {
            Some(folder) => bind_in(&folder).map_err(|e| e.to_string()),
            None => Err("XDG_RUNTIME_DIR is not set to an absolute path, so there is no place for it".to_owned()),
        };
        if let Err(why) = &bound {
            tracing::warn!("no control socket: {why}; `isotherm ctl` needs --socket PATH here");
        }
        Ok(bound.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_that_of_ipv4_where_there_is_no_ipv6() {
        let without_ipv6 = |addr: SocketAddr| match addr {
            SocketAddr::V4(addr) => Ok(addr.to_string()),
            SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        assert_eq!(listen(address("[::]:7").unwrap(), without_ipv6).unwrap(), "0.0.0.0:7");
        assert!(listen(address("[::1]:7").unwrap(), without_ipv6).is_err(), "one address is that one");
        let in_use = |_| Err::<(), _>(io::ErrorKind::AddrInUse.into());
        let error = listen(address("[::]:7").unwrap(), in_use).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn every_address_is_that_of_ipv4_too() {
        let only_v6 = Roots::system().line("/proc/sys/net/ipv6/bindv6only");
        if only_v6.as_deref() == Some("1") {
            return;
        }
        let listener = listen(address("[::]:0").unwrap(), TcpListener::bind).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn metrics_stay_on_this_machine_unless_said_otherwise() {
        for (text, addr) in [
            ("9190", "127.0.0.1:9190"),
            (":9190", "127.0.0.1:9190"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:2", "[::1]:2"),
        ] {
            assert_eq!(address(text), Ok(addr.parse().unwrap()));
        }
        for text in ["", "x", "70000", "1.2.3.4", "host:80"] {
            assert!(address(text).unwrap_err().0.contains("for example"), "{text}");
        }
    }
}
