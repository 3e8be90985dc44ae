//! Control of the daemon through a Unix socket in the database's folder: one JSON request and one JSON answer, one line
//! each.
//!
//! Enters: requests of other processes of the same user (only the owner may use the socket). Leaves: their answers, which
//! the daemon's loop computes. Never here: what a request does.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use dwell_profile::{
    BurstsRecord, CollectorRecord, CountsRecord, Database, EpochId, Event, EventRecord, Pid,
};
use jiff::Timestamp;
use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};

use crate::{CollectError, Stop};

const SOCKET: &str = "daemon.sock";
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Time after which a client that sends nothing is disconnected.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);
/// Time limit of an answer. The daemon answers between two rounds, and storing the end of a large epoch takes time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// Delay after an error of `accept`, such as too many open files.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// The daemon's state and statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: Pid,
    /// Name of the backend, such as `perf`.
    pub backend: String,
    /// The epoch that it is collecting.
    pub epoch: EpochId,
    /// When that epoch started.
    pub epoch_start: Timestamp,
    /// The time that the daemon has been running, in seconds, over all epochs, including the time that sampling was paused.
    pub elapsed_s: f64,
    /// When sampling was paused; `None` if it goes on.
    #[serde(default)]
    pub paused_since: Option<Timestamp>,
    /// Samples per second of the time that this epoch was sampled, over all CPUs.
    pub samples_per_second: f64,
    /// Periods and tallies of this epoch, including what is not stored yet.
    pub events: BTreeMap<Event, EventRecord>,
    /// Share of all samples that are under `unknown`.
    pub unknown_share: f64,
    /// Share of all samples whose image was found.
    #[serde(default)]
    pub resolved_share: f64,
    /// Number of processes in memory.
    pub processes: usize,
    /// Number of images in memory.
    pub images: usize,
    /// Number of entries that wait to be stored.
    pub entries: usize,
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// CPU time used, as a share of one CPU.
    pub cpu_share: f64,
    /// The core clock as measured in this epoch, in Hz.
    #[serde(default)]
    pub clock_hz: Option<f64>,
    /// The collector's own account of this epoch.
    #[serde(default)]
    pub collector: CollectorRecord,
    /// The path bursts of this epoch, if threads are followed.
    #[serde(default)]
    pub paths: Option<BurstsRecord>,
    /// The executions that are counted beside the samples of this epoch, if they are.
    #[serde(default)]
    pub counts: Option<CountsRecord>,
    /// The epoch's notes.
    pub notes: Vec<String>,
}

/// A request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Return the status.
    Status,
    /// Store the counts.
    Flush,
    /// End the epoch and begin another.
    NewEpoch {
        /// Name of the new epoch.
        #[serde(default)]
        name: Option<String>,
    },
    /// Stop sampling until [`Request::Resume`]; the epoch continues. The cost of sampling can be measured by turning it off
    /// and on while another program runs (`npm run bench:collect`).
    Pause,
    /// Resume sampling.
    Resume {
        /// The applications whose samples are kept from now on, in a new epoch; empty: all. `None`: as before.
        #[serde(default)]
        apps: Option<Vec<String>>,
    },
}

/// An answer of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The answer to [`Request::Status`].
    Status(Box<Status>),
    /// The counts were stored.
    Flushed {
        /// Number of samples in the epoch so far.
        samples: u64,
    },
    /// The answer to [`Request::Pause`] and [`Request::Resume`]: it was done.
    Done,
    /// The new epoch has begun.
    Epoch {
        /// The id of the new epoch.
        id: EpochId,
    },
    /// The request failed.
    Failed {
        /// The reason, in one line.
        why: String,
    },
}

/// Returns the status of the daemon that collects into this database.
pub fn status(database: &Database) -> Result<Status, CollectError> {
    match ask(database, &Request::Status)? {
        Answer::Status(status) => Ok(*status),
        other => Err(unexpected(database, &other)),
    }
}

/// Makes the daemon store its counts. Returns the number of samples of its epoch, all of which are durable now.
pub fn flush(database: &Database) -> Result<u64, CollectError> {
    match ask(database, &Request::Flush)? {
        Answer::Flushed { samples } => Ok(samples),
        other => Err(unexpected(database, &other)),
    }
}

/// Makes the daemon end its epoch and begin another one. Returns the new epoch's id.
pub fn new_epoch(database: &Database, name: Option<&str>) -> Result<EpochId, CollectError> {
    match ask(database, &Request::NewEpoch { name: name.map(str::to_owned) })? {
        Answer::Epoch { id } => Ok(id),
        other => Err(unexpected(database, &other)),
    }
}

/// Makes the daemon stop sampling until [`resume`]. Its epoch continues.
pub fn pause(database: &Database) -> Result<(), CollectError> {
    ask_done(database, &Request::Pause)
}

