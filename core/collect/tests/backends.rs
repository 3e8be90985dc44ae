//! Compares backends on this machine: the same workload at the same time must give the same counts.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use dwell_collect::{
    BackendChoice, CollectError, Progress, Rate, RecordOptions, Recorded, Stop, Target, record,
};
use dwell_profile::{Database, Event, ImageId};

const SPIN: &str = "DWELL_TEST_SPIN_MS";
const SPIN_MS: u64 = 3000;
/// Name of the spinning application, which no other program has.
const PROGRAM: &str = "dwell-spins-here";

/// Helper of other tests, not a test: spins if the environment requests it.
#[test]
fn spin() {
    let Some(ms) = std::env::var(SPIN).ok().and_then(|v| v.parse().ok()) else { return };
    let own_cpu_time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let mut x = 1_u64;
    while own_cpu_time() < Duration::from_millis(ms) {
        (0..100_000_u64).for_each(|i| x = std::hint::black_box(x.wrapping_mul(i | 1) ^ i));
    }
}

const READ: &str = "DWELL_TEST_READ_MS";
const READ_MS: u64 = 2000;
/// Name of the reading application, which no other program has.
const READER: &str = "dwell-reads-here";

/// Helper of other tests, not a test: if the environment requests it, makes the kernel fill a buffer with zeros, by one
/// system call of libc.
#[test]
fn read() {
    let Some(ms) = std::env::var(READ).ok().and_then(|v| v.parse().ok()) else { return };
    let mut zeros = fs::File::open("/dev/zero").unwrap();
    let mut buffer = vec![1; 64 << 10];
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(ms) {
        (0..1000).for_each(|_| std::io::Read::read_exact(&mut zeros, &mut buffer).unwrap());
    }
}

/// Records the whole machine until `stop`. Signals when it has begun, or has ended without beginning.
fn sample(
    database: Database,
    backend: BackendChoice,
    stop: Stop,
    begun: Sender<()>,
) -> Result<Recorded, CollectError> {
    let mut options = RecordOptions::new(Target::System);
    options.backend = backend;
    options.rate = Rate::Frequency(1000);
    options.events = vec![Event::CPU_CLOCK];
    options.flush_every = Duration::from_millis(500); // This makes several batches.
    let writer = database.writer()?;
    record(options, &writer, &stop, &mut |progress| {
        if matches!(progress, Progress::Started(_)) {
            let _ = begun.send(());
        }
    })
}

/// Returns the samples of the program by image, and the number of those of derived events.
fn of_program(database: &Database, recorded: &Recorded) -> (BTreeMap<String, u64>, u64) {
    let (mut images, mut derived) = (BTreeMap::new(), 0);
    for (key, count) in &database.read(&recorded.epoch.id).unwrap().counts {
        if &*key.app != PROGRAM {
            continue;
        }
        if key.event.is_derived() {
            derived += count;
        } else {
            *images.entry(key.image.to_string()).or_default() += count;
        }
    }
    (images, derived)
}

/// Records the machine through BPF and rings at the same time while a copy of this test runs one of its helpers, `spin` or
/// `read`, as `program`. Returns `None` and prints a message if this machine does not permit it.
fn by_both(
    test: &str,
    folder: &Path,
    program: &str,
    (does, variable, ms): (&str, &str, u64),
) -> Option<[(Database, Recorded); 2]> {
    let program = folder.join(program);
    // Another process copies the file: a fork of ours could hold our copy open for writing, so that it could not be executed.
    assert!(
        Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap().success()
    );
    let stop = Stop::new();
    let (begun, begins) = channel();
    let run = |backend, name: &str| {
        let database = Database::open(folder.join(name)).unwrap();
        let (of_thread, stop, begun) = (database.clone(), stop.clone(), begun.clone());
        (database, thread::spawn(move || sample(of_thread, backend, stop, begun)))
    };
    let runs = [run(BackendChoice::Bpf, "bpf"), run(BackendChoice::Perf, "perf")];
    drop(begun);
    let both_run = begins.recv().is_ok() && begins.recv().is_ok();
    if both_run {
        let ran =
            Command::new(&program).args(["--exact", does]).env(variable, ms.to_string()).status().unwrap();
        assert!(ran.success());
    }
    stop.stop();
    let ended = runs.map(|(database, thread)| (database, thread.join().unwrap()));
    if let Some(error) = ended.iter().find_map(|(_, recorded)| recorded.as_ref().err()) {
        println!("SKIPPED {test}: {error}");
        return None;
    }
    Some(ended.map(|(database, recorded)| (database, recorded.unwrap())))
}

