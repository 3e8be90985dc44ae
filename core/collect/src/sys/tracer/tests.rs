//! Tests bursts of real programs: their results, and that the programs notice nothing.

use std::{
    collections::BTreeMap,
    io::Read,
    process::{Child, Command, Stdio},
};

use dwell_profile::Pid;

use super::*;

/// Time limit of a reply. It takes no longer unless the helper itself gets no CPU: 5 s for a thread that has a signal to
/// take, 1 s for one that was killed, and less for everything else (`helper/halt.rs`).
const REPLY_MS_MAX: u32 = 10_000;

/// A child process that is killed when a test fails.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a shell with the script. It returns after the shell has started, so that the system calls of its start cannot
/// affect a burst.
fn spawn(script: &str) -> Target {
    let script = format!("echo; {script}");
    let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    Target(child)
}

fn request(tracer: &mut Stepper, child: &Child, how: How, steps_max: usize, delay_ns: u64) {
    let order = Order {
        how,
        steps_max,
        steps_before: 0,
        bursts: 1,
        delay_ns,
        seed: u64::from(child.id()),
        cpu_ns_max: FOLLOW_CPU_NS_MAX,
    };
    tracer.request(Pid(child.id()), Tid(child.id()), &order).unwrap();
}

fn reply(tracer: &mut Stepper) -> Steps {
    tracer.reply(REPLY_MS_MAX).unwrap().unwrap().pop().unwrap()
}

/// Takes a burst of the child's only thread. It tries again while the child is not running yet.
fn burst(tracer: &mut Stepper, child: &Target) -> Steps {
    burst_how(tracer, child, How::Step)
}

fn burst_how(tracer: &mut Stepper, child: &Target, how: How) -> Steps {
    for _ in 0..200 {
        request(tracer, &child.0, how, 500, 1_000_000);
        let steps = reply(tracer);
        if !matches!(steps.ending, Ending::NotRunning | Ending::InKernel) {
            return steps;
        }
    }
    panic!("it never ran");
}

fn state(pid: Pid) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[test]
fn a_stepped_thread_continues_to_run() {
    let mut tracer = Stepper::fork().unwrap();
    let child = spawn("while :; do :; done");
    for _ in 0..5 {
        let steps = burst(&mut tracer, &child);
        match steps.ending {
            Ending::Complete => assert_eq!(steps.pcs.len(), 501),
            // On a busy machine each step may wait for a CPU.
            ending => assert!(ending == Ending::Late && steps.pcs.len() > 10, "{steps:?}"),
        }
        assert!(steps.end_ns > steps.begin_ns);
        let stayed = steps.pcs.windows(2).filter(|w| w[0] == w[1]).count();
        assert!(stayed < steps.pcs.len() / 5, "{stayed}: {steps:?}");
    }
    drop(tracer);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(state(Pid(child.0.id())), 'R');
}

#[test]
fn a_followed_thread_takes_the_emulated_path() {
    let mut tracer = Stepper::fork().unwrap();
    let child = spawn("i=0; while :; do i=$((i * 7 + 1)); case $i in *1*3*) s=x$i;; esac; j=${s#x}; done");
    let mut checked = 0;
    for _ in 0..20 {
        let steps = burst_how(&mut tracer, &child, How::Check);
        assert_ne!(steps.ending, Ending::Differs, "{:x?}", &steps.pcs[steps.pcs.len() - 3..]);
        checked += steps.pcs.len();
    }
    assert!(checked > 500, "{checked}");
    let steps = burst_how(&mut tracer, &child, How::Follow);
    assert!(steps.is_followed && steps.path.steps > 0, "{steps:?}");
    drop(tracer);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(state(Pid(child.0.id())), 'R');
}