/// Makes the daemon sample again after [`pause`]. If `apps` are given, it keeps samples of these only (of all, if there are
/// none), in a new epoch.
pub fn resume(database: &Database, apps: Option<Vec<String>>) -> Result<(), CollectError> {
    ask_done(database, &Request::Resume { apps })
}

fn ask_done(database: &Database, request: &Request) -> Result<(), CollectError> {
    match ask(database, request)? {
        Answer::Done => Ok(()),
        other => Err(unexpected(database, &other)),
    }
}

fn ask(database: &Database, request: &Request) -> Result<Answer, CollectError> {
    let socket = database.path().join(SOCKET);
    let none = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            CollectError::NoDaemon(database.path().to_owned())
        }
        _ => failed(&socket, format!("cannot be reached: {error}")),
    };
    let folder = File::open(database.path()).map_err(none)?;
    let stream = UnixStream::connect(short_path(&folder, SOCKET)).map_err(none)?;
    exchange(stream, request).map_err(|error| failed(&socket, format!("gave no answer: {error}")))
}

fn exchange(mut stream: UnixStream, request: &Request) -> io::Result<Answer> {
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    write_line(&mut stream, request)?;
    Ok(serde_json::from_str(&read_line(&stream)?)?)
}

fn unexpected(database: &Database, answer: &Answer) -> CollectError {
    let why = match answer {
        Answer::Failed { why } => format!("failed: {why}"),
        other => format!("gave an unexpected answer: {other:?}"),
    };
    failed(&database.path().join(SOCKET), why)
}

fn failed(socket: &Path, why: String) -> CollectError {
    CollectError::Daemon { socket: socket.to_owned(), why }
}

/// Returns a short path to the socket: a socket's path may have only 107 bytes, so it goes through the open folder.
fn short_path(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

fn write_line(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The daemon's end of the socket. It is removed when dropped.
pub struct ControlServer {
    /// `Some` until this value is dropped.
    requests: Option<Receiver<(Request, Sender<Answer>)>>,
    request_event: Option<Arc<OwnedFd>>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    folder: PathBuf,
    socket: PathBuf,
}

/// Requests on their way to the daemon's loop.
struct Waiting {
    sender: Sender<(Request, Sender<Answer>)>,
    /// An eventfd that becomes readable when requests wait.
    request_event: Option<Arc<OwnedFd>>,
}

impl ControlServer {
    /// Starts to listen. The caller holds the database's lock, so an existing socket belongs to a dead daemon.
    pub fn listen(database: &Database) -> Result<Self, CollectError> {
        let socket = database.path().join(SOCKET);
        let listener = bind(database.path(), &socket)
            .map_err(|source| CollectError::System { action: "listen for `dwell status`", source })?;
        let (sender, requests) = channel();
        // Without the eventfd requests are answered slightly later.
        let request_event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new);
        let waiting = Waiting { sender, request_event: request_event.clone() };
        let stop = Stop::new();
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || serve(&listener, &waiting, &stop)
        });
        let (folder, thread) = (database.path().to_owned(), Some(thread));
        Ok(ControlServer { requests: Some(requests), request_event, stop, thread, folder, socket })
    }

    /// Returns a descriptor that is readable while requests wait for [`ControlServer::answer`].
    pub fn request_fd(&self) -> Option<BorrowedFd<'_>> {
        self.request_event.as_deref().map(AsFd::as_fd)
    }

    /// Answers all waiting requests.
    pub fn answer(&self, mut answer: impl FnMut(Request) -> Answer) {
        if let Some(event) = &self.request_event {
            let _ = rustix::io::read(event, &mut [0; 8]); // First of all, because later requests set it again.
        }
        for (request, reply) in self.requests.iter().flat_map(Receiver::try_iter) {
            let _ = reply.send(answer(request)); // The client may be gone.
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.stop();
        self.requests = None; // This drops the waiting requests. Otherwise the thread would wait for their answers.
        // The thread waits for a client. If not even we can connect, it is left waiting.
        let woken = File::open(&self.folder).and_then(|f| UnixStream::connect(short_path(&f, SOCKET)));
        if woken.is_ok() {
            self.thread.take().map(JoinHandle::join);
        }
        let _ = fs::remove_file(&self.socket);
    }
}

/// Binds a socket under another name, restricts its permissions, and then renames it.
fn bind(folder: &Path, socket: &Path) -> io::Result<UnixListener> {
    let aside = "daemon.sock.new";
    let _ = fs::remove_file(folder.join(aside));
    let listener = UnixListener::bind(short_path(&File::open(folder)?, aside))?;
    fs::set_permissions(folder.join(aside), Permissions::from_mode(0o600))?;
    fs::rename(folder.join(aside), socket)?;
    Ok(listener)
}

