//! Tests images by build ID from servers: Debian's debuginfod on loopback, and servers that misbehave.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use dwell_exchange::{Format, ImportFile, Imported, Limits, Servers, export, import_perf_data};
use dwell_image::Image;
use dwell_profile::Database;
use dwell_query::{
    Cancel, Options, Query,
    answer::{InstructionPlace, Listing, PlaceEvent, Places, ProcedurePlaces},
};
use jiff::Timestamp;

mod support;
use support::{SPIN, compile, run};

/// A program that exists only in the folder `served`, as a stripped file and a file of debug information, and its profile.
struct Scene {
    folder: tempfile::TempDir,
    build_id: String,
    profile: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("served")).unwrap();
        compile(folder.path(), SPIN, &[]);
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(path("spin"))
            .arg(path("served/spin.debug")));
        run(Command::new("strip").arg("-o").arg(path("served/spin")).arg(path("spin")));
        let image = Image::open(path("spin")).unwrap();
        let build_id = image.build_id().unwrap().to_string();
        let profile = path("profile");
        fs::write(&profile, export(&places(&image, &path("spin")), None, Format::Pprof)).unwrap();
        drop(image);
        fs::remove_file(path("spin")).unwrap();
        Scene { build_id, profile, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn import(&self, urls: &[&str], limits: Limits) -> Imported {
        let servers =
            Servers { urls: urls.iter().map(|u| u.to_string()).collect(), cache: self.path("cache"), limits };
        let request = ImportFile { path: self.profile.clone(), servers, ..ImportFile::default() };
        import_perf_data(&Database::open(self.path("db")).unwrap(), &request, Timestamp::now()).unwrap()
    }

    /// Returns the listing of `spin`, from the files in the cache.
    fn listing(&self) -> Result<Listing, dwell_query::QueryError> {
        let mut options = Options::for_database(self.path("db"));
        options.debug_dirs = vec![self.path("cache")];
        Query::open(options).unwrap().listing(&[], "spin", &Cancel::new())
    }
}

/// Returns ten samples for each instruction of `spin`.
fn places(image: &Image, path: &Path) -> Places {
    let spin = image.procedures().iter().find(|p| p.name() == "spin").unwrap();
    let place = |address: u64| InstructionPlace {
        address,
        samples: vec![10],
        head_samples: 10.0,
        executions: None,
        frames: Vec::new(),
    };
    let instructions = image.instructions(spin.address, spin.size_bytes);
    Places {
        epochs: vec!["e".into()],
        events: vec![PlaceEvent { name: "cpu-clock".into(), period: 1_000_000, unit: "ns".into() }],
        period_cycles: None,
        start_ns: 0,
        duration_ns: 0,
        procedures: vec![ProcedurePlaces {
            procedure: "spin".into(),
            demangled: "spin".into(),
            image: path.display().to_string(),
            build_id: image.build_id().unwrap().to_string(),
            address: spin.address.0,
            image_base: 0,
            address_over_offset: spin.address.0 - image.offset_of(spin.address).unwrap().0,
            file: None,
            line: None,
            instructions: instructions.iter().map(|i| place(i.address.0)).collect(),
        }],
        notes: Vec::new(),
    }
}

/// Debian's debuginfod with its own index, on a port of the loopback interface.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts the server. Returns `None` and prints a message if it is not installed.
    fn start(scene: &Scene, test: &str) -> Option<Server> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("debuginfod");
        command.args(["-p", &port.to_string(), "-d"]).arg(scene.path("index.sqlite"));
        command.arg("-F").arg(scene.path("served")).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Some(Server { child, url: format!("http://127.0.0.1:{port}") }),
            Err(why) => {
                println!("SKIPPED {test}: debuginfod: {why}");
                None
            }
        }
    }

    /// Returns whether the server has indexed its files, which it does in the background.
    fn is_ready(&self, scene: &Scene) -> bool {
        let address = self.url.trim_start_matches("http://");
        let has = |what: &str| -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(address)?;
            write!(stream, "GET /buildid/{}/{what} HTTP/1.0\r\n\r\n", scene.build_id)?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            Ok(line.contains(" 200 "))
        };
        has("executable").unwrap_or(false) && has("debuginfo").unwrap_or(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
    }
}

