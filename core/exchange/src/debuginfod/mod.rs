//! Images and debug information by build ID, from servers that the user configured (debuginfod's protocol).
//!
//! Enters: build IDs. Leaves: files in a cache with the layout of `/usr/lib/debug` (`.build-id/ab/cdef…` and
//! `….debug`), so that it can be used like any other folder with debug information; a note on each file that was sent.
//! Never here: a request to a server that the user did not name; a file that is not the requested one; waiting or
//! storing without limits.
//!
//! The protocol: debuginfod(8) and debuginfod-client-config(7) of elfutils, whose environment variables are used here
//! too. A server gets `GET /buildid/BUILDID/executable` or `/debuginfo`; 404 means that it does not know the build ID.

mod cache;

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_image::Image;
use dwell_profile::BuildId;
use serde::Serialize;

use cache::Cache;

/// The kind of a file that is requested from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Artifact {
    /// The image itself: its code and its symbols.
    Executable,
    /// The debug information of the image.
    DebugInfo,
}

impl Artifact {
    /// Returns the artifact's name as URLs spell it.
    pub fn name(self) -> &'static str {
        match self {
            Artifact::Executable => "executable",
            Artifact::DebugInfo => "debuginfo",
        }
    }
}

/// Limits of time and size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Time until a server begins to answer, and between two parts of an answer (`DEBUGINFOD_TIMEOUT`, in s).
    pub silence: Duration,
    /// Time for a whole file (`DEBUGINFOD_MAXTIME`, in s).
    pub whole: Duration,
    /// Size of a file, in bytes (`DEBUGINFOD_MAXSIZE`).
    pub file_bytes: u64,
    /// Size of all stored files, in bytes; the least recently read ones are evicted first.
    pub cache_bytes: u64,
    /// Time during which a file that no server had is not requested again.
    pub miss: Duration,
}

/// Time until a server accepts a connection, so that a server that is down does not delay the session.
const CONNECT: Duration = Duration::from_secs(10);

impl Default for Limits {
    fn default() -> Self {
        Limits {
            silence: Duration::from_secs(90),
            whole: Duration::from_secs(1800),
            file_bytes: 4 << 30,
            cache_bytes: 8 << 30,
            miss: Duration::from_secs(600),
        }
    }
}

impl Limits {
    /// Returns the defaults, changed by debuginfod's variables. A value that is zero or not a number is ignored.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Limits {
        let number = |name: &str| variable(name)?.trim().parse::<u64>().ok().filter(|n| *n > 0);
        let seconds = |name: &str| number(name).map(Duration::from_secs);
        let usual = Limits::default();
        Limits {
            silence: seconds("DEBUGINFOD_TIMEOUT").unwrap_or(usual.silence),
            whole: seconds("DEBUGINFOD_MAXTIME").unwrap_or(usual.whole),
            file_bytes: number("DEBUGINFOD_MAXSIZE").unwrap_or(usual.file_bytes),
            ..usual
        }
    }
}

/// A file that a server sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fetched {
    /// The kind of the file.
    pub artifact: Artifact,
    /// The build ID of its image, in hex.
    pub build_id: String,
    /// The URL of the server.
    pub url: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// The path of the stored file.
    pub path: PathBuf,
}

/// The configured servers and the cache.
pub struct Debuginfod {
    servers: Vec<Server>,
    cache: Cache,
    limits: Limits,
    agent: ureq::Agent,
    fetched: RefCell<Vec<Fetched>>,
    problems: RefCell<Vec<String>>,
}

struct Server {
    /// The URL without a trailing slash.
    url: String,
    /// Whether the server did not answer. Then it gets no further requests in this session.
    is_silent: RefCell<bool>,
}

/// The reason why a server sent nothing that can be used.
enum Refused {
    /// The server does not know the build ID.
    Unknown,
    /// The server cannot be reached, or stopped answering.
    Silent(String),
    /// The server sent something else than the requested file.
    Bad(String),
}

