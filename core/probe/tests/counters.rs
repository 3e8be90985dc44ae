//! Blocks of programs are counted while they run; what the programs counted themselves must be what was counted.

mod program;

use std::collections::BTreeSet;

use dwell_probe::{counters::attached::Executions, engine::Engine};
use dwell_profile::VirtualAddress;
use program::Target;

/// Returns what the program has counted so far.
fn own_counts(target: &mut Target) -> [u64; 4] {
    let line = target.line();
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn difference(now: [u64; 4], before: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|at| now[at] - before[at])
}

/// Starts a program, lets it do a round, and counts its function `collatz`.
fn counted(arguments: &[&str]) -> (Target, Engine, VirtualAddress, [u64; 4]) {
    let mut target = Target::start_program("counters.c", arguments);
    let [start] = target.addresses(&["collatz"])[..] else { panic!() };
    target.go();
    let before = own_counts(&mut target);
    let mut engine = Engine::start().unwrap();
    engine.attach_to_count(target.pid()).unwrap();
    // Samples only say which blocks are executed often.
    let added = engine.count(vec![(start, 1), (start.offset(16), 100)]).unwrap();
    assert_eq!((added.procedures, added.refused.len()), (1, 0), "{added:?}");
    assert!((2..=5).contains(&added.counters), "{added:?}");
    (target, engine, start, before)
}

/// Returns the executions of the blocks of the only procedure.
fn blocks(mut executions: Executions) -> Vec<(VirtualAddress, u64)> {
    assert_eq!(executions.procedures.len(), 1);
    executions.procedures.pop().unwrap().blocks
}

/// Checks what was counted since the last time against what the program has counted.
fn check(executions: &[(VirtualAddress, u64)], start: VirtualAddress, [calls, steps, even, odd]: [u64; 4]) {
    let counts: BTreeSet<u64> = executions.iter().map(|(_, count)| *count).collect();
    assert!(
        [calls, even, odd].iter().all(|count| counts.contains(count)),
        "{calls} {even} {odd}: {counts:?}"
    );
    assert!(executions.iter().all(|(_, count)| *count <= steps + calls));
    assert_eq!(executions[0], (start, calls));
}

#[test]
fn executions_are_exact() {
    let (mut target, mut engine, start, mut before) = counted(&["1", "30000"]);
    for _ in 0..3 {
        target.go();
        let now = own_counts(&mut target);
        check(&blocks(engine.executions().unwrap().unwrap()), start, difference(now, before));
        before = now;
        // The same procedure is not added twice, but which blocks are counted may change.
        assert_eq!(engine.count(vec![(start, 1)]).unwrap().procedures, 0);
        engine.executions().unwrap();
    }
    engine.remove().unwrap();
    assert!(!target.has_probes());
    target.go();
    own_counts(&mut target);
}

#[test]
fn each_thread_has_counters() {
    let (mut target, mut engine, start, mut before) = counted(&["4", "300000"]);
    let mut certain = 0;
    for _ in 0..4 {
        target.go();
        // New threads are found and separated while they run.
        let mut parts = Vec::new();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(40));
            parts.push(engine.executions().unwrap().map(blocks));
        }
        let now = own_counts(&mut target);
        parts.push(engine.executions().unwrap().map(blocks));
        let counted = difference(now, before);
        before = now;
        let known: u64 =
            parts.iter().flatten().flatten().filter(|(block, _)| *block == start).map(|(_, n)| n).sum();
        assert!(known <= counted[0], "{known} of {counted:?}");
        certain += known;
    }
    assert!(certain > 0);
    engine.remove().unwrap();
}

/// The program goes on as if nothing had been, wherever its threads were when counters came and went.
fn come_and_go(arguments: &[&str], cycles_default: u64) {
    let cycles = std::env::var("DWELL_PROBE_CYCLES").map_or(cycles_default, |text| text.parse().unwrap());
    let mut target = Target::start_program("counters.c", arguments);
    let [start, work] = target.addresses(&["collatz", "work"])[..] else { panic!() };
    target.go();
    let round = own_counts(&mut target);
    let mut engine = Engine::start().unwrap();
    let (mut rounds, mut total) = (1, round);
    for cycle in 0..cycles {
        target.go();
        for hot in 0..3 {
            engine.attach_to_count(target.pid()).unwrap();
            engine.count(vec![(start, 1), (start.offset(16 + hot), 100), (work.offset(24), 50)]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(cycle % 7));
            engine.executions().unwrap();
            engine.count(vec![(start, 1)]).unwrap();
            engine.remove().unwrap();
        }
        assert!(!target.has_probes());
        total = own_counts(&mut target);
        rounds += 1;
    }
    assert_eq!(total, round.map(|count| count * rounds));
    println!("a thread was stopped for {:?} at most", engine.stopped);
}

#[test]
fn counters_come_and_go_under_load() {
    come_and_go(&["3", "200000"], 20);
}

/// Handlers return to where the code has changed meanwhile.
#[test]
fn counters_come_and_go_while_signals_are_handled() {
    come_and_go(&["2", "100000", "signals"], 10);
}