#[test]
fn missing_images_are_fetched_from_a_server() {
    let scene = Scene::new();
    let Some(server) = Server::start(&scene, "missing_images_are_fetched_from_a_server") else { return };
    let began = Instant::now();
    while !server.is_ready(&scene) {
        assert!(began.elapsed() < Duration::from_secs(300), "debuginfod has not indexed two files");
        sleep(Duration::from_millis(50));
    }
    let imported = scene.import(&[&server.url], Limits::default());
    let fetched: Vec<_> =
        imported.fetched.iter().map(|f| (f.artifact.name(), &*f.build_id, &*f.url)).collect();
    assert_eq!(
        fetched,
        [("executable", &*scene.build_id, &*server.url), ("debuginfo", &*scene.build_id, &*server.url)],
        "{:?}",
        imported.notes
    );
    assert!(!imported.notes.iter().any(|n| n.contains("not here")), "{:?}", imported.notes);
    let listing = scene.listing().unwrap();
    let line = SPIN.lines().position(|line| line.contains("i < n")).unwrap() as u32 + 1;
    let in_loop = listing.instructions.iter().find(|i| i.line == Some(line)).expect("a line of the loop");
    assert_eq!(in_loop.samples.values().sum::<u64>(), 10, "{listing:#?}");
    let again = scene.import(&[&server.url], Limits::default());
    assert_eq!(again.fetched, [], "what is in the cache is not asked for");
}

/// Starts a server that answers every request with these bytes, until the thread of the listener ends with the test.
fn answers(bytes: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            if bytes.is_empty() {
                // The server stays silent for longer than the client waits.
                std::thread::spawn(move || drop((sleep(Duration::from_secs(60)), stream)));
            } else {
                let _ = stream.write_all(&bytes);
            }
        }
    });
    (url, asked)
}

fn ok(body: &[u8], promised: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {promised}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[test]
fn only_named_servers_are_asked() {
    let scene = Scene::new();
    let imported = scene.import(&[], Limits::default());
    assert!(imported.notes.iter().any(|n| n.contains("it is not on this machine")), "{:?}", imported.notes);
    assert!(imported.fetched.is_empty() && !scene.path("cache").exists());
    assert!(!scene.listing().unwrap().has_code(), "the names are the profile's");
}

#[test]
fn bad_answers_are_reported_and_never_stored() {
    let scene = Scene::new();
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    let other = fs::read("/bin/true").unwrap();
    let quick = Limits { silence: Duration::from_millis(400), ..Limits::default() };
    let small = Limits { file_bytes: 1000, ..quick };
    for (bytes, limits, wanted) in [
        (ok(&other, other.len()), quick, "the file's build id is "),
        (ok(b"<html>", 6), quick, "not an ELF file"),
        (ok(&own[..5000], 6000), quick, "cut off"),
        (ok(&other, other.len()), small, "more than 1000 bytes"),
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".iter().chain(&other).copied().collect(),
            small,
            "1000 bytes",
        ),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n".to_vec(), quick, "status 500"),
        (b"\0\0\0\0 what? \r\n\r\n".to_vec(), quick, ""),
        (Vec::new(), quick, "no further requests"),
    ] {
        let (url, asked) = answers(bytes);
        let imported = scene.import(&[&url], limits);
        let notes =
            imported.notes.iter().filter(|n| n.contains(&url)).cloned().collect::<Vec<_>>().join("\n");
        assert!(!notes.is_empty() && notes.contains(wanted), "'{wanted}': {:?}", imported.notes);
        assert!(
            imported.notes.iter().any(|n| n.contains("it is not on this machine")),
            "{:?}",
            imported.notes
        );
        assert!(imported.samples > 0 && imported.fetched.is_empty());
        assert!(asked.load(Ordering::SeqCst) >= 1);
        let kept: Vec<_> = fs::read_dir(scene.path("cache")).into_iter().flatten().collect();
        assert!(kept.is_empty(), "{wanted}: {kept:?}");
    }
}

