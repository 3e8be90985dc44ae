//! Tests CPUs that come and go. The list of CPUs is replaced, since no test may take a CPU from this machine.

use dwell_profile::{CpuId, Event, Pid, VirtualAddress};

use super::*;
use crate::source::{Rate, events::EventConfig};

/// Returns a source on the first CPU only, or `None` where the whole machine may not be sampled.
fn on_first_cpu(test: &str) -> Option<PerfSource> {
    let configs = [EventConfig::new(&Event::CPU_CLOCK, Rate::Frequency(100), None).unwrap()];
    let indexed: Vec<_> = sampled(&configs).collect();
    let mut source = PerfSource::empty(&Tasks::All, false, 64 << 10);
    let opened = source.open_all(&indexed, &Tasks::All, &[None], &online_cpus().unwrap()[..1]);
    match opened {
        Ok(()) if online_cpus().unwrap().starts_with(&[CpuId(0), CpuId(1)]) => Some(source),
        Ok(()) => {
            eprintln!("SKIPPED {test}: it needs CPUs 0 and 1");
            None
        }
        Err(error) => {
            eprintln!("SKIPPED {test}: {error}");
            None
        }
    }
}

fn look(
    source: &mut PerfSource,
    list: impl Fn() -> Result<Vec<CpuId>, CollectError> + 'static,
) -> (Vec<CpuId>, Vec<String>) {
    let mut warnings = Vec::new();
    source.cpu_watch = Some(CpuWatch { list: Box::new(list), next_look_ns: 0, refused: Vec::new() });
    source.tend(&mut |warning| warnings.push(warning));
    source.drain(&mut Merger::default());
    let mut sampled: Vec<CpuId> = source.samplers.iter().map(|s| s.cpu).collect();
    sampled.sort_unstable();
    let rings: Vec<CpuId> = source.cpus.iter().map(|c| c.cpu).collect();
    assert_eq!(rings.len(), sampled.len());
    assert!(source.cpus.iter().all(|c| source.samplers[c.owner].cpu == c.cpu));
    assert!(source.samplers.iter().enumerate().all(|(at, s)| source.by_id[&s.event.id().unwrap()] == at));
    assert_eq!(source.by_id.len(), source.samplers.len());
    (sampled, warnings)
}

#[test]
fn cpus_come_and_go() {
    let Some(mut source) = on_first_cpu("cpus_come_and_go") else { return };
    source.enable().unwrap();
    assert_eq!(look(&mut source, || Ok(vec![CpuId(0), CpuId(1)])), (vec![CpuId(0), CpuId(1)], vec![]));
    assert_eq!(look(&mut source, || Ok(vec![CpuId(1)])), (vec![CpuId(1)], vec![]));
    assert_eq!(look(&mut source, || Ok(vec![CpuId(0), CpuId(1)])), (vec![CpuId(0), CpuId(1)], vec![]));
    // This CPU does not exist: the kernel refuses it, as it refuses one that went offline again.
    assert_eq!(look(&mut source, || Ok(vec![CpuId(0), CpuId(1), CpuId(4095)])).0, [CpuId(0), CpuId(1)]);
    source.disable().unwrap();
}

/// The descriptor of a revoked event hangs up; so does a pipe without a writer. The event is opened again on its CPU, with a
/// warning.
#[test]
fn revoked_events_are_opened_again() {
    let Some(mut source) = on_first_cpu("revoked_events_are_opened_again") else { return };
    source.enable().unwrap();
    assert_eq!(look(&mut source, || Ok(vec![CpuId(0)])), (vec![CpuId(0)], vec![]), "nothing is revoked yet");
    let (hung_up, writer) = rustix::pipe::pipe().unwrap();
    drop(writer);
    source.samplers[0].event = PerfEvent::stand_in(hung_up);
    let (sampled, warnings) = look(&mut source, || Ok(vec![CpuId(0)]));
    assert_eq!((sampled, warnings.len()), (vec![CpuId(0)], 1), "{warnings:?}");
    assert!(warnings[0].starts_with("the kernel revoked events on CPU 0"), "{warnings:?}");
    assert_eq!(
        look(&mut source, || Ok(vec![CpuId(0)])),
        (vec![CpuId(0)], vec![]),
        "and is sampled as before"
    );
    source.disable().unwrap();
}

