//! Runs `dwell daemon`, `status`, `flush`, `pause` and `resume`, and begins new epochs: converts arguments for
//! dwell-collect and shows its answers.

use std::{
    io::IsTerminal,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context;
use dwell_collect::{CollectError, DAEMON_ODOMETERS_PERCENT, DaemonOptions, Progress, Renew, Status, Stop};
use dwell_profile::{CollectorRecord, CountsRecord, Database, Epoch, EpochId, Event, EventRecord};
use serde_json::json;

use crate::{
    args::{DaemonArgs, ResumeArgs, StatusArgs},
    collect::{self, Reporter, backend, by_process, event_line, events, keep_sources, rate, tallies},
    complain, print, print_json,
    text::{bytes, grouped},
};

/// Samples the whole machine until SIGTERM or SIGINT. SIGHUP begins a new epoch.
pub fn daemon(db: &Path, args: &DaemonArgs) -> anyhow::Result<()> {
    let options = DaemonOptions {
        backend: backend(&args.sampling),
        events: events(&args.sampling),
        rate: rate(&args.sampling),
        name: args.sampling.name.clone(),
        by_process: by_process(&args.sampling),
        apps: args.app.clone(),
        dimensions: args.sampling.dimensions.iter().copied().collect(),
        flush_every: Duration::from_secs(args.flush_interval.into()),
        odometers_percent: if args.odometers { DAEMON_ODOMETERS_PERCENT } else { 0.0 },
        bursts_percent: args.paths,
        stacks_hz: args.stacks,
        budget_percent: args.budget,
        rotate_every: args.rotate.0,
        rotate_on_rebuild: args.rotate_on_rebuild.clone(),
        keep_age: args.keep_for.0,
        keep_bytes: args.keep_size.0,
        keep_images_bytes: args.keep_images.map(|limit| limit.0.unwrap_or(u64::MAX)),
        ..DaemonOptions::default()
    };
    let writer = Database::open(db)?.writer()?;
    let (stop, renew) = (Stop::on_signals()?, Renew::on_signal()?);
    let mut reporter = Reporter::new();
    let mut sources = SourceKeeper::default();
    let last = dwell_collect::daemon(options, &writer, &stop, &renew, &mut |progress| {
        if let Progress::Ended(epoch) = &progress {
            sources.keep(db, epoch);
        }
        reporter.show(progress);
    })?;
    sources.wait();
    keep_sources(db, &last.id);
    complain(&tallies(&last));
    Ok(())
}

/// Stores the sources of epochs that ended, in a separate process, because reading images and their line tables would take
/// the daemon's time and memory.
#[derive(Default)]
struct SourceKeeper {
    running: Option<Child>,
}

impl SourceKeeper {
    fn keep(&mut self, db: &Path, epoch: &EpochId) {
        // If two epochs end in quick succession, the process for the first one is still running, and the sources of the
        // second one are not stored.
        if self.running.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return complain(&format!(
                "warning: sources of recording {epoch} were not stored: those of an earlier one are still being read"
            ));
        }
        let spawned = std::env::current_exe().and_then(|dwell| {
            let mut command = Command::new(dwell);
            command.arg("--db").arg(db).args(["epoch", "keep-sources", &epoch.0]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
        });
        match spawned {
            Ok(child) => self.running = Some(child),
            Err(error) => {
                complain(&format!("warning: sources of recording {epoch} were not stored: {error}"))
            }
        }
    }

    fn wait(&mut self) {
        // The process reports its own errors.
        let _ = self.running.take().map(|mut child| child.wait());
    }
}

/// Shows what the daemon does and what it costs, once or repeatedly.
pub fn status(db: &Path, args: &StatusArgs, json: bool) -> anyhow::Result<()> {
    let database = Database::open(db)?;
    if let Some(selector) = &args.epoch {
        return show_stored(&database.resolve(selector)?, json);
    }
    if !args.watch {
        return show(db, &dwell_collect::status(&database)?, json);
    }
    let stop = Stop::on_signals()?;
    let redraw = !json && std::io::stdout().is_terminal();
    while !stop.is_requested() {
        let status = dwell_collect::status(&database);
        if redraw {
            print("\x1b[H\x1b[2J")?; // Moves the cursor to the top and clears the screen.
        }
        match status {
            Ok(status) => show(db, &status, json)?,
            // The daemon may be restarting. A user who watches the status wants to see when it is back.
            Err(error @ (CollectError::NoDaemon(_) | CollectError::Daemon { .. })) if redraw => {
                print(&format!("{error}\n"))?
            }
            Err(error) => return Err(error.into()),
        }
        let naps = args.interval * 10;
        (0..naps)
            .take_while(|_| !stop.is_requested())
            .for_each(|_| thread::sleep(Duration::from_millis(100)));
    }
    Ok(())
}

fn show(db: &Path, status: &Status, json: bool) -> anyhow::Result<()> {
    if json {
        let mut object = serde_json::to_value(status)?;
        object["schema"] = 1.into();
        return print_json(&object);
    }
    let mut lines = what(db, status);
    lines.extend(status.events.iter().flat_map(event_lines));
    lines.extend(by_cpu(&status.collector));
    lines.extend(costs(&status.collector));
    lines.push(format!("{} entries are in memory, not stored yet", grouped(status.entries as u64)));
    lines.extend(honesty(&status.collector));
    lines.extend(status.paths.as_ref().map(collect::bursts_line));
    lines.extend(status.paths.as_ref().and_then(collect::timed_bursts_line));
    lines.extend(status.counts.as_ref().map(counted));
    lines.extend(status.notes.iter().map(|n| format!("note: {n}")));
    print(&(lines.join("\n") + "\n"))
}

/// Describes the executions that were counted beside the samples.
fn counted(counts: &CountsRecord) -> String {
    if counts.counters > 0 { collect::counters_line(counts) } else { collect::counts_line(counts) }
}

/// Describes what was sampled, how often, and which samples are missing.
fn event_lines((event, r): (&Event, &EventRecord)) -> Vec<String> {
    let times = grouped(r.throttled);
    let (period, unit) = (grouped(r.period), r.unit.name());
    let told = format!("  {}; every {period} {unit}, throttled {times} times", event_line(event, r));
    let shared = r.multiplexing_note(event).map(|note| format!("  {note}"));
    [told].into_iter().chain(shared).collect()
}

/// Shows the collector's record that is stored with an epoch. Imported epochs have none.
fn show_stored(epoch: &Epoch, json: bool) -> anyhow::Result<()> {
    let sum = |of: fn(&EventRecord) -> u64| epoch.events.values().map(of).sum::<u64>();
    let unknown = sum(|r| r.unknown) as f64 / (sum(|r| r.samples) as f64).max(1.0);
    if json {
        return print_json(
            &json!({ "schema": 1, "epoch": epoch.id, "name": epoch.name, "backend": epoch.backend,
            "start": epoch.start, "end": epoch.end, "events": epoch.events, "unknown_share": unknown,
            "resolved_share": 1.0 - unknown, "clock_hz": epoch.cpu.clock_hz, "collector": epoch.collector,
            "paths": epoch.bursts, "windows": epoch.breakpoints, "counts": epoch.counts, "notes": epoch.notes }),
        );
    }
    let until =
        epoch.end.map_or("(running, or its collector was killed)".to_owned(), |end| format!("to {end:.0}"));
    let hz = epoch.cpu.clock_hz.map_or(String::new(), |hz| format!("; core clock {:.2} GHz", hz / 1e9));
    let (resolved, unknown) = (100.0 * (1.0 - unknown), 100.0 * unknown);
    let mut lines = vec![
        format!("epoch {} ({}), {:.0} {until}", epoch.id, epoch.backend, epoch.start),
        format!("{resolved:.2}% resolved, {unknown:.2}% unknown{hz}"),
    ];
    lines.extend(epoch.events.iter().flat_map(event_lines));
    match &epoch.collector {
        Some(account) => {
            lines.push(format!("began: {}", account.began));
            lines.extend(by_cpu(account));
            lines.extend(costs(account));
            lines.extend(honesty(account));
        }
        None => lines.push("no statistics: it was imported, or recorded by an older dwell".to_owned()),
    }
    lines.extend(epoch.bursts.as_ref().map(collect::bursts_line));
    lines.extend(epoch.bursts.as_ref().and_then(collect::timed_bursts_line));
    lines.extend(epoch.breakpoints.as_ref().map(collect::breakpoints_line));
    lines.extend(epoch.counts.as_ref().map(counted));
    lines.extend(epoch.notes.iter().map(|n| format!("note: {n}")));
    print(&(lines.join("\n") + "\n"))
}

fn what(db: &Path, status: &Status) -> Vec<String> {
    let hz = status.clock_hz.map_or(String::new(), |hz| format!("; core clock {:.2} GHz", hz / 1e9));
    let paused = status
        .paused_since
        .map(|since| format!("sampling is paused since {since:.0}; `dwell resume` continues it"));
    let lines = [
        format!(
            "daemon {} ({}), running for {:.0} s, collects into {}",
            status.pid,
            status.backend,
            status.elapsed_s,
            db.display()
        ),
        format!("epoch {} since {} (began: {})", status.epoch, status.epoch_start, status.collector.began),
        format!(
            "{:.0} samples per second, {:.2}% resolved, {:.2}% unknown, {} processes, {} images{hz}",
            status.samples_per_second,
            100.0 * status.resolved_share,
            100.0 * status.unknown_share,
            grouped(status.processes as u64),
            grouped(status.images as u64)
        ),
    ];
    lines.into_iter().chain(paused).collect()
}

fn by_cpu(collector: &CollectorRecord) -> Vec<String> {
    let list = |counts: &Vec<u64>| {
        let each: Vec<String> =
            counts.iter().enumerate().map(|(cpu, n)| format!("{cpu}: {}", grouped(*n))).collect();
        each.join("  ")
    };
    collector
        .samples_by_cpu
        .iter()
        .map(|(event, counts)| format!("  {event} by CPU  {}", list(counts)))
        .collect()
}

fn costs(c: &CollectorRecord) -> Vec<String> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    // A single run has no budget and does not measure interrupts.
    let (allowed, interrupts) = match (c.interrupt_ns, c.budget_percent) {
        (0, 0.0) => (String::new(), "interrupts not measured".to_owned()),
        (ns, percent) => {
            (format!(" of {percent:.2}% allowed"), format!("{:.2} s of interrupts", seconds(ns)))
        }
    };
    let mut lines = vec![
        format!(
            "costs {:.2}% of each CPU{allowed}: {:.2} s user, {:.2} s kernel, {interrupts} in {:.0} s",
            c.cost_percent,
            seconds(c.cpu_user_ns),
            seconds(c.cpu_kernel_ns),
            seconds(c.elapsed_ns)
        ),
        format!(
            "memory {} (peak {}); recording on disk {}",
            bytes(c.memory_bytes),
            bytes(c.memory_bytes_max),
            bytes(c.disk_bytes)
        ),
    ];
    if c.rate_share < 1.0 || c.rate_lowered + c.rate_raised > 0 {
        lines.push(format!(
            "rate {:.0}% of the requested one; lowered {} times, raised {} times",
            100.0 * c.rate_share,
            grouped(c.rate_lowered),
            grouped(c.rate_raised)
        ));
    }
    if let Some(table) = &c.table {
        let (rate, samples) = (100.0 * table.hit_rate(), grouped(table.samples));
        lines.push(format!("table: {rate:.1}% of {samples} samples found an existing entry"));
    }
    lines
}