#[test]
fn several_bursts_are_taken_at_a_time() {
    let mut tracer = Stepper::fork().unwrap();
    let child = spawn("while :; do :; done");
    burst(&mut tracer, &child);
    let order = Order {
        how: How::Follow,
        steps_max: 300,
        steps_before: 0,
        bursts: 8,
        delay_ns: 1_000_000,
        seed: 5,
        cpu_ns_max: FOLLOW_CPU_NS_MAX,
    };
    tracer.request(Pid(child.0.id()), Tid(child.0.id()), &order).unwrap();
    let bursts = tracer.reply(REPLY_MS_MAX).unwrap().unwrap();
    assert_eq!(bursts.len(), 8);
    assert!(bursts.windows(2).all(|w| w[0].end_ns <= w[1].begin_ns));
}

#[test]
fn the_answer_to_an_earlier_request_is_not_taken_for_the_latest() {
    let mut tracer = Stepper::fork().unwrap();
    let child = spawn("while :; do :; done");
    for bursts in [1, 2, 3] {
        let order = Order {
            how: How::Follow,
            steps_max: 100,
            steps_before: 0,
            bursts,
            delay_ns: 1_000_000,
            seed: 1,
            cpu_ns_max: FOLLOW_CPU_NS_MAX,
        };
        tracer.request(Pid(child.0.id()), Tid(child.0.id()), &order).unwrap();
    }
    assert_eq!(tracer.reply(REPLY_MS_MAX).unwrap().unwrap().len(), 3);
    assert!(tracer.reply(0).unwrap().is_none());
}

#[test]
fn the_helper_has_a_process_group_of_its_own_in_our_session() {
    let mut tracer = Stepper::fork().unwrap();
    let child = spawn("exec sleep 60");
    request(&mut tracer, &child.0, How::Step, 100, 0);
    reply(&mut tracer); // It is set up by now.
    let helper = tracer.pid().0 as libc::pid_t;
    // SAFETY: none of these takes a pointer.
    let (group, session, ours) = unsafe { (libc::getpgid(helper), libc::getsid(helper), libc::getsid(0)) };
    assert_eq!((group, session), (helper, ours));
}

#[test]
fn threads_that_wait_or_have_ended_are_left_alone() {
    let mut tracer = Stepper::fork().unwrap();
    let mut child = spawn("exec sleep 60");
    std::thread::sleep(std::time::Duration::from_millis(100));
    request(&mut tracer, &child.0, How::Step, 100, 0);
    assert_eq!(reply(&mut tracer).ending, Ending::NotRunning);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    request(&mut tracer, &child.0, How::Step, 100, 0);
    assert!(reply(&mut tracer).ending.is_refusal());
}

#[test]
fn a_status_reaches_the_parent_through_bursts_forks_and_signals() {
    let mut tracer = Stepper::fork().unwrap();
    let script =
        "trap 'n=1' USR1; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); kill -USR1 $$; (exit 3); done; exit 7";
    let mut child = spawn(script);
    let mut endings = std::collections::BTreeSet::new();
    let status = loop {
        request(&mut tracer, &child.0, How::Step, 1000, 0);
        endings.insert(reply(&mut tracer).ending);
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(7), "{endings:?}");
}

#[test]
fn a_killed_owner_leaves_the_thread_running() {
    // The helper outlives its owner until the burst is over. Here the owner goes without notice: its end of the channel
    // closes during a burst.
    let mut tracer = Stepper::fork().unwrap();
    let child = spawn("while :; do :; done");
    burst(&mut tracer, &child);
    request(&mut tracer, &child.0, How::Step, STEPS_MAX, 0);
    std::thread::sleep(std::time::Duration::from_millis(5));
    drop(tracer);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(state(Pid(child.0.id())), 'R');
}

#[test]
fn a_signal_in_a_burst_is_delivered() {
    let mut tracer = Stepper::fork().unwrap();
    let mut child = spawn("while :; do :; done");
    burst(&mut tracer, &child);
    request(&mut tracer, &child.0, How::Step, STEPS_MAX, 0);
    std::thread::sleep(std::time::Duration::from_millis(2));
    // Background jobs of a shell, such as a test, do not ignore this signal.
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(child.0.id() as i32, libc::SIGTERM) };
    let status = child.0.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
    let ending = reply(&mut tracer).ending;
    assert!(ending == Ending::Signal || ending.is_refusal() || ending == Ending::Exited, "{ending:?}");
}

