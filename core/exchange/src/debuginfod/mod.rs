//! Images and debug information by build id, from the servers that the user configured (debuginfod's protocol).
//!
//! Enters: build ids. Leaves: files in a cache laid out as `/usr/lib/debug` is (`.build-id/ab/cdef…` and `….debug`), so that it
//! is a folder with debug information like any other; a word on each file that came. Never here: a question to a server
//! that nobody named; a file that is not what was asked for; waiting or storing without bounds.
//!
//! The protocol: debuginfod(8) and debuginfod-client-config(7) of elfutils, whose variables count here too. A server gets
//! `GET /buildid/BUILDID/executable` or `/debuginfo`; 404 is "not known".

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

/// What a server is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Artifact {
    /// The image itself: code, and what names it.
    Executable,
    /// Its debug information.
    DebugInfo,
}

impl Artifact {
    /// As URLs spell it.
    pub fn name(self) -> &'static str {
        match self {
            Artifact::Executable => "executable",
            Artifact::DebugInfo => "debuginfo",
        }
    }
}

/// How long and how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Until a server begins to answer, and until the next bytes of an answer come (`DEBUGINFOD_TIMEOUT`, in s).
    pub silence: Duration,
    /// For a whole file (`DEBUGINFOD_MAXTIME`, in s).
    pub whole: Duration,
    /// A file's size (`DEBUGINFOD_MAXSIZE`).
    pub file_bytes: u64,
    /// Of all files that are kept: the ones that were not read for longest go first.
    pub cache_bytes: u64,
    /// For so long a server is not asked again for what it did not have.
    pub miss: Duration,
}

/// Until a server takes a connection: one that is down must not hold up anyone.
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
    /// The defaults, changed by debuginfod's variables; what is no number or zero changes nothing.
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
    /// What it is.
    pub artifact: Artifact,
    /// Whose, in hex.
    pub build_id: String,
    /// The server.
    pub url: String,
    /// Its size.
    pub bytes: u64,
    /// Where it lies now.
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
    /// Without a slash at its end.
    url: String,
    /// It did not answer: in this session it is not asked again.
    is_silent: RefCell<bool>,
}

/// Why a server sent nothing that can be used.
enum Refused {
    /// It does not know the build id.
    Unknown,
    /// It cannot be reached, or stopped answering.
    Silent(String),
    /// What it sent is not what was asked for.
    Bad(String),
}

impl Debuginfod {
    /// Servers by their URLs (`http://…`, `https://…`), asked in this order, and the cache's folder. `None` without a URL.
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

    /// The file, from the cache or the first server that has it; `None` where nobody has. Why a server failed is kept as a
    /// problem.
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
                    self.complain(format!("{}: {why}: it is not asked again", server.url));
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

    /// What came since this was last asked.
    pub fn take_fetched(&self) -> Vec<Fetched> {
        self.fetched.take()
    }

    /// What went wrong since this was last asked.
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
        // Whatever the server says, the file itself tells whose it is.
        let image = Image::open(file.path()).map_err(|e| Refused::Bad(format!("it is no ELF file: {e}")))?;
        if image.build_id() != Some(id) {
            let its = image.build_id().map_or("none".to_owned(), BuildId::to_string);
            return Err(Refused::Bad(format!("the file's build id is {its}")));
        }
        drop(image);
        let path = self.cache.keep(file, id, artifact).map_err(unstored)?;
        Ok(Fetched { artifact, build_id: id.to_string(), url: server.url.clone(), bytes, path })
    }
}

/// Certificates are believed as the system believes them: who runs a server of their own has an authority of their own.
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
                "its certificate is not trusted here ({why}); a file with certificates of one's own is named by SSL_CERT_FILE"
            )),
            why => Refused::Silent(why),
        },
    }
}

fn unstored(error: io::Error) -> Refused {
    Refused::Bad(format!("it cannot be stored: {error}"))
}

/// What was read; reading and writing fail for different reasons.
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
