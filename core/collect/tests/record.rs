//! Tests recording on this machine into a real database.
//!
//! The sampled program is this test itself, which spins (`spin`) or records (`as_nobody`) if its environment requests it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

use dwell_collect::{
    CollectError, DaemonOptions, Progress, Rate, RecordOptions, Recorded, Renew, Stop, Target, daemon, flush,
    new_epoch, pause, record, resume, status,
};
use dwell_profile::{Database, DatabaseError, Epoch, Event, Pid, Scope, Writer};

const SPIN: &str = "DWELL_TEST_SPIN_MS";
const NOBODY: &str = "DWELL_TEST_NOBODY_DB";

/// Helper of other tests, not a test: spins if the environment requests it.
#[test]
fn spin() {
    let Some(ms) = std::env::var(SPIN).ok().and_then(|v| v.parse().ok()) else { return };
    let mut x = 1_u64;
    while own_cpu_time() < Duration::from_millis(ms) {
        (0..100_000_u64).for_each(|i| x = std::hint::black_box(x.wrapping_mul(i | 1) ^ i));
    }
    std::process::exit(7);
}

/// Returns the CPU time of this process. On a busy machine, wall time is not related to the work.
fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn own_path() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn spinning(exe: &Path, ms: u32) -> Vec<OsString> {
    let assignment = format!("{SPIN}={ms}");
    let words = ["env", &assignment, exe.to_str().unwrap(), "--exact", "spin", "--nocapture"];
    words.iter().map(OsString::from).collect()
}

/// Starts a process and returns once it spins. The test harness spins in a separate thread, and a thread that is created
/// between listing the threads of a process and opening their events is missed, as by perf.
fn spawn_spinning(exe: &Path) -> std::process::Child {
    let child = Command::new(exe).args(["--exact", "spin"]).env(SPIN, "600").spawn().unwrap();
    let threads = || fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, |t| t.count());
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while threads() < 2 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

struct Bench {
    _folder: tempfile::TempDir,
    database: Database,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    Bench { _folder: folder, database }
}

fn options(target: Target, hz: u32) -> RecordOptions {
    RecordOptions { rate: Rate::Frequency(hz), ..RecordOptions::new(target) }
}

fn run(database: &Database, options: RecordOptions) -> Result<Recorded, CollectError> {
    record(options, &writer(database), &Stop::new(), &mut |_| ())
}