/// Describes what was lost or unknown, late records, time asleep and changes of the clock.
fn honesty(c: &CollectorRecord) -> Vec<String> {
    let causes = |what: &str, causes: &std::collections::BTreeMap<String, u64>| {
        let list: Vec<String> = causes.iter().map(|(cause, n)| format!("{} {cause}", grouped(*n))).collect();
        Some(format!("{what}: {}", if list.is_empty() { "none".to_owned() } else { list.join(", ") }))
    };
    let counted = |number: Option<u64>| number.filter(|n| *n > 0).map(grouped);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let told = [
        causes("lost", &c.lost),
        causes("unknown", &c.unknown),
        counted(c.idle).map(|n| format!("idle: {n} samples of the idle task, which are counted only here")),
        counted(c.registers_lost)
            .map(|n| format!("registers: {n} samples lost theirs, so their branch direction is unknown")),
        counted(c.kernel_time_lost).map(|n| {
            format!("kernel time: {n} samples are not charged to the user's instruction: the table was full")
        }),
        counted(c.executions_lost).map(|n| {
            format!(
                "executions: {n} were not reported, as a table was full; samples that depend on them are unknown"
            )
        }),
        c.given_up_ns.filter(|ns| *ns > 0).map(|ns| {
            let time_s = seconds(ns);
            format!("given up: {time_s:.1} s of CPU time were not sampled: pinned events of other programs held all counters")
        }),
        Some(format!(
            "skew: {} records arrived out of order, by {:.3} s at most",
            grouped(c.late_records),
            seconds(c.skew_ns_max)
        )),
        (c.suspended_ns > 0).then(|| format!("the machine slept for {:.0} s", seconds(c.suspended_ns))),
        (c.clock_steps > 0).then(|| {
            format!("the clock was set {} times, by {:+.1} s", c.clock_steps, c.clock_step_ns as f64 / 1e9)
        }),
        (c.stores_failed > 0).then(|| format!("storing samples failed {} times", grouped(c.stores_failed))),
        (c.events_reopened > 0)
            .then(|| format!("events that delivered no samples were reopened {} times", c.events_reopened)),
    ];
    told.into_iter().flatten().collect()
}