#[test]
fn bpf_and_rings_agree_on_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let spins = ("spin", SPIN, SPIN_MS);
    let Some(ended) = by_both("bpf_and_rings_agree_on_a_workload", folder.path(), PROGRAM, spins) else {
        return;
    };
    let program = folder.path().join(PROGRAM);
    let [bpf, perf] = ended.map(|(database, recorded)| {
        let tallies = &recorded.epoch.events[&Event::CPU_CLOCK];
        let stored = database.read(&recorded.epoch.id).unwrap().counts;
        let sampled: u64 = stored.iter().filter(|(k, _)| !k.event.is_derived()).map(|(_, n)| n).sum();
        assert_eq!(sampled, tallies.samples, "{}: what was tallied is stored", recorded.epoch.backend);
        assert_eq!(tallies.lost, 0, "{}", recorded.epoch.backend);
        assert!(tallies.unknown * 200 <= tallies.samples, "{}: {tallies:?}", recorded.epoch.backend);
        (recorded.epoch.backend.clone(), of_program(&database, &recorded))
    });
    assert_eq!((bpf.0.as_str(), perf.0.as_str()), ("bpf", "perf"));
    let own = dwell_image::build_id_of_file(&program).unwrap().to_string();
    let (by_bpf, by_perf) =
        (bpf.1.0.get(&own).copied().unwrap_or(0), perf.1.0.get(&own).copied().unwrap_or(0));
    assert!(by_bpf * 2 > SPIN_MS && by_perf * 2 > SPIN_MS, "{bpf:?} {perf:?}");
    // Each backend draws its own periods, from ±12.5% around the same mean, on each CPU every 250 or 500 ms, in symmetric pairs.
    // In this time incomplete pairs cause a difference of 7% at most.
    assert!(by_bpf.abs_diff(by_perf) <= by_perf / 12 + 30, "{by_bpf} by BPF, {by_perf} by rings");
    assert!(cfg!(not(target_arch = "x86_64")) || bpf.1.1 > 50, "branch directions: {}", bpf.1.1);
}

/// Returns the place that most of the reader's kernel time is charged to, with its count, the total, and the samples in the
/// kernel.
fn charged(database: &Database, recorded: &Recorded) -> ((String, u64), u64, u64, u64) {
    let (mut places, mut in_kernel) = (BTreeMap::<_, u64>::new(), 0);
    for (key, count) in &database.read(&recorded.epoch.id).unwrap().counts {
        if &*key.app != READER {
            continue;
        }
        if key.event == Event::KERNEL_TIME {
            *places.entry((key.image.to_string(), key.offset.0)).or_default() += count;
        } else if key.event == Event::CPU_CLOCK && key.image == ImageId::kernel() {
            in_kernel += count;
        }
    }
    let all = places.values().sum();
    let (place, most) = places.into_iter().max_by_key(|(_, count)| *count).expect("it reads");
    (place, most, all, in_kernel)
}

/// The kernel's time is charged to the one instruction that entered it, by BPF as by rings.
#[test]
fn bpf_and_rings_charge_the_kernels_time_to_the_same_instruction() {
    let folder = tempfile::tempdir().unwrap();
    let test = "bpf_and_rings_charge_the_kernels_time_to_the_same_instruction";
    let Some(ended) = by_both(test, folder.path(), READER, ("read", READ, READ_MS)) else { return };
    let [bpf, perf] = ended.map(|(database, recorded)| charged(&database, &recorded));
    println!("place, samples there, charged, in the kernel: {bpf:?} by BPF, {perf:?} by rings");
    assert_eq!(bpf.0, perf.0);
    for (_, there, all, in_kernel) in [&bpf, &perf] {
        assert!(*there * 10 > READ_MS && there * 10 >= all * 9, "{bpf:?} {perf:?}");
        assert!(all <= in_kernel && all * 20 >= in_kernel * 19, "{bpf:?} {perf:?}");
    }
    assert!(bpf.1.abs_diff(perf.1) <= perf.1 / 12 + 30, "{bpf:?} {perf:?}"); // The bound is that of the other workload.
}

#[test]
fn the_reason_why_a_backend_does_not_work_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("db")).unwrap();
    let forced = |backend, target| {
        let options = RecordOptions { backend, ..RecordOptions::new(target) };
        record(options, &database.writer().unwrap(), &Stop::new(), &mut |_| ()).unwrap_err().to_string()
    };
    let command = || Target::Command(vec!["true".into()]);
    let message = forced(BackendChoice::Bpf, command());
    assert!(
        message.starts_with("cannot collect with backend bpf: ") && message.contains("use perf"),
        "{message}"
    );
    if !fs::exists("/dev/dwell").unwrap() {
        let message = forced(BackendChoice::Kmod, Target::System);
        assert!(message.starts_with("cannot collect with backend kmod: "), "{message}");
    }
    assert_eq!(database.epochs().unwrap().epochs, []);
}
