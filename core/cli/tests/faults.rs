//! What befalls a daemon on a production machine: killed at any moment, a database that cannot be written, a second
//! daemon, storms of forks, a shifted clock. Required throughout: what was flushed is there, once; the database opens; the
//! sums agree; and what goes wrong is said in one line.
//!
//! `DWELL_KILLS=200` kills so often (12 by default), `DWELL_FORK_SECONDS=60` forks so long (3): `npm run test:faults`.

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use dwell_profile::{Database, Epoch, EventRecord};
use support::{Ended, Scratch, can_sample, is_root, workload};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A small generator; its seed is printed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A daemon on the scratch database, and a program that keeps it busy; both end with this.
struct Running {
    daemon: Child,
    victim: Child,
}

impl Running {
    /// Once it answers; `None` where this machine lets nobody sample all of it.
    fn start(scratch: &Scratch, test: &str, options: &[&str]) -> Option<Running> {
        let words = [&["daemon", "-e", "cpu-clock"], options].concat();
        let log = fs::File::create(scratch.path("daemon.log")).unwrap();
        let daemon = scratch.command(&words).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let victim = Command::new(workload("divide")).arg("100000000").stdout(Stdio::null()).spawn().unwrap();
        let mut running = Running { daemon, victim };
        while scratch.dwell(&["status"]).status != Some(0) {
            if let Some(status) = running.daemon.try_wait().unwrap() {
                let said = fs::read_to_string(scratch.path("daemon.log")).unwrap();
                assert!(said.contains("perf_event_paranoid") || said.contains("denied"), "{status}: {said}");
                println!("SKIPPED {test}: {}", said.trim());
                return None;
            }
            sleep(Duration::from_millis(20));
        }
        Some(running)
    }

    fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill").args([signal, &self.daemon.id().to_string()]).status().unwrap().success()
        );
    }

    /// Asks it to end, and waits.
    fn end(mut self) {
        self.signal("-TERM");
        let status = self.daemon.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in [&mut self.daemon, &mut self.victim] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn stored(database: &Database, epoch: &Epoch) -> u64 {
    let read = database.read(&epoch.id).unwrap();
    assert_eq!(read.warnings, [], "epoch {}", epoch.id);
    read.counts.iter().filter(|(key, _)| !key.event.is_derived()).map(|(_, count)| count).sum()
}

fn tallied(epoch: &Epoch) -> u64 {
    epoch.events.values().map(|event| event.samples).sum()
}

/// Samples that `dwell flush` promised.
fn promised(flushed: &Ended) -> Option<u64> {
    let text = flushed.stdout.trim();
    serde_json::from_str::<serde_json::Value>(text).ok()?["samples"].as_u64()
}

/// Nothing that a flush promised is lost, wherever the daemon is when it is killed: while it starts, samples, stores,
/// compacts, or answers.
#[test]
fn kill_9_loses_nothing_that_was_flushed() {
    let (kills, seed) = (number("DWELL_KILLS", 12), number("DWELL_KILL_SEED", 1));
    println!("DWELL_KILLS={kills} DWELL_KILL_SEED={seed}");
    let (scratch, random) = (Scratch::new(), &mut Random(seed));
    if !is_root() || !can_sample("kill_9_loses_nothing_that_was_flushed") {
        println!(
            "SKIPPED kill_9_loses_nothing_that_was_flushed: needs the right to sample the whole machine"
        );
        return;
    }
    for kill in 0..kills {
        let promise = kill_one(&scratch, random, kill);
        // The database opens and contains what was promised. An epoch that a daemon only began may be empty.
        let database = Database::open(scratch.path("database")).unwrap();
        let list = database.epochs().unwrap();
        assert_eq!(list.warnings, [], "kill {kill}");
        if let (Some(promise), Some(epoch)) = (promise, list.epochs.last()) {
            let there = stored(&database, epoch);
            assert!(there >= promise, "kill {kill}: {there} of {promise} samples");
            assert!(tallied(epoch) <= there, "kill {kill}: {} told, {there} there", tallied(epoch));
        }
    }
    let database = Database::open(scratch.path("database")).unwrap();
    let writer = database.writer().unwrap();
    for epoch in database.epochs().unwrap().epochs {
        let before = stored(&database, &epoch);
        writer.compact(&epoch.id).unwrap();
        assert_eq!(stored(&database, &epoch), before);
    }
    assert_eq!(fs::read_dir(scratch.path("database/tmp")).unwrap().count(), 0, "left in tmp");
}

/// Starts a daemon and kills it somewhere; the samples that its last flush promised.
fn kill_one(scratch: &Scratch, random: &mut Random, kill: u64) -> Option<u64> {
    let early = random.below(4) == 0;
    let words = ["daemon", "-e", "cpu-clock", "-F", "5000", "--flush-interval", "1"];
    let mut daemon = scratch.command(&words).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    if early {
        sleep(Duration::from_millis(random.below(150)));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        return None;
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while scratch.dwell(&["status"]).status != Some(0) {
        assert!(daemon.try_wait().unwrap().is_none() && Instant::now() < deadline, "kill {kill}: no daemon");
    }
    let mut promise = None;
    for _ in 0..random.below(4) {
        sleep(Duration::from_millis(random.below(40)));
        promise = promised(&scratch.dwell(&["flush", "--json"])).or(promise);
    }
    // In some runs the daemon is killed during a flush.
    let asking =
        (random.below(2) == 0).then(|| scratch.command(&["flush"]).stderr(Stdio::null()).spawn().unwrap());
    sleep(Duration::from_micros(random.below(60_000)));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    asking.map(|mut asking| asking.wait());
    promise
}

#[test]
fn a_second_daemon_is_refused() {
    let scratch = Scratch::new();
    let Some(running) = Running::start(&scratch, "a_second_daemon_is_refused", &[]) else { return };
    let second = scratch.dwell(&["daemon", "-e", "cpu-clock"]);
    assert_eq!(second.status, Some(1), "{second:?}");
    assert_eq!(second.stderr.lines().count(), 1, "{second:?}");
    assert!(second.stderr.contains(&format!("process {}", running.daemon.id())), "{second:?}");
    assert_eq!(scratch.dwell(&["status"]).status, Some(0), "the first one goes on");
    running.end();
}

/// In a mount namespace of our own, so that nothing of it is left whatever happens.
fn unshared(scratch: &Scratch, script: &str) -> Option<Ended> {
    let possible = Command::new("unshare").args(["-m", "true"]).status();
    if !is_root() || !possible.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_dwell")])
        .env("DWELL_DB", scratch.path("database"));
    Some(Ended::from(command.output().unwrap()))
}

/// Commands that only read succeed. Commands that write report in one line why they cannot.
#[test]
fn a_read_only_database_is_read() {
    let name = "a_read_only_database_is_read";
    if !can_sample(name) {
        return;
    }
    let scratch = Scratch::new();
    assert_eq!(scratch.record(&workload("divide"), "60").status, Some(0));
    let before = scratch.json(&["top"]);
    let script = |words: &str| {
        format!(
            "mount --bind \"$DWELL_DB\" \"$DWELL_DB\" && mount -o remount,ro,bind \"$DWELL_DB\" || exit 99; exec \"$0\" {words}"
        )
    };
    let Some(top) = unshared(&scratch, &script("top --json")) else {
        println!("SKIPPED {name}: needs root, to mount it read-only");
        return;
    };
    assert_eq!(top.status, Some(0), "{top:?}");
    let read: serde_json::Value = serde_json::from_str(&top.stdout).unwrap();
    assert_eq!(read["total"], before["total"]);
    assert_eq!(unshared(&scratch, &script("epoch list")).unwrap().status, Some(0));
    for (words, status) in [
        ("record -e cpu-clock -- true", 125),
        ("daemon -e cpu-clock", 1),
        ("epoch rename latest x", 1),
        ("epoch remove latest", 1),
    ] {
        let refused = unshared(&scratch, &script(words)).unwrap();
        assert_eq!(refused.status, Some(status), "{words}: {refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{words}: {refused:?}");
        assert!(refused.stderr.contains("ead-only"), "{words}: {refused:?}");
    }
    assert_eq!(scratch.json(&["top"])["total"], before["total"]);
}

/// In a pid namespace, as in most containers, tables in the kernel would know processes by other numbers than we: rings are taken,
/// and nobody outside passes for the idle task.
#[test]
fn processes_of_a_pid_namespace_are_not_confused() {
    let name = "processes_of_a_pid_namespace_are_not_confused";
    let possible = Command::new("unshare").args(["-p", "-f", "--mount-proc", "true"]).status();
    if !is_root() || !possible.is_ok_and(|status| status.success()) || !can_sample(name) {
        println!("SKIPPED {name}: needs root and pid namespaces");
        return;
    }
    let scratch = Scratch::new();
    let inside = |words: &str| {
        let mut command = Command::new("unshare");
        let script = format!("exec \"$0\" {words}");
        command.args(["-p", "-f", "--mount-proc", "sh", "-c", &script, env!("CARGO_BIN_EXE_dwell")]);
        Ended::from(
            command.arg(workload("divide")).env("DWELL_DB", scratch.path("database")).output().unwrap(),
        )
    };
    let refused = inside("record -a --backend bpf -e cpu-clock --duration 1");
    assert!(refused.status == Some(1) && refused.stderr.contains("pid namespace"), "{refused:?}");
    let recorded = inside("record -a -e cpu-clock -F 2000 -- \"$1\" 200");
    assert_eq!(recorded.status, Some(0), "{recorded:?}");
    assert!(recorded.stderr.contains("outside of it are shown as [outside]"), "{recorded:?}");
    let apps = scratch.json(&["top", "--by", "app", "-n", "0"]);
    let names: Vec<&str> =
        apps["rows"].as_array().unwrap().iter().filter_map(|r| r["app"].as_str()).collect();
    assert!(names.contains(&"divide") && !names.contains(&"[idle]"), "{names:?}");
}

/// Every process is new, and half of them execute: samples in are samples stored, none is lost and hardly one unknown, memory
/// stays within bounds, and the daemon answers meanwhile.
#[test]
fn a_storm_of_forks_is_counted() {
    let (scratch, seconds) = (Scratch::new(), number("DWELL_FORK_SECONDS", 3));
    let options = ["-F", "2000", "--flush-interval", "1"];
    let Some(running) = Running::start(&scratch, "a_storm_of_forks_is_counted", &options) else { return };
    let mut storm = Command::new(workload("storm"))
        .args(["1000", &seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut most, mut status) = (0, serde_json::Value::Null);
    while storm.try_wait().unwrap().is_none() {
        status = scratch.json(&["status"]);
        most = most.max(resident_bytes(&running.daemon));
        sleep(Duration::from_millis(200));
    }
    let forked = String::from_utf8(storm.wait_with_output().unwrap().stdout).unwrap();
    let forked: u64 = forked.trim().parse().unwrap();
    assert!(forked > 0);
    println!("{} forks a second, {most} bytes resident, {status}", forked / seconds);
    assert!(most < RESIDENT_MAX, "{most} bytes resident");
    running.end();
    check_all_is_told(&scratch);
}

/// All that live are known, those that began before the daemon did, and memory stays within bounds.
#[test]
fn samples_of_ten_thousand_processes_are_attributed() {
    let (scratch, wanted) = (Scratch::new(), 10_000.to_string());
    let mut crowd = Command::new(workload("crowd"))
        .arg(&wanted)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answer = String::new();
    BufReader::new(crowd.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    let count: u64 = answer.trim().parse().unwrap();
    let options = ["-F", "2000", "--flush-interval", "1"];
    let Some(running) =
        Running::start(&scratch, "samples_of_ten_thousand_processes_are_attributed", &options)
    else {
        drop(crowd.stdin.take());
        crowd.wait().unwrap();
        return;
    };
    writeln!(crowd.stdin.as_mut().unwrap()).unwrap();
    sleep(Duration::from_secs(3));
    let (status, most) = (scratch.json(&["status"]), resident_bytes(&running.daemon));
    println!("{count} processes, {most} bytes resident");
    assert!(status["processes"].as_u64() >= Some(count), "{status}");
    assert!(most < RESIDENT_MAX, "{most} bytes resident");
    drop(crowd.stdin.take());
    crowd.wait().unwrap();
    running.end();
    check_all_is_told(&scratch);
    let apps = scratch.json(&["top", "--by", "app", "-n", "0"]);
    let named = |row: &&serde_json::Value| row["app"] == "crowd";
    assert!(apps["rows"].as_array().unwrap().iter().any(|row| named(&row)), "{apps}");
}

/// A daemon built for tests maps more than one that is shipped.
const RESIDENT_MAX: u64 = 64 << 20;

/// All reported samples are stored. None is lost, and the place of at most one in a thousand is unknown.
fn check_all_is_told(scratch: &Scratch) {
    let database = Database::open(scratch.path("database")).unwrap();
    for epoch in database.epochs().unwrap().epochs {
        assert_eq!(stored(&database, &epoch), tallied(&epoch), "samples told are samples stored");
        let sum = |of: fn(&EventRecord) -> u64| epoch.events.values().map(of).sum::<u64>();
        assert_eq!(sum(|event| event.lost), 0, "{epoch:?}");
        assert!(sum(|event| event.unknown) * 1000 <= tallied(&epoch).max(1000), "{epoch:?}");
    }
}

fn resident_bytes(child: &Child) -> u64 {
    let statm = fs::read_to_string(Path::new(&format!("/proc/{}/statm", child.id()))).unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096
}

/// In a time namespace the clock that we read is not the one that the kernel stamps records with.
#[test]
fn a_shifted_clock_changes_nothing() {
    let name = "a_shifted_clock_changes_nothing";
    for shift in ["--monotonic=-1000", "--monotonic=100000"] {
        let scratch = Scratch::new();
        let possible = Command::new("unshare").args(["--time", shift, "--fork", "true"]).status();
        if !possible.is_ok_and(|status| status.success()) || !can_sample(name) {
            println!("SKIPPED {name}: no time namespaces here");
            return;
        }
        // Samples are stored while the daemon runs, so counts that it held back until its end would be missing.
        let script = "\"$0\" daemon -e cpu-clock -F 2000 --flush-interval 1 & daemon=$!
            until \"$0\" status >/dev/null 2>&1; do kill -0 $daemon || exit 98; sleep 0.05; done
            \"$1\" 200 >/dev/null; sleep 0.3
            \"$0\" flush --json; kill -TERM $daemon; wait $daemon";
        let output = Command::new("unshare")
            .args(["--time", shift, "--fork", "bash", "-c", script, env!("CARGO_BIN_EXE_dwell")])
            .arg(workload("divide"))
            .env("DWELL_DB", scratch.path("database"))
            .output()
            .unwrap();
        let ended = Ended::from(output);
        if ended.status == Some(98) {
            println!("SKIPPED {name}: {}", ended.stderr.trim());
            return;
        }
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let (last, database) =
            (ended.stdout.lines().last().unwrap(), Database::open(scratch.path("database")).unwrap());
        let told: serde_json::Value = serde_json::from_str(last).unwrap();
        assert!(told["samples"].as_u64() > Some(50), "{shift}: {ended:?}");
        let epoch = database.resolve("latest").unwrap();
        assert_eq!(stored(&database, &epoch), tallied(&epoch), "{shift}");
        let unknown: u64 = epoch.events.values().map(|event| event.unknown).sum();
        let causes = epoch.collector.as_ref().map(|account| &account.unknown);
        assert!(
            unknown * 50 < tallied(&epoch),
            "{shift}: {unknown} of {} unknown: {causes:?}",
            tallied(&epoch)
        );
    }
}
