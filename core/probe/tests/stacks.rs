//! Calls on stacks of many kinds are counted right: of threads that follow each other, of coroutines, of signal handlers.

mod program;

use std::collections::BTreeMap;

use dwell_image::Image;
use dwell_probe::{
    patch::plan::Refusal,
    process_images::process_images,
    shared_memory::{PathEnd, Snapshot},
};
use dwell_profile::{Pid, VirtualAddress};
use program::{ALL, Target, totals};

/// Lets `stacks MODE` run a round with these functions probed and two without. Returns what was recorded of each, and the calls
/// of `hot` and `slow` in that round.
fn record(mode: &str, functions: &[&str]) -> (Snapshot, [u64; 2]) {
    let mut target = Target::start_program("stacks.c", &[mode]);
    let image = Image::open(&target.program).unwrap();
    target.go();
    let before = target.counts();
    let mut probes = target.attach();
    let codes: Vec<_> = functions.iter().map(|name| target.code(&image, name)).collect();
    let added = probes.add(&codes.iter().map(|code| (code, ALL)).collect::<Vec<_>>()).unwrap();
    assert!(added.iter().all(Result::is_ok), "{added:?}");
    target.go();
    let during = target.counts();
    probes.remove().unwrap();
    assert!(!target.has_probes());
    target.go();
    target.counts();
    (probes.snapshot(), [0, 1].map(|number| during[number] - before[number]))
}

/// Returns the paths' calls by the number of their frames.
fn calls_by_depth(snapshot: &Snapshot, function: u32) -> BTreeMap<usize, u64> {
    let mut calls = BTreeMap::new();
    for path in snapshot.paths.iter().filter(|path| path.function == function) {
        assert_eq!(path.end, PathEnd::Complete, "{path:x?}");
        *calls.entry(path.return_addresses.len()).or_default() += path.calls;
    }
    calls
}

#[test]
fn a_thread_on_the_memory_of_an_ended_one_has_its_own_times() {
    let (snapshot, [_, slow]) = record("threads", &["slow"]);
    assert_eq!((slow, totals(&snapshot)), (20, [20, 20, 0, 0]));
    let path = &snapshot.paths[0];
    assert!(path.cpu.sum * 4 < path.wall.sum, "sleeping is no CPU time: {path:?}");
    assert!(path.blocked.sum * 4 > path.wall.sum * 3);
}

#[test]
fn coroutines_return() {
    let (snapshot, [hot, _]) = record("coroutines", &["between", "hot", "take_turns"]);
    assert_eq!(hot, 10 * (2 * 3 + 8));
    let of = |function: u32| {
        let paths = snapshot.paths.iter().filter(move |path| path.function == function);
        paths.fold([0; 3], |[c, r, u], path| [c + path.calls, r + path.returns, u + path.unwound])
    };
    assert_eq!([of(0), of(1), of(2)], [[20, 20, 0], [hot, hot, 0], [10, 10, 0]]);
    assert_eq!((totals(&snapshot)[3], snapshot.unmatched), (0, 0));
}

#[test]
fn paths_go_on_below_a_handler_on_a_stack_of_its_own() {
    let (snapshot, [hot, _]) = record("handlers", &["interrupted", "hot"]);
    assert_eq!((hot, totals(&snapshot)), (20, [40, 40, 0, 0]));
    // On both stacks: hot, handler, the signal frame, raise and what it calls, interrupted, …
    let [outer, inner] = [0, 1].map(|function| calls_by_depth(&snapshot, function));
    let depths = |calls: &BTreeMap<usize, u64>| {
        calls.iter().map(|(depth, calls)| (*depth, *calls)).collect::<Vec<_>>()
    };
    let (outer, inner) = (depths(&outer), depths(&inner));
    assert_eq!(
        [outer.iter().map(|(_, calls)| calls).sum::<u64>(), inner.iter().map(|(_, calls)| calls).sum()],
        [20, 20]
    );
    assert!(inner[0].0 >= outer[0].0 + 4 && inner.len() == outer.len(), "{outer:?} {inner:?}");
}

#[test]
fn a_stale_word_on_a_stack_does_not_hold_up_removal() {
    let begin = std::time::Instant::now();
    let (snapshot, [hot, _]) = record("buffer", &["hot"]);
    assert_eq!((hot, totals(&snapshot)), (1000, [1000, 1000, 0, 0]));
    println!("took {:?}", begin.elapsed());
}

#[test]
fn restartable_sequences_stay_as_they_are() {
    let target = Target::start_program("stacks.c", &[]);
    let images = process_images(target.pid()).unwrap();
    let [restartable, hot] = ["restartable", "hot"].map(|name| {
        let address = target.addresses(&[name])[0];
        let image = images.iter().find(|image| image.mapping.contains(address)).unwrap();
        image.codes(&[image.procedure_at(address).unwrap()]).pop().unwrap()
    });
    assert_eq!(restartable.err(), Some(Refusal::Restartable));
    assert!(hot.is_ok());
}

/// lld, which links Rust programs such as this one, lets the first page of the code be the last page of the constants in the file.
#[test]
fn code_in_a_shared_page_of_the_file_is_found() {
    let address = VirtualAddress(code_in_a_shared_page_of_the_file_is_found as *const () as u64);
    let images = process_images(Pid(std::process::id())).unwrap();
    let image = images.iter().find(|image| image.mapping.contains(address)).unwrap();
    let procedure = image.procedure_at(address).unwrap();
    assert_eq!(image.in_process(procedure.address), address, "{}", procedure.name());
}