/// The side band comes with a dummy event, and no event's samples go into the ring.
#[test]
fn attached_events_write_no_samples() {
    let configs = [EventConfig::new(&Event::CPU_CLOCK, Rate::Frequency(100), None).unwrap()];
    let attach: Attach =
        Box::new(|_, index, _| (index == EventIndex(0)).then_some(()).ok_or(CollectError::NoCommand));
    let cpus = online_cpus().unwrap();
    let Ok(source) = PerfSource::open_attached(&configs, &cpus, attach) else {
        eprintln!("SKIPPED attached_events_write_no_samples: the whole machine may not be sampled");
        return;
    };
    let side_band = source.samplers.iter().filter(|s| s.role == Role::SideBand).count();
    assert_eq!(
        (side_band, source.samplers.len(), source.cpus.len()),
        (cpus.len(), 2 * cpus.len(), cpus.len())
    );
}

/// Runs `work` in a thread that runs on the first CPU only.
fn there<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let mut first = rustix::thread::CpuSet::new();
    first.set(0);
    let thread = std::thread::spawn(move || {
        rustix::thread::sched_setaffinity(None, &first).unwrap();
        work()
    });
    thread.join().unwrap()
}

/// Keeps the first CPU busy for this much CPU time of the thread.
fn spin_on_first_cpu(cpu_ms: u64) {
    there(move || {
        let spent = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let ms = |t: Timespec| t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000;
        while ms(spent()) < cpu_ms {
            std::hint::spin_loop();
        }
    });
}

/// Executes a program on the first CPU.
fn run_on_first_cpu() {
    let status = there(|| std::process::Command::new("true").status().unwrap());
    assert!(status.success());
}

fn drained(source: &mut PerfSource) -> Vec<OwnedRecord> {
    let (mut merger, mut items) = (Merger::default(), Vec::new());
    source.drain(&mut merger);
    merger.take_until(u64::MAX, |timed| items.push(timed.item));
    items
}

fn samples(items: &[OwnedRecord]) -> usize {
    items.iter().filter(|item| matches!(item, OwnedRecord::Sample(..))).count()
}

/// The side band can be enabled before the first sample: alone it brings no samples, and enabling the source then does.
#[test]
fn the_side_band_comes_before_samples() {
    let Some(mut source) = on_first_cpu("the_side_band_comes_before_samples") else { return };
    source.enable_side_band().unwrap();
    spin_on_first_cpu(20);
    run_on_first_cpu();
    let quiet = drained(&mut source);
    assert_eq!(samples(&quiet), 0);
    assert!(!quiet.is_empty(), "a program was executed");
    source.enable().unwrap();
    spin_on_first_cpu(200);
    assert!(samples(&drained(&mut source)) > 0);
}

/// A full ring reports its losses only with its next record. If no record follows, the events are queried.
#[test]
fn losses_at_the_end_are_reported() {
    let test = "losses_at_the_end_are_reported";
    let Some(mut source) = on_first_cpu(test) else { return };
    if !source.granted.counts_lost {
        eprintln!("SKIPPED {test}: this kernel does not count losses by event (it is older than 6.0)");
        return;
    }
    source.samplers[0].event.set_period(50_000).unwrap();
    source.enable().unwrap();
    spin_on_first_cpu(600); // Some 12,000 samples; the ring holds 1,600.
    source.disable().unwrap();
    let items = drained(&mut source);
    let lost: u64 = items
        .iter()
        .map(|item| match item {
            OwnedRecord::SideBand(side) => match **side {
                SideBandRecord::Lost { records, .. } => records,
                _ => 0,
            },
            _ => 0,
        })
        .sum();
    assert!(samples(&items) > 0 && lost > 0, "{} samples, {lost} lost", samples(&items));
    assert!(
        !drained(&mut source).iter().any(|item| matches!(item, OwnedRecord::SideBand(_))),
        "reported once"
    );
}