#[test]
fn a_thread_killed_while_it_is_followed_ends() {
    let mut tracer = Stepper::fork().unwrap();
    for round in 0..20 {
        let mut child = spawn("while :; do :; done");
        burst(&mut tracer, &child);
        let order = Order {
            how: How::Follow,
            steps_max: STEPS_MAX,
            steps_before: 0,
            bursts: BURSTS_MAX,
            delay_ns: 1000,
            seed: round,
            cpu_ns_max: FOLLOW_CPU_NS_MAX,
        };
        tracer.request(Pid(child.0.id()), Tid(child.0.id()), &order).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(500 + 100 * round));
        child.0.kill().unwrap();
        tracer.reply(REPLY_MS_MAX).unwrap().unwrap();
        let has_ended = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            child.0.try_wait().unwrap().is_some()
        });
        assert!(has_ended, "round {round}");
    }
}

#[test]
fn a_stopped_thread_stays_stopped_until_it_is_continued() {
    let mut tracer = Stepper::fork().unwrap();
    let child = spawn("while :; do :; done");
    burst(&mut tracer, &child);
    request(&mut tracer, &child.0, How::Step, STEPS_MAX, 0);
    // SAFETY: signals to our own child.
    let kill = |signal| unsafe { libc::kill(child.0.id() as i32, signal) };
    kill(libc::SIGSTOP);
    reply(&mut tracer);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(state(Pid(child.0.id())), 'T');
    kill(libc::SIGCONT);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(state(Pid(child.0.id())), 'R');
}

#[test]
fn a_thread_traced_by_a_debugger_is_refused() {
    let mut tracer = Stepper::fork().unwrap();
    let child = spawn("while :; do :; done");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let tid = child.0.id() as libc::pid_t;
    // SAFETY: attaches to our own child, which runs on.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) }, 0);
    let mut ending = Ending::NotRunning;
    while ending == Ending::NotRunning {
        request(&mut tracer, &child.0, How::Step, 100, 0);
        ending = reply(&mut tracer).ending;
    }
    assert_eq!(ending, Ending::NotPermitted);
}

/// The program of `waits.c`.
pub struct Waits {
    folder: tempfile::TempDir,
}

impl Waits {
    /// Compiles the program.
    pub fn build() -> Waits {
        let folder = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waits.c");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-pthread", "-Wall", "-Wextra", "-Werror", source, "-o"])
            .arg(folder.path().join("waits"))
            .arg("-lrt");
        assert!(gcc.status().expect("gcc runs").success());
        Waits { folder }
    }

    /// Runs the program with `count` of its calls, from `first` on, for this many seconds.
    pub fn start(&self, seconds: &str, first: u32, count: u32) -> Child {
        let arguments = [seconds.to_owned(), first.to_string(), count.to_string()];
        let program = self.folder.path().join("waits");
        Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap()
    }
}

/// The calls that a signal would end (signal(7) lists them) return the same as without us, whenever a burst begins: while
/// the thread computes, enters a call or leaves one. `waits.c` makes each of them repeatedly, some at a time.
#[test]
fn no_system_call_notices_a_burst() {
    let waits = Waits::build();
    let mut seen = Seen::default();
    let calls_at_once = 5;
    let mut first = 0;
    while waits.is_unchanged_by_bursts("0.5", first, calls_at_once, &mut seen) {
        first += calls_at_once;
    }
    assert!(first > 30 && seen.bursts() > 100, "{first} {seen:?}");
}

/// Runs a program of some sixty threads that make all these calls at once, except those that wait for children, since such a
/// program would not be followed. `DWELL_BURST_SECONDS` is how long it runs.
#[test]
fn a_program_of_many_threads_notices_no_burst() {
    let seconds = std::env::var("DWELL_BURST_SECONDS").unwrap_or("2".to_owned());
    let mut seen = Seen::default();
    assert!(Waits::build().is_unchanged_by_bursts(&seconds, 0, 38, &mut seen));
    println!("{} bursts in {seconds} s: {seen:?}", seen.bursts());
    assert!(seen.bursts() > 5, "{seen:?}");
}

