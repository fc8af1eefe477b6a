//! Notifies systemd of the server's state (`Type=notify`): one datagram to the socket that it named.

use std::os::unix::net::UnixDatagram;

/// The server is ready.
pub const READY: &str = "READY=1";
/// The server is stopping.
pub const STOPPING: &str = "STOPPING=1";

/// Sends `state` to the service manager if it asked for notifications. A failure is no reason to stop.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    // Reporting an error here would not help: systemd reports a missing notification itself.
    let _ = send(name.as_encoded_bytes(), state.as_bytes());
}

fn send(name: &[u8], state: &[u8]) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::SocketAddr;
    let address = match name {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state, &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_sent_to_the_systemd_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_encoded_bytes(), READY.as_bytes()).unwrap();
        let mut room = [0; 16];
        let bytes = socket.recv(&mut room).unwrap();
        assert_eq!(&room[..bytes], READY.as_bytes());
    }
}
