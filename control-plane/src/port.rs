//! A port of 127.0.0.1 that stays ours.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

use crate::error::{Error, io};

/// A port held by a socket that is bound but does not listen: no other process gets it, and a program of the same user that shares
/// ports can listen on it, end, and listen again.
#[derive(Debug)]
pub(crate) struct Port {
    _socket: OwnedFd,
    number: u16,
}

impl Port {
    /// Takes a free one.
    pub(crate) fn reserve() -> Result<Self, Error> {
        let reserve = || -> rustix::io::Result<Self> {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
            let address = SocketAddr::try_from(getsockname(&socket)?)?;
            Ok(Self { _socket: socket, number: address.port() })
        };
        reserve().map_err(|error| io("reserving a port of 127.0.0.1")(error.into()))
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }
}
