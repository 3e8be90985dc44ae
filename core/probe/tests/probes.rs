//! Programs are probed while they run; what they counted themselves must be what was recorded.

#![allow(unsafe_code)] // A controller is forked and killed.

mod program;

use std::{
    io::BufReader,
    process::{Command, Stdio},
};

use dwell_image::Image;
use dwell_probe::{
    Probes, clean,
    engine::Engine,
    functions::find,
    patch::function_code::FunctionCode,
    process_images::process_images,
    shared_memory::{Metrics, PathEnd},
};
use dwell_profile::{Pid, VirtualAddress};
use program::{ALL, Target, totals};

#[test]
fn calls_and_paths_are_exact() {
    let mut target = Target::start(&["1", "100000", "5"]);
    let image = Image::open(&target.program).unwrap();
    let code = target.code(&image, "hot");
    target.go();
    assert_eq!(target.counts(), [100_000, 0]);
    let mut probes = target.attach();
    assert_eq!(probes.add(&[(&code, ALL)]).unwrap(), [Ok(0)]);
    target.go();
    assert_eq!(target.counts(), [200_000, 0]);
    let snapshot = probes.snapshot();
    assert_eq!(totals(&snapshot), [100_000, 100_000, 0, 0]);
    let mut calls: Vec<u64> = snapshot.paths.iter().map(|path| path.calls).collect();
    calls.sort_unstable();
    assert_eq!(calls, [25_000, 25_000, 50_000], "{:x?}", snapshot.paths);
    for path in &snapshot.paths {
        assert_eq!(path.end, PathEnd::Complete);
        assert!(path.return_addresses.len() > 7, "{:x?}", path.return_addresses);
        assert!(path.wall.sum > 0 && path.wall.buckets.iter().sum::<u64>() == path.returns);
        assert!(path.cpu.max < 1_000_000_000);
    }
    assert!(snapshot.missed.iter().flatten().all(|missed| *missed == 0));
    probes.remove().unwrap();
    assert_eq!(totals(&probes.snapshot()), [100_000, 100_000, 0, 0]);
    println!("a thread was stopped for {:?} at most", probes.stopped_max());
    target.go();
    assert_eq!(target.counts(), [300_000, 0]);
    assert!(!target.has_probes());
}

#[test]
fn calls_that_longjmp_ends_are_unwound() {
    let mut target = Target::start(&["1", "30000", "3", "jump"]);
    let image = Image::open(&target.program).unwrap();
    let mut probes = target.attach();
    let functions = ["hot", "library"].map(|name| target.code(&image, name));
    let added = probes.add(&functions.each_ref().map(|code| (code, ALL))).unwrap();
    assert_eq!(added, [Ok(0), Ok(1)]);
    target.go();
    let [calls, left] = target.counts();
    let snapshot = probes.snapshot();
    let of = |function: u32| {
        let paths = snapshot.paths.iter().filter(move |path| path.function == function);
        paths.fold([0; 3], |[c, r, u], path| {
            [c + path.calls, r + path.returns, u + path.active() + path.unwound]
        })
    };
    assert_eq!(of(0), [calls, calls - left, left]);
    let [library, returned, unwound] = of(1);
    assert_eq!([library, returned + unwound], [22_500; 2]);
    // Every frame but the last is known to have been left when the next call came.
    assert!(snapshot.paths.iter().map(|path| path.active()).sum::<u64>() <= 2);
    probes.remove().unwrap();
    target.go();
    assert_eq!(target.counts()[0], 2 * calls);
}

#[test]
fn threads_are_counted_each() {
    let mut target = Target::start(&["8", "50000", "4"]);
    let image = Image::open(&target.program).unwrap();
    let mut probes = target.attach();
    let code = target.code(&image, "hot");
    probes.add(&[(&code, ALL)]).unwrap()[0].clone().unwrap();
    for round in 1..=3 {
        target.go();
        target.counts();
        let snapshot = probes.snapshot();
        assert_eq!(totals(&snapshot), [400_000 * round, 400_000 * round, 0, 0]);
        assert_eq!(snapshot.paths.len(), 3);
    }
    probes.remove().unwrap();
}

#[test]
fn forked_children_go_on_without_probes() {
    let mut target = Target::start(&["2", "20000", "4", "fork"]);
    let image = Image::open(&target.program).unwrap();
    let code = target.code(&image, "hot");
    for _ in 0..5 {
        target.go();
        let mut probes = target.attach();
        probes.add(&[(&code, ALL)]).unwrap()[0].clone().unwrap();
        target.counts();
        let [calls, returns, unwound, active] = totals(&probes.snapshot());
        assert!(calls <= 40_000 && returns + unwound + active == calls);
        target.go();
        probes.remove().unwrap();
        target.counts();
    }
}

