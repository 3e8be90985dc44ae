//! Compares scripts of operations with the model, on a disk that fails or crashes at each step in turn.
//!
//! Each run must satisfy three rules. What an operation had stored when it returned exists once. What an operation that
//! did not return would have stored exists completely or not at all. A writer can continue afterwards.

use proptest::prelude::*;

use super::{
    model::{Model, Op, Process, observe, open, orphans},
    sim::{Fault, SimDisk},
};

/// Runs a script with a fault. Returns whether the fault occurred.
fn check(script: &[Op], at: u64, fault: Fault, random: &mut dyn FnMut(usize) -> usize) -> bool {
    let disk = SimDisk::new();
    disk.arm(at, fault);
    let possible = run(script, &disk, random);
    let came = disk.steps() > at;
    disk.reboot(random);
    expect_one_of(&observe(&open(&disk).unwrap()), &possible, at);
    go_on(&disk);
    came
}

/// Runs a script until it or the process ends. Returns what may be stored then: one model, or two if an operation was
/// interrupted.
fn run(script: &[Op], disk: &SimDisk, random: &mut dyn FnMut(usize) -> usize) -> Vec<Model> {
    let mut known = Model::new();
    let mut process = Process::start(disk);
    for op in script {
        if process.is_err() && !disk.is_down() {
            process = Process::start(disk);
        }
        let Ok(process) = &mut process else { continue };
        let (after, done) = process.run(op, &known);
        if done.is_ok() {
            known = after;
        } else if disk.is_down() || random(2) == 0 {
            return vec![known, after];
        } else {
            // The process continues, and it is observed which of the two models holds.
            disk.sync_all();
            let seen = observe(&process.database);
            expect_one_of(&seen, &[known, after], disk.steps());
            known = seen;
        }
    }
    vec![known]
}

fn expect_one_of(seen: &Model, possible: &[Model], at: u64) {
    let text = |model: &Model| model.iter().map(|(id, e)| format!("  {id}: {e}\n")).collect::<String>();
    let expected = possible.iter().map(text).collect::<Vec<_>>().join("or\n");
    assert!(possible.contains(seen), "fault at step {at}: seen\n{}expected\n{expected}", text(seen));
}

/// Checks after a reboot that everything still works and that nothing is left of the crash.
fn go_on(disk: &SimDisk) {
    let mut process = Process::start(disk).unwrap();
    let mut model = observe(&process.database);
    let script = [
        Op::Begin,
        Op::Append(vec![(1, 1, 1)]),
        Op::Append(vec![(1, 1, 1), (2, 2, 2)]),
        Op::AppendEvidence(1),
        Op::AppendExecutions(1),
        Op::Compact(0),
        Op::Compact(2),
        Op::PutSource(0, 9, 9),
        Op::Finish,
    ];
    for op in &script {
        let (after, done) = process.run(op, &model);
        done.unwrap();
        model = after;
    }
    assert_eq!(observe(&process.database), model);
    let temporaries = process.database.disk.list(std::path::Path::new("/db/tmp")).unwrap();
    assert_eq!(temporaries, [], "left in tmp");
    process.run(&Op::Remove(0), &model).1.unwrap();
    // A removal deletes every text that a crash left without an epoch.
    assert_eq!(orphans(&process.database), 0);
}

fn script() -> Vec<Op> {
    vec![
        Op::Begin,
        Op::Append(vec![(1, 1, 1), (2, 5, 9)]),
        Op::PutSource(0, 1, 1),
        Op::Append(vec![(1, 1, 2)]),
        Op::AppendEvidence(3),
        Op::Rename(0, 1),
        Op::Update,
        Op::Append(vec![(1, 1, 4), (3, 1, 1)]),
        Op::Compact(0),
        Op::Append(vec![(1, 1, 8)]),
        Op::AppendEvidence(4),
        Op::AppendExecutions(4),
        Op::AppendEvidence(5),
        Op::AppendExecutions(4),
        Op::PutSource(0, 1, 2),
        Op::Finish,
        Op::Begin,
        Op::Append(vec![(1, 2, 1)]),
        Op::Compact(0),
        Op::PutSource(1, 1, 2),
        Op::Append(vec![(1, 2, 1)]),
        Op::Compact(2),
        // Three rows fill the first segment; the others are merged after it, twice.
        Op::Append(vec![(1, 3, 1), (1, 4, 1)]),
        Op::Compact(3),
        Op::Append(vec![(2, 2, 1)]),
        Op::Append(vec![(2, 3, 1)]),
        Op::Compact(3),
        Op::Append(vec![(2, 3, 1)]),
        Op::Compact(3),
        Op::Remove(0),
        Op::Append(vec![(4, 2, 1)]),
    ]
}

/// Returns a simple generator of random numbers: tests need variety here, not quality.
fn random(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    }
}

#[test]
fn a_crash_after_each_step_loses_and_doubles_nothing() {
    let mut at = 0;
    // First everything unsynced survives the crash, then nothing does.
    while check(&script(), at, Fault::Crash, &mut |below| below - 1) {
        check(&script(), at, Fault::Crash, &mut |_| 0);
        check(&script(), at, Fault::Crash, &mut random(at));
        at += 1;
    }
    // The script must not become shorter unnoticed.
    assert!(at > 150, "only {at} steps");
}

#[test]
fn a_full_disk_at_each_step_loses_and_doubles_nothing() {
    let mut at = 0;
    while check(&script(), at, Fault::Error, &mut |below| below - 1) {
        check(&script(), at, Fault::Error, &mut random(at));
        at += 1;
    }
    assert!(at > 150, "only {at} steps");
}

fn any_op() -> impl Strategy<Value = Op> {
    let rows = prop::collection::vec((0u8..4, 0u8..4, 0u8..9), 0..4);
    prop_oneof![
        2 => Just(Op::Begin),
        6 => rows.prop_map(Op::Append),
        2 => any::<u8>().prop_map(Op::AppendEvidence),
        2 => any::<u8>().prop_map(Op::AppendExecutions),
        1 => Just(Op::Update),
        1 => Just(Op::Finish),
        3 => any::<u8>().prop_map(Op::Compact),
        1 => (any::<u8>(), 0u8..3).prop_map(|(n, name)| Op::Rename(n, name)),
        1 => any::<u8>().prop_map(Op::Remove),
        2 => (any::<u8>(), 0u8..3, 0u8..3).prop_map(|(n, path, text)| Op::PutSource(n, path, text)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_script_agrees_with_the_model(
        script in prop::collection::vec(any_op(), 1..25),
        at in 0u64..400,
        crash: bool,
        seed: u64,
    ) {
        let fault = if crash { Fault::Crash } else { Fault::Error };
        check(&script, at, fault, &mut random(seed));
    }
}