#[test]
fn a_miss_is_remembered_and_the_next_server_is_asked() {
    let scene = Scene::new();
    let image = fs::read(scene.path("served/spin")).unwrap();
    let (without, asked) =
        answers(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    let dead = "http://127.0.0.1:9".to_owned(); // Nothing listens on this port.
    for _ in 0..2 {
        let imported = scene.import(&[&without], Limits::default());
        assert!(imported.notes.iter().any(|n| n.contains("it is not on this machine")));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1, "for a while a miss is known");
    fs::remove_dir_all(scene.path("cache")).unwrap();
    let (with, _) = answers(ok(&image, image.len()));
    let imported = scene.import(&[&dead, &without, &with], Limits::default());
    assert_eq!(imported.fetched[0].url, with, "{:?}", imported.notes);
    assert!(imported.notes.iter().any(|n| n.contains(&dead) && n.contains("no further requests")));
}

/// OpenSSL's own server, which sends the files of a folder, with a certificate that it signed itself.
struct TlsServer {
    child: Child,
    url: String,
    certificate: PathBuf,
}

impl TlsServer {
    /// Starts the server. Returns `None` and prints a message if OpenSSL is not installed.
    fn start(folder: &Path, test: &str) -> Option<TlsServer> {
        let [key, certificate] = ["key.pem", "certificate.pem"].map(|name| folder.join(name));
        let mut made = Command::new("openssl");
        made.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        made.args([
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        match made.arg("-keyout").arg(&key).arg("-out").arg(&certificate).output() {
            Ok(ended) if ended.status.success() => {}
            other => {
                println!("SKIPPED {test}: openssl req: {other:?}");
                return None;
            }
        }
        let mut server = Command::new("openssl");
        server.current_dir(folder).args(["s_server", "-accept", "127.0.0.1:0", "-WWW", "-key"]).arg(&key);
        server.arg("-cert").arg(&certificate).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = server.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = said.find_map(|line| line.strip_prefix("ACCEPT 127.0.0.1:").map(str::to_owned));
        // Its output is read to the end: openssl would end at its next line if nobody read it.
        std::thread::spawn(move || said.for_each(drop));
        Some(TlsServer {
            child,
            url: format!("https://127.0.0.1:{}", port.expect("it listens")),
            certificate,
        })
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
    }
}

const TRUSTING: &str = "DWELL_TEST_TRUSTING";

/// A private certificate authority is trusted only if the system trusts it. The system's certificates are read only once, so
/// this test runs itself again with its own certificate among them.
#[test]
fn an_untrusted_tls_certificate_is_refused() {
    let test = "an_untrusted_tls_certificate_is_refused";
    if let Ok(url) = std::env::var(TRUSTING) {
        return over_tls_from(&url);
    }
    let scene = Scene::new();
    let served = scene.path(&format!("served/buildid/{}", scene.build_id));
    fs::create_dir_all(&served).unwrap();
    fs::copy(scene.path("served/spin"), served.join("executable")).unwrap();
    fs::copy(scene.path("served/spin.debug"), served.join("debuginfo")).unwrap();
    let Some(server) = TlsServer::start(&scene.path("served"), test) else { return };
    let imported = scene.import(&[&server.url], Limits::default());
    let notes = imported.notes.iter().find(|n| n.contains(&server.url)).expect("a note on the server");
    assert!(
        notes.contains("its certificate is not trusted here") && notes.contains("SSL_CERT_FILE"),
        "{notes}"
    );
    assert!(imported.samples > 0 && imported.fetched.is_empty());
    let mut trusting = Command::new(std::env::current_exe().unwrap());
    trusting.args(["--exact", test, "--nocapture"]).env("SSL_CERT_FILE", &server.certificate);
    let place = format!("{} {} {}", server.url, scene.build_id, scene.folder.path().display());
    run(trusting.env(TRUSTING, place));
}

/// The same server, whose certificate this process trusts.
fn over_tls_from(place: &str) {
    let [url, build_id, folder] = place.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{place}") };
    let cache = Path::new(folder).join("trusting");
    let servers = Servers { urls: vec![url.to_owned()], cache, limits: Limits::default() };
    let profile = Path::new(folder).join("profile");
    let request = ImportFile { path: profile, servers, ..ImportFile::default() };
    let database = Database::open(Path::new(folder).join("trusting-db")).unwrap();
    let imported = import_perf_data(&database, &request, Timestamp::now()).unwrap();
    let fetched: Vec<_> = imported.fetched.iter().map(|f| (f.artifact.name(), &*f.build_id)).collect();
    assert_eq!(fetched, [("executable", build_id), ("debuginfo", build_id)], "{:?}", imported.notes);
}
