//! Claims on what a machine has once: a GPU, a loopback network. Every user's runs see each other's.
//!
//! A claim is a listening socket with an abstract name: it needs no file that could be left, be cleared away or belong to
//! another user, ends with its process however that ends, and the kernel says which process holds it. Names are seen within one
//! network namespace. Tests: at the end.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

/// Maximum length of a holder's command line in a message.
const MAX_COMMAND_LENGTH: usize = 60;

/// Something claimed until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Holds the name; nothing is read from it.
    _socket: UnixListener,
}

/// The process that holds a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pid: Option<i32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.pid else { return f.write_str("a process in another PID namespace") };
        write!(f, "pid {pid}")?;
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let shown: String = command.trim().chars().filter(|c| !c.is_control()).take(MAX_COMMAND_LENGTH).collect();
        if shown.is_empty() { Ok(()) } else { write!(f, " ({shown})") }
    }
}

/// Claims a name, or returns its holder.
///
/// # Errors
/// When this machine has no such sockets.
pub(crate) fn claim(name: &str) -> io::Result<Result<Claim, Holder>> {
    let name = format!("trainyard/{name}");
    match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
        Ok(socket) => Ok(Ok(Claim { _socket: socket })),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(Err(Holder { pid: holder(&name).unwrap_or(None) })),
        Err(error) => Err(error),
    }
}

/// The process that listens. Connecting does not wait: nothing is ever accepted.
fn holder(name: &str) -> io::Result<Option<i32>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let pid = sockopt::socket_peercred(&socket)?.pid.as_raw_nonzero().get();
    Ok((pid > 0).then_some(pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_who_is_named() {
        let name = format!("test/{}", std::process::id());
        let first = claim(&name).unwrap().unwrap();
        let holder = claim(&name).unwrap().unwrap_err();
        assert_eq!(holder, Holder { pid: i32::try_from(std::process::id()).ok() });
        assert!(holder.to_string().contains("local-"), "the command is named: {holder}");
        assert!(claim(&format!("{name}/other")).unwrap().is_ok());
        drop(first);
        assert!(claim(&name).unwrap().is_ok());
    }
}