/// Makes the daemon store its counts.
pub fn flush(db: &Path, json: bool) -> anyhow::Result<()> {
    let samples = dwell_collect::flush(&Database::open(db)?)?;
    match json {
        true => print_json(&json!({ "schema": 1, "samples": samples })),
        false => print(&format!("{} samples stored\n", grouped(samples))),
    }
}

/// Makes the daemon stop sampling and store its counts.
pub fn pause(db: &Path, json: bool) -> anyhow::Result<()> {
    let database = Database::open(db)?;
    dwell_collect::pause(&database)?;
    let samples =
        dwell_collect::flush(&database).context("sampling is paused, but samples were not stored")?;
    let Status { epoch, paused_since, .. } = dwell_collect::status(&database)?;
    if json {
        return print_json(
            &json!({ "schema": 1, "epoch": epoch, "paused_since": paused_since, "samples": samples }),
        );
    }
    let samples = grouped(samples);
    print(&format!(
        "sampling is paused until `dwell resume`; {samples} samples of recording {epoch} are stored\n"
    ))
}

/// Makes the daemon sample again. If other applications are to be kept, that begins a new epoch.
pub fn resume(db: &Path, args: &ResumeArgs, json: bool) -> anyhow::Result<()> {
    let database = Database::open(db)?;
    let apps = (args.all || !args.app.is_empty()).then(|| args.app.clone());
    dwell_collect::resume(&database, apps)?;
    let Status { epoch, collector: CollectorRecord { apps, paused_ns, .. }, .. } =
        dwell_collect::status(&database)?;
    if json {
        return print_json(&json!({ "schema": 1, "epoch": epoch, "apps": apps, "paused_ns": paused_ns }));
    }
    let kept = if apps.is_empty() { "all applications".to_owned() } else { apps.join(", ") };
    print(&format!("sampling continues; samples of {kept} go into recording {epoch}\n"))
}

