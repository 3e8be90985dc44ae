//! Blocks of programs are counted while they run; what the programs counted themselves must be what was counted.

mod program;

use std::collections::BTreeSet;

use dwell_probe::engine::Engine;
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

#[test]
fn executions_are_exact() {
    let mut target = Target::start_program("counters.c", &["1", "30000"]);
    let [start] = target.addresses(&["collatz"])[..] else { panic!() };
    target.go();
    let before = own_counts(&mut target);
    let mut engine = Engine::start().unwrap();
    engine.attach_to_count(target.pid()).unwrap();
    // Samples only say which blocks are executed often.
    let added = engine.count(vec![(start, 1), (start + 16, 100)]).unwrap();
    assert_eq!((added.procedures, added.refused.len()), (1, 0), "{added:?}");
    assert!((2..=5).contains(&added.counters), "{added:?}");
    target.go();
    let [calls, steps, even, odd] = difference(own_counts(&mut target), before);
    let executions = engine.executions().unwrap();
    let counts: BTreeSet<u64> = executions.iter().map(|(_, count)| *count).collect();
    println!("{executions:x?}");
    assert!([calls, even, odd].iter().all(|count| counts.contains(count)), "{calls} {even} {odd}: {counts:?}");
    assert!(executions.iter().all(|(_, count)| *count <= steps + calls));
    assert_eq!(executions[0], (start, calls));
    // The same procedure is not counted twice.
    assert_eq!(engine.count(vec![(start, 1)]).unwrap().counters, 0);
    engine.remove().unwrap();
    assert!(!target.has_probes());
    target.go();
    own_counts(&mut target);
}