/// Probes come and go while threads call the function as fast as they can.
#[test]
fn probes_come_and_go_under_load() {
    let cycles = std::env::var("DWELL_PROBE_CYCLES").map_or(40, |text| text.parse().unwrap());
    let mut target = Target::start(&["4", "1000", "4", "forever"]);
    let image = Image::open(&target.program).unwrap();
    let functions = ["hot", "library", "path_a", "loop"].map(|name| target.code(&image, name));
    target.go();
    let (mut stopped, mut recorded) = (Vec::new(), 0);
    for cycle in 0..cycles {
        let mut probes = target.attach();
        let number = 1 + cycle % functions.len();
        let chosen: Vec<(&FunctionCode, Metrics)> =
            functions[..number].iter().map(|code| (code, ALL)).collect();
        assert!(probes.add(&chosen).unwrap().iter().all(Result::is_ok));
        std::thread::sleep(std::time::Duration::from_millis(2));
        probes.remove().unwrap();
        recorded += totals(&probes.snapshot())[0];
        stopped.push(probes.stopped_max());
    }
    target.go();
    assert_eq!(target.counts()[0] % 1000, 0);
    assert!(target.child.try_wait().unwrap().is_none() && recorded > 1000 * cycles as u64);
    stopped.sort_unstable();
    println!("{cycles} cycles, stopped {:?} median, {:?} at most", stopped[cycles / 2], stopped[cycles - 1]);
}

/// Every entry ends by a return or by an exception, and the program catches what it threw.
#[test]
fn exceptions_pass_through_probed_functions() {
    let mut target = Target::start_program("exceptions.cc", &["20000"]);
    let image = Image::open(&target.program).unwrap();
    let functions = ["thrower", "between", "catcher"].map(|name| target.code(&image, name));
    let mut probes = target.attach();
    let added = probes.add(&functions.each_ref().map(|code| (code, ALL))).unwrap();
    assert!(added.iter().all(Result::is_ok), "{added:?}");
    target.go();
    let [calls, caught] = target.counts();
    let snapshot = probes.snapshot();
    let of = |function: u32| {
        let paths = snapshot.paths.iter().filter(move |path| path.function == function);
        paths.fold([0; 3], |[c, r, u], path| {
            [c + path.calls, r + path.returns, u + path.active() + path.unwound]
        })
    };
    assert_eq!([of(0), of(1)], [[calls, calls - caught, caught]; 2]);
    assert_eq!(of(2), [calls, calls, 0]);
    probes.remove().unwrap();
    target.go();
    assert_eq!(target.counts(), [2 * calls, 2 * caught]);
}

/// Threads that block in every kind of system call notice nothing of probes that come and go.
#[test]
fn system_calls_notice_nothing_of_probes() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("waits");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../collect/tests/waits.c");
    let built = Command::new("gcc").args(["-O2", "-pthread", source, "-lrt", "-o"]).arg(&program).status();
    assert!(built.unwrap().success());
    let arguments = ["0", "0", "38"];
    let child = Command::new(&program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut target = Target { child, output, program, _folder: folder };
    let image = Image::open(&target.program).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let code = target.code(&image, "do_read_timer");
    let metrics = Metrics { returns: code.unknown_jump.is_none(), wall: true, cpu: true, blocked: true };
    let (mut cycles, mut calls) = (0, 0);
    let begin = std::time::Instant::now();
    while begin.elapsed().as_millis() < 1500 {
        let mut probes = target.attach();
        assert_eq!(probes.add(&[(&code, metrics)]).unwrap().len(), 1);
        std::thread::sleep(std::time::Duration::from_millis(10));
        probes.remove().unwrap();
        calls += totals(&probes.snapshot())[0];
        cycles += 1;
    }
    drop(target.child.stdin.take());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut target.output, &mut text).unwrap();
    assert!(target.child.wait().unwrap().success(), "{text}");
    println!("{cycles} cycles, {calls} calls");
    assert!(cycles > 0 && calls > 0);
}