/// Makes the daemon begin a new epoch, and stores the sources of the one that ended.
pub fn new_epoch(db: &Path, name: Option<&str>) -> anyhow::Result<EpochId> {
    let database = Database::open(db)?;
    let ended = dwell_collect::status(&database)?.epoch;
    let begun = dwell_collect::new_epoch(&database, name)?;
    keep_sources(db, &ended);
    Ok(begun)
}

#[cfg(test)]
mod tests {
    use dwell_profile::Unit;

    use super::*;

    #[test]
    fn counters_of_the_kernel_are_reported() {
        let told = |[idle, registers_lost, kernel_time_lost, executions_lost, given_up_ns]: [Option<u64>;
                        5]| {
            let of = CollectorRecord::default();
            let record = CollectorRecord {
                idle,
                registers_lost,
                kernel_time_lost,
                executions_lost,
                given_up_ns,
                ..of
            };
            let lines = honesty(&record);
            let others = ["lost", "unknown", "skew"];
            lines.into_iter().filter(|l| !others.iter().any(|o| l.starts_with(o))).collect::<Vec<_>>()
        };
        assert_eq!(told([None; 5]), [""; 0]);
        assert_eq!(told([Some(0); 5]), [""; 0]);
        assert_eq!(
            told([Some(1234), Some(5), Some(9), Some(6), Some(7_200_000_000)]),
            [
                "idle: 1,234 samples of the idle task, which are counted only here",
                "registers: 5 samples lost theirs, so their branch direction is unknown",
                "kernel time: 9 samples are not charged to the user's instruction: the table was full",
                "executions: 6 were not reported, as a table was full; samples that depend on them are unknown",
                "given up: 7.2 s of CPU time were not sampled: pinned events of other programs held all counters"
            ]
        );
    }

    #[test]
    fn a_multiplexed_event_is_reported() {
        let record = |running_share| EventRecord {
            period: 1_000_000,
            unit: Unit::Cycles,
            samples: 1000,
            lost: 0,
            throttled: 0,
            unknown: 0,
            running_share,
        };
        let lines = |share| event_lines((&Event::CYCLES, &record(share)));
        let first =
            "  1,000 samples of cycles, 0 lost, 0.00% unknown; every 1,000,000 cycles, throttled 0 times";
        assert_eq!((lines(None), lines(Some(1.0))), (vec![first.to_owned()], vec![first.to_owned()]));
        let note = "  cycles ran 43% of the time (multiplexed); its counts cover only that time";
        assert_eq!(lines(Some(0.43)), [first, note]);
    }
}