/// The results of many requests.
#[derive(Debug, Default)]
struct Seen {
    /// How often bursts ended in each way.
    endings: BTreeMap<Ending, u32>,
    /// Duration of the slowest answer.
    slowest: Duration,
}

impl Seen {
    fn bursts(&self) -> u32 {
        self.endings.iter().filter(|(ending, _)| !ending.is_refusal()).map(|(_, n)| n).sum()
    }
}

impl Waits {
    /// Runs some of the calls while bursts are taken. Returns whether there are such calls.
    fn is_unchanged_by_bursts(&self, seconds: &str, first: u32, count: u32, seen: &mut Seen) -> bool {
        let mut tracer = Stepper::fork().unwrap();
        let child = self.start(seconds, first, count);
        bursts_until_the_end(&mut tracer, Pid(child.id()), seen);
        let output = child.wait_with_output().unwrap();
        if output.status.code() == Some(4) {
            return false;
        }
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{:?} {said} {seen:?}", output.status);
        true
    }
}

/// Requests bursts of one thread of the process after the other, until the process ends.
fn bursts_until_the_end(tracer: &mut Stepper, pid: Pid, seen: &mut Seen) {
    let mut seed = 1;
    while let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) {
        if state(pid) == 'Z' {
            break;
        }
        for tid in threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            seed += 1;
            let order = Order {
                how: How::Follow,
                steps_max: 100,
                steps_before: 0,
                bursts: 1,
                delay_ns: 0,
                seed,
                cpu_ns_max: FOLLOW_CPU_NS_MAX,
            };
            let requested_at = Instant::now();
            tracer.request(pid, tid, &order).unwrap();
            *seen.endings.entry(reply(tracer).ending).or_default() += 1;
            seen.slowest = seen.slowest.max(requested_at.elapsed());
        }
    }
}

/// A program that counts in a register, so that it is never twice in the same state, and changes memory.
const COUNTS: &str = r#"
#include <unistd.h>
static unsigned long table[64];
int main(void) {
    unsigned long x = 1;
    if (write(1, "\n", 1) != 1) return 1;
    for (unsigned long i = 0;; i++) {
        x = x * 6364136223846793005ul + i;
        if (x >> 63) table[x >> 58] += i;
        else x ^= table[i & 63];
    }
}"#;

/// The thread goes on while it is emulated, and the samples of it show how long it takes.
#[test]
fn a_running_thread_is_timed() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("counts.c"), folder.path().join("counts"));
    std::fs::write(&source, COUNTS).unwrap();
    assert!(Command::new("gcc").arg("-O1").arg(&source).arg("-o").arg(&program).status().unwrap().success());
    let mut tracer = Stepper::fork().unwrap();
    let mut child = Target(Command::new(&program).stdout(Stdio::piped()).spawn().unwrap());
    child.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    // Beside other tests there is little time for what has the lowest priority.
    let end = Instant::now() + Duration::from_secs(240);
    let timed = std::iter::repeat(()).take_while(|()| Instant::now() < end).find_map(|()| {
        request(&mut tracer, &child.0, How::Time, 20_000, 1_000_000);
        let steps = reply(&mut tracer);
        assert!(steps.timed_ns.is_none() || steps.untimed == Ending::Complete, "{steps:?}");
        steps.timed_ns.map(|timed_ns| (timed_ns, steps))
    });
    let (timed_ns, steps) = timed.expect("a burst that is timed");
    // Two periods of the sampler at least, and what a processor can do in that time.
    let rate = steps.path.steps as f64 / timed_ns as f64;
    assert!(timed_ns > 200_000 && (0.01..16.0).contains(&rate), "{timed_ns} {rate}");
    assert!(steps.path.transfers.len() >= 3 && steps.beside_ns > 0 && steps.ending == Ending::Complete);
    assert_eq!(state(Pid(child.0.id())), 'R');
    drop(tracer);
    assert_eq!(state(Pid(child.0.id())), 'R');
}
