//! Tests what becomes of words that cannot be watched or read, or whose time belongs to several processes: there is no count,
//! and the cause is recorded.

use std::{
    os::unix::fs::PermissionsExt,
    process::{Child, Command},
    sync::{Condvar, Mutex, atomic::AtomicU64},
};

use super::*;
use crate::{
    evidence::counts::candidates::Word,
    registers::{REGISTER_COUNT, Registers},
    sys::guard::{Guard, Turns},
};

const EXECUTION: ExecutionId = ExecutionId(1);

/// A child process that is killed at the end of a test.
struct Target(Child);

impl Target {
    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn worker() -> Worker {
    let shared = Shared {
        watching_since_ns: AtomicU64::new(u64::MAX),
        inbox: Mutex::default(),
        is_last: Condvar::new(),
        output: Mutex::default(),
    };
    Worker::new(Arc::new(shared), 1.0, Protection::start(&Turns::default()))
}

/// Lets the worker consider a process with one word.
fn consider(worker: &mut Worker, pid: Pid, word: Tally) {
    worker.times.entry(EXECUTION).or_default();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let tracked = Tracked { words: vec![word], ..Tracked::new(&seen(pid), memory) };
    worker.processes.insert(pid, tracked);
}

fn seen(pid: Pid) -> Seen {
    Seen {
        time_ns: 1,
        pid,
        code: CodeId(1),
        execution: EXECUTION,
        pc: VirtualAddress(0x1000),
        is_time: true,
        is_user: true,
        registers: Some(Box::new(Registers([0; REGISTER_COUNT]))),
    }
}

fn refused(worker: &Worker) -> Vec<(String, u64)> {
    worker.shared.output().record.refused.clone().into_iter().collect()
}

#[test]
fn a_word_waits_while_another_debugger_has_all_watchpoints() {
    let name = "a_word_waits_while_another_debugger_has_all_watchpoints";
    let target = Target(Command::new("sleep").arg("600").spawn().unwrap());
    let (pid, tid) = (target.pid(), Tid(target.0.id()));
    let mut worker = worker();
    let word = |at| VirtualAddress(0x10_0000).offset(8 * at);
    let held = |at: u64| Watchpoint::set(&Guard::for_own_thread(), &[tid], word(at), 8, 1);
    let held: Vec<Watchpoint> = match (0..WATCHED_MAX as u64).map(held).collect() {
        Ok(held) => held,
        Err(error) => return println!("SKIPPED {name}: {error}"),
    };
    consider(&mut worker, pid, Tally::new(Word { address: VirtualAddress(0x20_0000), size: 8 }));
    worker.round(pid).unwrap();
    let in_use = vec![("watchpoints in use".to_owned(), 1)];
    if refused(&worker) != in_use && worker.protection.guard(pid, &[tid], true).is_err() {
        return println!("SKIPPED {name}: threads cannot be guarded here");
    }
    assert_eq!((refused(&worker), worker.processes[&pid].words.len()), (in_use.clone(), 1));
    // It is watched once the other one has finished.
    drop(held);
    worker.round(pid).unwrap();
    assert_eq!((refused(&worker), worker.processes[&pid].words.len()), (in_use, 1));
    worker.report(pid);
    assert!(worker.shared.output().counts.is_empty());
}

#[test]
fn a_word_in_a_page_that_goes_away_is_refused() {
    static STAYS: AtomicU64 = AtomicU64::new(7);
    let own = Pid(std::process::id());
    let mut worker = worker();
    let counting = |address: VirtualAddress| {
        let mut tally = Tally::new(Word { address, size: 8 });
        let mut series = Series::new(8, 1);
        series.read(1, 7); // When it was read last, its page was there.
        tally.series = Some(series);
        tally
    };
    let stays = VirtualAddress(STAYS.as_ptr() as u64);
    consider(&mut worker, own, counting(stays));
    let words = |worker: &Worker| -> Vec<VirtualAddress> {
        worker.processes[&own].words.iter().map(|tally| tally.word.address).collect()
    };
    // Nothing is ever mapped in the first page.
    worker.processes.get_mut(&own).unwrap().words.push(counting(VirtualAddress(0x10)));
    worker.read(own).unwrap();
    assert_eq!(refused(&worker), [("its memory went away".to_owned(), 1)]);
    assert_eq!(words(&worker), [stays]);
}

#[test]
fn time_in_which_other_processes_of_the_execution_ran_does_not_count() {
    let own = Pid(std::process::id());
    for (others, expected) in [(0, vec![]), (2, vec![("other processes of the execution ran".to_owned(), 1)])]
    {
        let mut worker = worker();
        let mut tally = Tally::new(Word { address: VirtualAddress(0x1000), size: 8 });
        tally.pending.push(Span { begin_ns: 0, end_ns: 100, added: 1 << 20, ..Span::default() });
        consider(&mut worker, own, tally);
        let tracked = worker.processes.get_mut(&own).unwrap();
        let of_execution = worker.times.get_mut(&EXECUTION).unwrap();
        for time_ns in 1..50 {
            tracked.times.push(time_ns);
            of_execution.push(time_ns);
        }
        (0..others).for_each(|_| of_execution.push(60));
        worker.complete_ns = 1000;
        worker.settle(own);
        assert_eq!(refused(&worker), expected);
        assert!(worker.processes[&own].words[0].pending.is_empty());
    }
}

/// A program of 32-bit code that waits for a signal.
fn narrow_program() -> Vec<u8> {
    let start: u32 = 0x0804_8000;
    let code = [0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7]; // mov eax, 29 (pause); int 0x80; jmp to the start
    let bytes = 52 + 32 + code.len() as u32;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |values: &[u16]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let word = |values: &[u32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    file.extend(half(&[2, 3])); // an executable for the 80386
    file.extend(word(&[1, start + 84, 52, 0, 0]));
    file.extend(half(&[52, 32, 1, 0, 0, 0]));
    file.extend(word(&[1, 0, start, start, bytes, bytes, 5, 4096])); // one segment, read and executed
    file.extend(code);
    file
}

#[test]
fn processes_of_32_bit_code_are_refused() {
    let name = "processes_of_32_bit_code_are_refused";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("narrow");
    std::fs::write(&path, narrow_program()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let target = match Command::new(&path).spawn() {
        Ok(child) => Target(child),
        Err(error) => return println!("SKIPPED {name}: {error}"),
    };
    let mut worker = worker();
    worker.cpu_ns = 1e12;
    (0..2 * SAMPLES_MIN).for_each(|_| worker.sample(&seen(target.pid())));
    assert_eq!(refused(&worker), [("32-bit code".to_owned(), 1)]);
    assert!(worker.processes.is_empty());
}

#[test]
fn registers_are_not_looked_at_while_more_was_spent_than_earned() {
    let target = Target(Command::new("sleep").arg("600").spawn().unwrap());
    let mut worker = worker();
    worker.traps_ns = 2 * ADVANCE_NS as u64;
    worker.solvency.0 = worker.may_spend();
    (0..2 * SAMPLES_MIN).for_each(|_| worker.sample(&seen(target.pid())));
    assert!(worker.processes.is_empty());
    worker.cpu_ns = 1e12;
    (0..2 * SAMPLES_MIN + SAMPLES_PER_CLOCK).for_each(|_| worker.sample(&seen(target.pid())));
    assert!(worker.processes.contains_key(&target.pid()));
}
