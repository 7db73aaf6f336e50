//! Guests and places to listen, as they are written on the command line.

use crate::exit::Usage;
use isotherm_files::private_file;
use isotherm_hint::host::slot::GuestSpec;
use isotherm_hint::protocol::VSOCK_PORT;
use isotherm_hint::protocol::auth::Key;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A place to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Unix(PathBuf),
    Vsock(u32),
    Tcp(SocketAddr),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Vsock(port) => write!(f, "vsock:{port}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Reads `unix:PATH`, `vsock`, `vsock:PORT` or `tcp:ADDR:PORT`.
pub fn listen(text: &str) -> Result<Listen, Usage> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    match (kind, rest) {
        ("unix", path) if !path.is_empty() => Ok(Listen::Unix(path.into())),
        ("vsock", "") => Ok(Listen::Vsock(VSOCK_PORT)),
        ("vsock", port) => port.parse().map(Listen::Vsock).map_err(|_| Usage(format!("'{port}' is no vsock port"))),
        ("tcp", address) => address
            .parse()
            .map(Listen::Tcp)
            .map_err(|_| Usage(format!("'{address}' is no address; write for example tcp:10.0.0.1:7482"))),
        _ => Err(Usage(format!("'{text}' is no place to listen; write unix:PATH, vsock, vsock:PORT or tcp:ADDR:PORT"))),
    }
}

/// Reads the rights of a socket, such as `660`: its owner may connect, and nobody may execute it.
pub fn socket_mode(text: &str) -> Result<u32, Usage> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o066 == 0o600);
    mode.ok_or_else(|| {
        Usage(format!("'{text}' are no rights of a socket; write 600, 660 (its group) or 666 (everybody)"))
    })
}

/// Reads `key=value,…`.
pub fn guest(text: &str) -> Result<GuestSpec, Usage> {
    let mut spec = GuestSpec::default();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(|| {
            Usage(format!("'{part}' in '{text}' is no KEY=VALUE; write for example socket=/run/vm1.hint,name=vm1"))
        })?;
        let number =
            || value.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(|| Usage(format!("{key}={value}: no number")));
        let twice = match key {
            "name" => spec.name.replace(name(value)?).is_some(),
            "pid" => spec.pid.replace(number()?).is_some(),
            "cid" => spec.cid.replace(number()?).is_some(),
            "socket" => spec.socket.replace(value.into()).is_some(),
            "qmp" => spec.qmp.replace(value.into()).is_some(),
            "key" => spec.key.replace(secret(value)?).is_some(),
            _ => return Err(Usage(format!("'{key}' is not known; there are socket, pid, qmp, name, cid and key"))),
        };
        if twice {
            return Err(Usage(format!("{key} is given twice in '{text}'")));
        }
    }
    if spec.socket.is_none() && spec.pid.is_none() {
        return Err(Usage(format!("'{text}' names neither a socket nor a pid")));
    }
    if (spec.cid.is_some() || spec.key.is_some()) && spec.pid.is_none() {
        return Err(Usage(format!("'{text}': whose memory is it? A guest that calls needs pid=N")));
    }
    Ok(spec)
}

fn name(value: &str) -> Result<String, Usage> {
    let plain = value.chars().all(|c| c.is_ascii_graphic());
    if plain && value.len() <= 64 { Ok(value.into()) } else { Err(Usage(format!("{value:?} is no name"))) }
}

/// More than this is no key.
const MOST_OF_FILE: u64 = 1024;

/// The secret in a file that nobody else may read.
pub fn secret(path: &str) -> Result<Key, Usage> {
    let mut key = private_file::read(Path::new(path), MOST_OF_FILE).map_err(|e| Usage(format!("no key: {e}")))?;
    // Editors end lines.
    while key.last().is_some_and(u8::is_ascii_whitespace) {
        key.pop();
    }
    Key::new(key).map_err(|e| Usage(format!("{path}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn guests_are_read() {
        let spec = guest("socket=/a/b,pid=7,name=x,qmp=/q").unwrap();
        assert_eq!((spec.socket, spec.pid), (Some("/a/b".into()), Some(7)));
        assert_eq!((spec.name.as_deref(), spec.qmp), (Some("x"), Some("/q".into())));
        for (bad, word) in [
            ("", "KEY=VALUE"),
            ("pid", "KEY=VALUE"),
            ("pid=", "KEY=VALUE"),
            ("pid=0", "number"),
            ("pid=-1", "number"),
            ("name=x", "neither"),
            ("pid=1,pid=1", "twice"),
            ("pid=1,colour=red", "colour"),
            ("socket=/a,cid=3", "pid=N"),
            ("pid=1,key=/no/such", "/no/such"),
            ("pid=1,name=a\u{1b}b", "no name"),
        ] {
            let why = guest(bad).unwrap_err();
            assert!(why.0.contains(word), "{bad}: {why}");
        }
    }

    #[test]
    fn keys_are_long_enough() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = || guest(&format!("pid=1,key={}", path.display()));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(read().unwrap_err().0.contains("chmod 600"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(read().unwrap().key, Key::new(b"0123456789abcdef".to_vec()).ok());
        std::fs::write(&path, "short\n").unwrap();
        assert!(read().unwrap_err().0.ends_with("this one 5"));
    }

    #[test]
    fn rights_let_the_owner_in() {
        assert_eq!([socket_mode("600"), socket_mode("0660"), socket_mode("666")], [Ok(0o600), Ok(0o660), Ok(0o666)]);
        for bad in ["", "rw", "066", "777", "4660", "400", "-660"] {
            assert!(socket_mode(bad).is_err_and(|e| e.0.contains("660")), "{bad}");
        }
    }

    #[test]
    fn places_are_read() {
        assert_eq!(listen("unix:/a"), Ok(Listen::Unix("/a".into())));
        assert_eq!(listen("vsock"), Ok(Listen::Vsock(VSOCK_PORT)));
        assert_eq!(listen("vsock:9"), Ok(Listen::Vsock(9)));
        assert_eq!(listen("tcp:127.0.0.1:80").unwrap().to_string(), "tcp:127.0.0.1:80");
        for bad in ["", "unix", "unix:", "tcp", "tcp:x", "udp:1", "vsock:x", "/path"] {
            assert!(listen(bad).is_err(), "{bad}");
        }
    }
}
