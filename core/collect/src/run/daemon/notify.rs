//! Reports to the supervisor, by systemd's protocol (sd_notify(3)), that we are ready, alive or stopping.
//!
//! Enters: `NOTIFY_SOCKET` and `WATCHDOG_USEC`. Leaves: datagrams. Nothing is sent without a supervisor.

use std::{
    env,
    ffi::OsString,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::{Duration, Instant},
};

/// A connection to the supervisor, if there is one.
#[derive(Debug)]
pub struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    alive_every: Option<Duration>,
    next: Instant,
}

impl Supervisor {
    /// Connects to the supervisor that the environment names.
    pub fn from_environment() -> Self {
        let timeout = env::var("WATCHDOG_USEC").ok().and_then(|v| v.parse().ok()).map(Duration::from_micros);
        let for_us = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        Self::new(env::var_os("NOTIFY_SOCKET"), timeout.filter(|_| for_us))
    }

    fn new(socket: Option<OsString>, timeout: Option<Duration>) -> Self {
        let socket = socket.and_then(|name| {
            let address = match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok()?,
                _ => SocketAddr::from_pathname(&name).ok()?,
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?; // If the supervisor hangs, we must not.
            Some((socket, address))
        });
        // Reports come twice as often as the supervisor requires.
        Supervisor { socket, alive_every: timeout.map(|t| t / 2), next: Instant::now() }
    }

    /// Reports that sampling has begun.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports the current activity, in one line.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    /// Reports that we are alive, as often as the supervisor requires.
    pub fn alive(&mut self) {
        let Some(every) = self.alive_every.filter(|_| Instant::now() >= self.next) else { return };
        self.next = Instant::now() + every;
        self.send("WATCHDOG=1");
    }

    /// Reports that the end was requested.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(text.as_bytes(), address); // The receiver may be gone.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_reported_to_the_supervisor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let heard = || {
            let mut bytes = [0; 100];
            let length = listener.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let mut supervisor = Supervisor::new(Some(path.into()), Some(Duration::from_secs(3600)));
        supervisor.ready();
        assert_eq!(heard(), "READY=1");
        supervisor.alive();
        assert_eq!(heard(), "WATCHDOG=1");
        supervisor.alive();
        supervisor.status("two\nlines");
        assert_eq!(heard(), "STATUS=two lines", "the next sign of life is not due");
        supervisor.stopping();
        assert_eq!(heard(), "STOPPING=1");
    }

    #[test]
    fn nothing_is_sent_without_a_supervisor() {
        let mut nobody = Supervisor::new(None, None);
        nobody.ready();
        nobody.alive();
        Supervisor::new(Some("/nowhere/notify".into()), None).ready();
    }
}