/// Locks the database. The tests run in parallel in one process, so a command that another test has just forked may hold a
/// copy of our lock's descriptor until its exec.
fn writer(database: &Database) -> Writer {
    let start = Instant::now();
    loop {
        match database.writer() {
            Ok(writer) => return writer,
            Err(DatabaseError::WriterBusy { .. }) if start.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the samples by application and image, without those of derived events.
fn by_app_and_image(database: &Database, epoch: &Epoch) -> BTreeMap<(String, String), u64> {
    let mut sums = BTreeMap::new();
    for (key, count) in &database.read(&epoch.id).unwrap().counts {
        if !key.event.is_derived() {
            *sums.entry((key.app.to_string(), key.image.to_string())).or_default() += count;
        }
    }
    sums
}

/// Returns whether this machine permits sampling at all.
fn can_record(name: &str) -> bool {
    match run(&bench().database, options(Target::Command(vec!["true".into()]), 1000)) {
        Err(error @ (CollectError::Denied { .. } | CollectError::Open { .. })) => {
            println!("SKIPPED {name}: {error}");
            false
        }
        _ => true,
    }
}

fn only_event(epoch: &Epoch) -> (&Event, &dwell_profile::EventRecord) {
    assert_eq!(epoch.events.len(), 1);
    epoch.events.iter().next().unwrap()
}

#[test]
fn a_spinning_command_is_sampled_in_its_own_image() {
    if !can_record("a_spinning_command_is_sampled_in_its_own_image") {
        return;
    }
    let bench = bench();
    let recorded = run(&bench.database, options(Target::Command(spinning(&own_path(), 800)), 5000)).unwrap();
    assert_eq!(recorded.exit.and_then(|e| e.code()), Some(7));
    let (event, tallies) = only_event(&recorded.epoch);
    assert!(event.is_time());
    assert_eq!((tallies.lost, tallies.unknown), (0, 0), "{tallies:?}");
    let stored = by_app_and_image(&bench.database, &recorded.epoch);
    assert_eq!(stored.values().sum::<u64>(), tallies.samples, "what was tallied is stored");
    assert!(tallies.samples > 3000, "{tallies:?}");
    assert!(tallies.running_share.is_some_and(|share| share > 0.98), "{tallies:?}");
    let name = own_path().file_name().unwrap().to_string_lossy().into_owned();
    let own = dwell_image::build_id_of_file(own_path()).unwrap().to_string();
    let on_own = stored.get(&(name, own)).copied().unwrap_or(0);
    assert!(on_own * 10 >= tallies.samples * 9, "{on_own} of {}: {stored:?}", tallies.samples);
    let clock = recorded.epoch.cpu.clock_hz;
    assert!(cfg!(not(target_arch = "x86_64")) || clock.is_some_and(|hz| hz > 5e8), "{clock:?}");
}

#[test]
fn a_running_process_is_recorded_until_it_ends() {
    if !can_record("a_running_process_is_recorded_until_it_ends") {
        return;
    }
    let bench = bench();
    let mut child = spawn_spinning(&own_path());
    let recorded = run(&bench.database, options(Target::Processes(vec![Pid(child.id())]), 1000)).unwrap();
    child.wait().unwrap();
    assert_eq!(recorded.epoch.scope, Scope::Processes(vec![Pid(child.id())]));
    let (_, tallies) = only_event(&recorded.epoch);
    assert!(tallies.samples > 30 && tallies.lost == 0, "{tallies:?}");
    let gone = run(&bench.database, options(Target::Processes(vec![Pid(child.id())]), 1000)).unwrap_err();
    assert!(matches!(gone, CollectError::NoSuchProcess(_)), "{gone}");
}

#[test]
fn invalid_requests_are_reported_and_leave_no_epoch() {
    if !can_record("invalid_requests_are_reported_and_leave_no_epoch") {
        return;
    }
    let bench = bench();
    let missing =
        run(&bench.database, options(Target::Command(vec!["/no/such/program".into()]), 1000)).unwrap_err();
    assert!(missing.to_string().starts_with("cannot run '/no/such/program': No such file"), "{missing}");
    let nothing = run(&bench.database, options(Target::Command(Vec::new()), 1000)).unwrap_err();
    assert!(matches!(nothing, CollectError::NoCommand));
    let mut unknown = options(Target::System, 1000);
    unknown.events = vec![Event::named("cucumbers")];
    assert!(matches!(run(&bench.database, unknown).unwrap_err(), CollectError::NoSuchEvent { .. }));
    assert_eq!(bench.database.epochs().unwrap().epochs, []);
}

#[test]
fn missing_samples_of_new_processes_are_noted() {
    if !can_record("missing_samples_of_new_processes_are_noted") {
        return;
    }
    let bench = bench();
    let note_of = |words: &[OsString]| {
        let recorded = run(&bench.database, options(Target::Command(words.to_vec()), 1000)).unwrap();
        recorded.epoch.notes.iter().find(|n| n.contains("restarted the sampling period")).cloned()
    };
    let forking = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); (:); done";
    let note = note_of(&["sh", "-c", forking].map(OsString::from)).unwrap_or_default();
    assert!(note.starts_with("200 new processes") && note.contains(" 100 samples ("), "{note}");
    assert_eq!(note_of(&spinning(&own_path(), 800)), None, "the harness's threads are few");
}

#[test]
fn stopping_ends_the_command_and_keeps_the_samples() {
    if !can_record("stopping_ends_the_command_and_keeps_the_samples") {
        return;
    }
    let bench = bench();
    let stop = Stop::new();
    let start = Instant::now();
    let mut progress = |p: Progress| {
        if matches!(p, Progress::Running { .. }) {
            stop.stop();
        }
    };
    let asked = options(Target::Command(spinning(&own_path(), 30_000)), 1000);
    let recorded = record(asked, &writer(&bench.database), &stop, &mut progress).unwrap();
    assert!(recorded.interrupted && start.elapsed() < Duration::from_secs(20));
    assert_eq!(recorded.exit.and_then(|e: ExitStatus| e.signal()), Some(15));
    let stored = by_app_and_image(&bench.database, &recorded.epoch);
    assert!(stored.values().sum::<u64>() > 20, "{stored:?}");
    assert!(recorded.epoch.end.is_some());
}

/// Branch stacks are recorded by default. There is no note about them if no counter is sampled, because the kernel provides no
/// branches for a timer.
#[test]
fn branch_stacks_are_recorded_if_the_processor_supports_them() {
    let test = "branch_stacks_are_recorded_if_the_processor_supports_them";
    if !can_record(test) {
        return;
    }
    let bench = bench();
    let request = RecordOptions {
        breakpoints_percent: 0.0,
        ..options(Target::Command(spinning(&own_path(), 800)), 1000)
    };
    let recorded = run(&bench.database, request).unwrap();
    let notes: Vec<&String> = recorded.epoch.notes.iter().filter(|n| n.contains("branch stacks")).collect();
    assert_eq!(notes.len(), usize::from(*only_event(&recorded.epoch).0 == Event::CYCLES), "{notes:?}");
    let evidence = bench.database.read(&recorded.epoch.id).unwrap().evidence;
    if notes.iter().any(|note| note.contains("samples have branch stacks")) {
        assert!(evidence.iter().any(|stacks| stacks.transfers().iter().any(|t| t.count > 100)), "{notes:?}");
    } else {
        assert!(evidence.is_empty());
        println!("SKIPPED {test}: no LBR or BRBE here ({notes:?})");
    }
}

/// Helper of `without_privilege_…`, which runs it as user nobody.
#[test]
fn as_nobody() {
    let Some(folder) = std::env::var_os(NOBODY) else { return };
    let database = Database::open(&folder).unwrap();
    let denied = run(&database, options(Target::System, 1000)).unwrap_err();
    assert!(matches!(denied, CollectError::SystemDenied { .. }), "{denied}");
    match run(&database, options(Target::Command(spinning(&own_path(), 500)), 1000)) {
        Ok(recorded) => {
            assert!(
                recorded.epoch.notes.iter().any(|n| n.starts_with("user mode only")),
                "{:?}",
                recorded.epoch.notes
            );
            let stored = by_app_and_image(&database, &recorded.epoch);
            assert!(stored.values().sum::<u64>() > 20, "{stored:?}");
            assert!(!stored.keys().any(|(_, image)| image == "kernel"), "{stored:?}");
        }
        Err(error @ CollectError::Denied { .. }) => println!("SKIPPED as_nobody: {error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn without_privilege_a_command_is_recorded_in_user_mode() {
    let name = "without_privilege_a_command_is_recorded_in_user_mode";
    let paranoid: i32 = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .map_or(4, |p| p.trim().parse().unwrap_or(4));
    if !rustix::process::geteuid().is_root() || paranoid < 1 {
        println!("SKIPPED {name}: needs root, to become nobody, and perf_event_paranoid of at least 1");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let exe = folder.path().join("test");
    // The user nobody may have no access to our folder. Another process copies the file: a child that another test forks could
    // hold our copy open for writing, so that it could not be executed.
    assert!(Command::new("cp").arg(own_path()).arg(&exe).status().unwrap().success());
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"])
        .args([exe.to_str().unwrap(), "--exact", "as_nobody", "--nocapture"])
        .env(NOBODY, folder.path().join("db"))
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .output();
    match output {
        Err(error) => println!("SKIPPED {name}: setpriv cannot run: {error}"),
        Ok(output) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn a_daemon_answers_flushes_and_changes_epochs() {
    let bench = bench();
    let writer = writer(&bench.database);
    let stop = Stop::new();
    let running = std::thread::spawn({
        let stop = stop.clone();
        move || daemon(DaemonOptions::default(), &writer, &stop, &Renew::new(), &mut |_| ())
    });
    let first = loop {
        match status(&bench.database) {
            Ok(status) => break status,
            Err(_) if running.is_finished() => {
                println!(
                    "SKIPPED a_daemon_answers_flushes_and_changes_epochs: {}",
                    running.join().unwrap().unwrap_err()
                );
                return;
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(first.pid, Pid(std::process::id()));
    assert!(["kmod", "bpf", "perf"].contains(&first.backend.as_str()), "{}", first.backend);
    assert!(
        first.notes.iter().any(|n| n.starts_with(&format!("backend {}", first.backend))),
        "{:?}",
        first.notes
    );
    assert!(first.processes > 1 && first.memory_bytes > 1 << 20);
    assert!(bench.database.writer().is_err(), "a second one is refused");
    std::thread::sleep(Duration::from_millis(300));
    let samples = flush(&bench.database).unwrap();
    let stored = by_app_and_image(&bench.database, &bench.database.resolve("latest").unwrap());
    assert_eq!(stored.values().sum::<u64>(), samples, "what flush promises is on disk");
    pause(&bench.database).unwrap();
    let settled = || {
        std::thread::sleep(Duration::from_millis(300)); // No record takes longer to arrive.
        flush(&bench.database).unwrap()
    };
    let paused = settled();
    assert_eq!(settled(), paused, "nothing is sampled while paused");
    resume(&bench.database, None).unwrap();
    assert!((0..100).any(|_| settled() > paused), "it goes on");
    let second = new_epoch(&bench.database, Some("second")).unwrap();
    assert_eq!(bench.database.resolve("second").unwrap().id, second);
    assert!(bench.database.resolve("latest~1").unwrap().end.is_some());
    let taken = new_epoch(&bench.database, Some("second")).unwrap_err();
    assert!(taken.to_string().contains("already used"), "{taken}");
    assert_eq!(status(&bench.database).unwrap().epoch, second);
    stop.stop();
    let last = running.join().unwrap().unwrap();
    assert!(last.id == second && last.end.is_some());
    assert!(matches!(status(&bench.database), Err(CollectError::NoDaemon(_))));
}

/// Mounts a file system of 1 MiB. Returns whether that succeeded.
fn mount_small(folder: &Path) -> bool {
    Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "dwell-test", folder.to_str().unwrap()])
        .output()
        .is_ok_and(|o| o.status.success())
}

fn unmount(folder: &Path) {
    let _ = Command::new("umount").arg("-l").arg(folder).status();
}

#[test]
fn a_full_disk_loses_nothing_that_was_stored() {
    let name = "a_full_disk_loses_nothing_that_was_stored";
    let folder = tempfile::tempdir().unwrap();
    if !mount_small(folder.path()) || !can_record(name) {
        println!("SKIPPED {name}: cannot mount a small file system");
        return;
    }
    let database = Database::open(folder.path().join("db")).unwrap();
    let ballast = folder.path().join("ballast");
    let asked = RecordOptions {
        flush_every: Duration::from_millis(300),
        ..options(Target::Command(spinning(&own_path(), 4_000)), 1000)
    };
    let mut warnings = Vec::new();
    let mut progress = |p: Progress| match p {
        // The disk is filled after the first store, and emptied after the first warning.
        Progress::Flushed { .. } if warnings.is_empty() && !ballast.exists() => {
            let _ = fs::write(&ballast, vec![0; 2 << 20]);
        }
        Progress::Warning(warning) => {
            let _ = fs::remove_file(&ballast);
            warnings.push(warning);
        }
        _ => {}
    };
    let recorded = record(asked, &writer(&database), &Stop::new(), &mut progress);
    let checked = recorded.map(|r| {
        let stored: u64 = by_app_and_image(&database, &r.epoch).values().sum();
        (stored, only_event(&r.epoch).1.samples)
    });
    drop(database);
    unmount(folder.path());
    let (stored, tallied) = checked.unwrap();
    assert_eq!(stored, tallied);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("kept in memory"), "{warnings:?}");
}

#[test]
fn an_epoch_that_cannot_end_continues() {
    let name = "an_epoch_that_cannot_end_continues";
    let folder = tempfile::tempdir().unwrap();
    if !mount_small(folder.path()) || !can_record(name) {
        println!("SKIPPED {name}: cannot mount a small file system");
        return;
    }
    let database = Database::open(folder.path().join("db")).unwrap();
    let (stop, writer) = (Stop::new(), writer(&database));
    let running = std::thread::spawn({
        let stop = stop.clone();
        move || daemon(DaemonOptions::default(), &writer, &stop, &Renew::new(), &mut |_| ())
    });
    while status(&database).is_err() && !running.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    let ballast = folder.path().join("ballast");
    let _ = fs::write(&ballast, vec![0; 2 << 20]);
    let refused = new_epoch(&database, Some("second")).map_err(|error| error.to_string());
    let epochs = database.epochs().unwrap().epochs.len();
    fs::remove_file(&ballast).unwrap();
    stop.stop();
    let last = running.join().unwrap().map(|epoch| {
        let stored: u64 = by_app_and_image(&database, &epoch).values().sum();
        (stored, only_event(&epoch).1.samples)
    });
    drop(database);
    unmount(folder.path());
    assert!(refused.as_ref().is_err_and(|e| e.contains("failed")), "{refused:?}");
    assert_eq!(epochs, 1, "none was begun");
    let (stored, tallied) = last.unwrap();
    assert!(stored > 0 && stored == tallied, "{stored} of {tallied}");
}

#[test]
fn a_deleted_program_keeps_its_build_id() {
    let name = "a_deleted_program_keeps_its_build_id";
    if !can_record(name) {
        return;
    }
    let bench = bench();
    let folder = tempfile::tempdir().unwrap();
    let exe = folder.path().join("gone");
    fs::copy(own_path(), &exe).unwrap();
    let mut child = spawn_spinning(&exe);
    fs::remove_file(&exe).unwrap();
    let recorded = run(&bench.database, options(Target::Processes(vec![Pid(child.id())]), 1000)).unwrap();
    child.wait().unwrap();
    let own = dwell_image::build_id_of_file(own_path()).unwrap().to_string();
    let stored = by_app_and_image(&bench.database, &recorded.epoch);
    let on_own = stored.get(&("gone".to_owned(), own.clone())).copied().unwrap_or(0);
    assert!(on_own > 20, "{stored:?}");
    let images = bench.database.read(&recorded.epoch.id).unwrap().images;
    let image = images.iter().find(|i| i.id.as_str() == own).unwrap();
    assert!(image.deleted && image.path == exe, "{image:?}");
}