#[test]
fn an_engine_counts_and_refuses() {
    let mut target = Target::start(&["2", "10000", "4"]);
    let mut engine = Engine::start().unwrap();
    assert!(
        engine.add(vec![VirtualAddress(1)], ALL).unwrap_err().to_string().contains("no process is attached")
    );
    engine.attach(target.pid()).unwrap();
    let mut other = Engine::start().unwrap();
    let refusal = other.attach(target.pid()).unwrap_err().to_string();
    assert!(refusal.contains("has probes already"), "{refusal}");
    let mut addresses = target.addresses(&["hot", "library"]);
    addresses.push(VirtualAddress(1));
    let added = engine.add(addresses, ALL).unwrap();
    assert_eq!(added, [Ok(0), Ok(1), Err("there is no function at 0x1".to_owned())]);
    target.go();
    target.counts();
    assert_eq!(totals(&engine.snapshot()), [35_000, 35_000, 0, 0]);
    engine.remove().unwrap();
    assert_eq!(totals(&engine.snapshot()), [35_000, 35_000, 0, 0]);
    assert!(!target.has_probes());
    drop(engine);
    let gone = other.attach(Pid(u32::MAX / 2)).unwrap_err().to_string();
    assert!(gone.contains("does not exist"), "{gone}");
}

/// A process that probes is killed at any moment; the program goes on, without probes soon, and counts right.
#[test]
fn a_killed_controller_leaves_no_probe() {
    let rounds = std::env::var("DWELL_PROBE_KILLS").map_or(8, |text| text.parse().unwrap());
    let mut target = Target::start(&["4", "1000", "4", "forever"]);
    let (pid, addresses) = (target.pid(), target.addresses(&["hot", "library", "path_a"]));
    target.go();
    drop(Engine::start()); // It initializes libraries, which a fork beside other threads must not interrupt.
    for round in 0..rounds {
        // SAFETY: the child probes until it is killed, and shares nothing with us.
        let controller = unsafe { libc::fork() };
        if controller == 0 {
            loop {
                let mut engine = Engine::start().unwrap();
                let _ = engine.attach(pid).and_then(|()| engine.add(addresses.clone(), ALL));
                let _ = engine.remove();
            }
        }
        std::thread::sleep(std::time::Duration::from_micros(20_000 + 7_919 * (round * 37 % 101)));
        // SAFETY: our own child.
        unsafe {
            libc::kill(controller, libc::SIGKILL);
            libc::waitpid(controller, std::ptr::null_mut(), 0);
        }
        let is_clean = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            !target.has_probes()
        });
        assert!(is_clean && target.child.try_wait().unwrap().is_none(), "round {round}");
    }
    target.go();
    assert_eq!(target.counts()[0] % 1000, 0);
}

/// The engine is killed too, while nobody works on the code: the probes stay until somebody cleans up.
#[test]
fn probes_of_a_killed_engine_are_cleaned_up() {
    let mut target = Target::start(&["2", "1000", "4", "forever"]);
    let (pid, addresses) = (target.pid(), target.addresses(&["hot", "library"]));
    target.go();
    let mut engine = Engine::start().unwrap();
    engine.attach(pid).unwrap();
    engine.add(addresses, ALL).unwrap();
    let refusal = clean(pid).unwrap_err().to_string();
    assert!(refusal.contains("which lives"), "{refusal}");
    // SAFETY: our own child.
    unsafe { libc::kill(engine.process().0 as libc::pid_t, libc::SIGKILL) };
    drop(engine);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(target.has_probes());
    assert!(clean(pid).unwrap());
    assert!(!target.has_probes());
    assert!(!clean(pid).unwrap());
    target.go();
    assert_eq!(target.counts()[0] % 1000, 0);
}

/// A call that was interrupted and restarted is interrupted and restarted again.
#[test]
fn a_program_sleeps_on_while_probes_come_and_go() {
    let begin = std::time::Instant::now();
    let mut sleeping = Command::new("sleep").arg("1.5").spawn().unwrap();
    let pid = Pid(sleeping.id());
    std::thread::sleep(std::time::Duration::from_millis(100));
    for _ in 0..3 {
        let images = process_images(pid).unwrap();
        let sleep = find(&images, "libc.so.6:clock_nanosleep").unwrap().remove(0);
        let image = &images[sleep.image];
        let code = image.codes(&[image.procedure_at(sleep.address).unwrap()]).pop().unwrap().unwrap();
        let mut probes = Probes::attach(pid, &[image.table()]).unwrap();
        assert_eq!(probes.add(&[(&code, ALL)]).unwrap(), [Ok(0)]);
        probes.remove().unwrap();
    }
    assert!(sleeping.wait().unwrap().success());
    assert!((1400..2500).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
}