/// Timers do not take turns. The times of a CPU's events are kept when the CPU goes.
#[test]
fn a_timer_runs_all_the_time() {
    let Some(mut source) = on_first_cpu("a_timer_runs_all_the_time") else { return };
    let share = |times: &[EventTimes]| times[0].running_share_since(&EventTimes::default());
    assert_eq!(share(&source.times()), None, "it is off");
    source.enable().unwrap();
    spin_on_first_cpu(20);
    let times = source.times();
    assert!(times.len() == 1 && times[0].enabled_ns >= 20_000_000, "{times:?}");
    assert_eq!(share(&times), Some(1.0));
    source.forget_cpu(source.cpus[0].cpu);
    assert!(source.times()[0].enabled_ns >= times[0].enabled_ns);
}

/// A task's event of another CPU was enabled too, but could not count: that is not multiplexing.
#[test]
fn a_task_runs_on_one_cpu_at_a_time() {
    let configs = [EventConfig::new(&Event::CPU_CLOCK, Rate::Frequency(100), None).unwrap()];
    let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let opened = PerfSource::open(&Tasks::Running(vec![Pid(busy.id())]), &configs, false, None);
    let times = opened.and_then(|mut source| {
        source.enable()?;
        std::thread::sleep(Duration::from_millis(200));
        Ok(source.times())
    });
    busy.kill().and_then(|()| busy.wait()).unwrap();
    match times {
        Ok(times) => {
            let share = times[0].running_share_since(&EventTimes::default());
            assert!(share.is_none_or(|share| share > 0.98), "{times:?}");
        }
        Err(error) => eprintln!("SKIPPED a_task_runs_on_one_cpu_at_a_time: {error}"),
    }
}

/// If a thread is created while events are opened, they are opened again. If that happens repeatedly, it is reported.
#[test]
fn threads_created_while_events_are_opened_are_reported() {
    let test = "threads_created_while_events_are_opened_are_reported";
    let configs = [EventConfig::new(&Event::CPU_CLOCK, Rate::Frequency(100), None).unwrap()];
    let tasks = Tasks::Running(vec![Pid(std::process::id())]);
    let own = Some(Tid(rustix::thread::gettid().as_raw_nonzero().get() as u32));
    assert!(open::task_ids(&tasks).contains(&own));
    let mut looks = 0;
    let mut open = |born: &dyn Fn(u32) -> bool| {
        looks = 0;
        let mut list = || {
            looks += 1;
            let later = born(looks).then_some(Some(Tid(u32::MAX)));
            [own].into_iter().chain(later).collect()
        };
        let opened = PerfSource::open_listed(&tasks, &mut list, &configs, false, None);
        opened.map(|source| (source.features().escaped, looks))
    };
    match open(&|_| false) {
        Ok(counted) => assert_eq!(counted, (0, 2)),
        Err(error) => return eprintln!("SKIPPED {test}: {error}"),
    }
    assert_eq!(open(&|look| look == 2).unwrap(), (0, 4), "the second time none was born");
    assert_eq!(open(&|look| look % 2 == 0).unwrap(), (1, 2 * OPENINGS_MAX));
}