impl Debuginfod {
    /// Returns a client for servers with these URLs (`http://…`, `https://…`), which are used in this order, and a
    /// cache in this folder; `None` if there is no URL.
    pub fn new(urls: &[String], cache: &Path, limits: Limits) -> Option<Debuginfod> {
        let words = urls.iter().flat_map(|url| url.split_whitespace());
        let server =
            |url: &str| Server { url: url.trim_end_matches('/').to_owned(), is_silent: RefCell::default() };
        let servers: Vec<Server> = words.map(server).collect();
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT.min(limits.silence)))
            .timeout_recv_response(Some(limits.silence))
            .timeout_per_read(Some(limits.silence))
            .timeout_global(Some(limits.whole))
            .user_agent(concat!("dwell/", env!("CARGO_PKG_VERSION")))
            .tls_config(trusting_the_system())
            .build();
        (!servers.is_empty()).then(|| Debuginfod {
            servers,
            cache: Cache::new(cache, limits.cache_bytes, limits.miss),
            limits,
            agent: config.into(),
            fetched: RefCell::default(),
            problems: RefCell::default(),
        })
    }

    /// Returns the file from the cache or from the first server that has it; `None` if no server has it. Reasons why
    /// servers failed are stored as problems.
    pub fn fetch(&self, id: &BuildId, artifact: Artifact) -> Option<PathBuf> {
        if let Some(path) = self.cache.find(id, artifact) {
            return Some(path);
        }
        if self.cache.missed(id, artifact) {
            return None;
        }
        let mut all_answered = true;
        for server in self.servers.iter().filter(|s| !*s.is_silent.borrow()) {
            match self.ask(server, id, artifact) {
                Ok(fetched) => {
                    let path = fetched.path.clone();
                    self.fetched.borrow_mut().push(fetched);
                    return Some(path);
                }
                Err(Refused::Unknown) => continue,
                Err(Refused::Silent(why)) => {
                    server.is_silent.replace(true);
                    self.complain(format!(
                        "{}: {why}: no further requests are sent to this server",
                        server.url
                    ));
                }
                Err(Refused::Bad(why)) => {
                    self.complain(format!("{}: {} of {id}: {why}", server.url, artifact.name()));
                }
            }
            all_answered = false;
        }
        if all_answered && self.servers.iter().all(|s| !*s.is_silent.borrow()) {
            self.cache.note_miss(id, artifact);
        }
        None
    }

    /// Returns the files that were fetched since the last call.
    pub fn take_fetched(&self) -> Vec<Fetched> {
        self.fetched.take()
    }

    /// Returns the problems that occurred since the last call.
    pub fn take_problems(&self) -> Vec<String> {
        self.problems.take()
    }

    fn complain(&self, problem: String) {
        self.problems.borrow_mut().push(problem);
    }

    fn ask(&self, server: &Server, id: &BuildId, artifact: Artifact) -> Result<Fetched, Refused> {
        let url = format!("{}/buildid/{id}/{}", server.url, artifact.name());
        let mut answer = self.agent.get(&url).call().map_err(refused)?;
        let body = answer.body_mut();
        let limit = self.limits.file_bytes;
        let too_large = || Refused::Bad(format!("it has more than {limit} bytes"));
        if body.content_length().is_some_and(|bytes| bytes > limit) {
            return Err(too_large());
        }
        let promised = body.content_length();
        let mut file = self.cache.begin().map_err(unstored)?;
        let mut reader = body.as_reader().take(limit.saturating_add(1));
        let bytes = copy(&mut reader, file.as_file_mut())?;
        if bytes > limit {
            return Err(too_large());
        }
        if promised.is_some_and(|promised| promised != bytes) {
            return Err(Refused::Bad("its answer was cut off".to_owned()));
        }
        // The build ID is read from the file itself, whatever the server claims.
        let image = Image::open(file.path()).map_err(|e| Refused::Bad(format!("it cannot be used: {e}")))?;
        if image.build_id() != Some(id) {
            let its = image.build_id().map_or("none".to_owned(), BuildId::to_string);
            return Err(Refused::Bad(format!("the file's build id is {its}")));
        }
        drop(image);
        let path = self.cache.keep(file, id, artifact).map_err(unstored)?;
        Ok(Fetched { artifact, build_id: id.to_string(), url: server.url.clone(), bytes, path })
    }
}

/// Returns a TLS configuration with the certificates that the system trusts, because a private server may have its own
/// certificate authority.
fn trusting_the_system() -> ureq::tls::TlsConfig {
    ureq::tls::TlsConfig::builder().root_certs(ureq::tls::RootCerts::PlatformVerifier).build()
}

fn refused(error: ureq::Error) -> Refused {
    match error {
        ureq::Error::StatusCode(404) => Refused::Unknown,
        ureq::Error::StatusCode(status) => Refused::Bad(format!("it answers with status {status}")),
        ureq::Error::Protocol(why) => Refused::Bad(format!("it does not speak HTTP: {why}")),
        other => match other.to_string() {
            why if why.contains("certificate") => Refused::Silent(format!(
                "its certificate is not trusted here ({why}); name a file with your own certificates in SSL_CERT_FILE"
            )),
            why => Refused::Silent(why),
        },
    }
}

fn unstored(error: io::Error) -> Refused {
    Refused::Bad(format!("it cannot be stored: {error}"))
}

/// Copies all bytes and returns their number; the errors distinguish reading from writing.
fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<u64, Refused> {
    let mut buffer = vec![0; 1 << 17];
    let mut bytes = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Refused::Bad("its answer was cut off".to_owned()));
            }
            Err(e) => return Err(Refused::Silent(e.to_string())),
        };
        to.write_all(&buffer[..count]).map_err(unstored)?;
        bytes += count as u64;
    }
}