fn serve(listener: &UnixListener, requests: &Waiting, stop: &Stop) {
    while !stop.is_requested() {
        match listener.accept() {
            Ok(_) if stop.is_requested() => {}
            Ok((stream, _)) => drop(serve_one(stream, requests)), // A broken client does not concern us.
            Err(_) => std::thread::sleep(AFTER_ERROR),
        }
    }
}

fn serve_one(mut stream: UnixStream, requests: &Waiting) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_PATIENCE))?;
    stream.set_write_timeout(Some(CLIENT_PATIENCE))?;
    let answer = match serde_json::from_str(&read_line(&stream)?) {
        Ok(request) => pass_on(request, requests),
        Err(error) => Answer::Failed { why: format!("invalid request: {error}") },
    };
    write_line(&mut stream, &answer)
}

fn pass_on(request: Request, requests: &Waiting) -> Answer {
    let (reply, answer) = channel();
    let gone = || Answer::Failed { why: "the daemon is ending".to_owned() };
    if requests.sender.send((request, reply)).is_err() {
        return gone();
    }
    if let Some(event) = &requests.request_event {
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes()); // This only fails if it is readable already.
    }
    match answer.recv_timeout(ANSWER_PATIENCE) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Disconnected) => gone(),
        Err(RecvTimeoutError::Timeout) => Answer::Failed { why: "the daemon is too busy".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Runs `client` while a server answers with `answer`.
    fn with_server(answer: impl Fn(Request) -> Answer, client: impl FnOnce(&Database) + Send + 'static) {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        fs::write(folder.path().join(SOCKET), "a dead daemon's").unwrap();
        let server = ControlServer::listen(&database).unwrap();
        let client = std::thread::spawn(move || client(&database));
        while !client.is_finished() {
            server.answer(&answer);
            std::thread::sleep(Duration::from_millis(2));
        }
        client.join().unwrap();
        drop(server);
        assert!(!folder.path().join(SOCKET).exists());
    }

    #[test]
    fn requests_are_answered_and_failures_reported() {
        let answer = |request| match request {
            Request::Flush => Answer::Flushed { samples: 7 },
            Request::NewEpoch { name } => Answer::Failed { why: format!("the name {name:?} is taken") },
            Request::Status => Answer::Flushed { samples: 0 },
            Request::Pause | Request::Resume { .. } => Answer::Done,
        };
        with_server(answer, |database| {
            assert_eq!(flush(database).unwrap(), 7);
            let taken = new_epoch(database, Some("a")).unwrap_err().to_string();
            assert!(taken.ends_with("failed: the name Some(\"a\") is taken"), "{taken}");
            assert!(status(database).is_err(), "an answer to another question");
        });
    }

    #[test]
    fn a_request_is_signalled_until_it_is_answered() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        let server = ControlServer::listen(&database).unwrap();
        let request_fd = server.request_fd().expect("an eventfd");
        let has_request = |seconds| {
            let patience = Timespec { tv_sec: seconds, tv_nsec: 0 };
            poll(&mut [PollFd::from_borrowed_fd(request_fd, PollFlags::IN)], Some(&patience)).unwrap() > 0
        };
        assert!(!has_request(0));
        let client = std::thread::spawn(move || flush(&database).unwrap());
        assert!(has_request(60), "a request does not wait for the end of a round");
        server.answer(|_| Answer::Flushed { samples: 3 });
        assert!(!has_request(0) && client.join().unwrap() == 3);
    }

    #[test]
    fn garbage_and_silent_clients_do_no_harm() {
        with_server(
            |_| Answer::Flushed { samples: 1 },
            |database| {
                let folder = File::open(database.path()).unwrap();
                let connect = || UnixStream::connect(short_path(&folder, SOCKET)).unwrap();
                drop(connect());
                let mut garbage = connect();
                garbage.write_all(b"{\"request\": \"dance\"}\n").unwrap();
                assert!(read_line(&garbage).unwrap().contains("invalid request"));
                assert_eq!(flush(database).unwrap(), 1);
                let mode = fs::metadata(database.path().join(SOCKET)).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            },
        );
    }

    #[test]
    fn waiting_clients_are_released_when_the_daemon_ends() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        let server = ControlServer::listen(&database).unwrap();
        let client = std::thread::spawn(move || flush(&database));
        std::thread::sleep(Duration::from_millis(300)); // Its request waits by now; otherwise it finds no daemon.
        let start = Instant::now();
        drop(server);
        assert!(start.elapsed() < CLIENT_PATIENCE * 2, "{:?}", start.elapsed());
        assert!(client.join().unwrap().is_err());
    }

    #[test]
    fn a_missing_daemon_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        assert!(matches!(status(&database), Err(CollectError::NoDaemon(_))));
        drop(UnixListener::bind(folder.path().join(SOCKET)).unwrap()); // This leaves a stale socket.
        assert!(matches!(status(&database), Err(CollectError::NoDaemon(_))));
    }
}