/// A machine without LBR or BRBE answers as the kernel answers for a timer, with which it samples no branches. Sampling then
/// continues unchanged, without branch stacks.
#[test]
fn sampling_continues_without_branch_stacks() {
    let test = "sampling_continues_without_branch_stacks";
    let configs = [EventConfig::new(&Event::CPU_CLOCK, Rate::Frequency(1000), None).unwrap()];
    let tasks = Tasks::Running(vec![Pid(std::process::id())]);
    let mut source = match PerfSource::open(&tasks, &configs, false, Some(&configs[0])) {
        Ok(source) => source,
        Err(error) => return eprintln!("SKIPPED {test}: {error}"),
    };
    assert!(!source.features().branch_stacks);
    // The kernel understands the request (otherwise EINVAL), but cannot fulfil it.
    let attributes =
        Attributes { exclude_kernel: true, branch_stacks: true, ..source.openings[0].attributes };
    let refused = PerfEvent::open(&attributes, Some(Tid(std::process::id())), CpuId(0)).err();
    assert_eq!(
        refused.as_ref().and_then(rustix::io::Errno::from_io_error),
        Some(rustix::io::Errno::OPNOTSUPP)
    );
    assert!(source.samplers.iter().all(|s| s.role == Role::Sampled(EventIndex(0))));
    assert_eq!(source.by_id.len(), source.samplers.len());
    assert!(source.cpus.iter().all(|c| source.samplers[c.owner].cpu == c.cpu));
    source.enable().unwrap();
    spin_on_first_cpu(200);
    assert!(samples(&drained(&mut source)) > 0);
    assert_eq!(source.take_malformed(), 0);
}

/// If the kernel provides stacks, the records of their event are distinguished from samples by the event's id alone. (The
/// event of this test provides none: the machine may have no LBR.)
#[test]
fn records_of_the_branch_stack_event_are_stacks() {
    let test = "records_of_the_branch_stack_event_are_stacks";
    let Some(mut source) = on_first_cpu(test) else { return };
    let beside = EventConfig::new(&Event::CPU_CLOCK, Rate::Frequency(100), None).unwrap();
    source.open_all(&[(Role::BranchStacks, beside)], &Tasks::All, &[None], &[CpuId(0)]).unwrap();
    assert!(source.features().branch_stacks);
    let id_of = |source: &PerfSource, role| {
        let sampler = source.samplers.iter().find(|s| s.role == role).unwrap();
        sampler.event.id().unwrap()
    };
    let (samples, stacks) =
        (id_of(&source, Role::Sampled(EventIndex(0))), id_of(&source, Role::BranchStacks));
    let record = |words: &[u64]| {
        let head = 9 | 2 << 32 | (8 + 8 * words.len() as u64) << 48;
        let words = std::iter::once(head).chain(words.iter().copied());
        words.flat_map(u64::to_ne_bytes).collect::<Vec<u8>>()
    };
    let bytes = [
        record(&[samples, 0x4000, 7 | 7 << 32, 1]),
        record(&[stacks, 0x4000, 7 | 7 << 32, 2, 1, 0x20, 0x10, 0]),
        record(&[stacks, 0x4000, 7 | 7 << 32, 3, 2, 0x20, 0x10, 0]), // One branch is missing.
        record(&[stacks, 0x4000, 7 | 7 << 32, 4, 0]),
    ]
    .concat();
    let mut merger = Merger::default();
    source.parse(CpuId(0), &bytes, &mut merger);
    let mut items = Vec::new();
    merger.take_until(u64::MAX, |timed| {
        items.push(match timed.item {
            OwnedRecord::Branches(stack) => (timed.time_ns, stack.branches),
            OwnedRecord::Sample(EventIndex(0), _) => (timed.time_ns, Vec::new()),
            other => panic!("{other:?}"),
        });
    });
    let branch = (VirtualAddress(0x20), VirtualAddress(0x10));
    assert_eq!(items, [(1, vec![]), (2, vec![branch]), (4, vec![])]);
    assert_eq!(
        (source.take_malformed(), source.tally().by_cpu),
        (1, [((EventIndex(0), CpuId(0)), 1)].into())
    );
    // Records that are still in the ring of a CPU that went.
    source.forget_cpu(source.cpus[0].cpu);
    source.parse(CpuId(0), &record(&[stacks, 0x4000, 7 | 7 << 32, 5, 0]), &mut merger);
    merger.take_until(u64::MAX, |timed| assert!(matches!(timed.item, OwnedRecord::Branches(_))));
    assert_eq!(source.tally().by_cpu, [((EventIndex(0), CpuId(0)), 1)].into());
}
