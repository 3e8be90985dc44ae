//! `dwell callpaths`: who calls a function of a running program, how often, and what each way costs.
//!
//! Input: a process and names of functions. Output: calls by call path, while the program runs or at the end. The engine
//! (`dwell_probe`) is a process of its own: if this one is killed, it removes the probes.

use std::{
    fmt::Write,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use dwell_collect::Stop;
use dwell_probe::{
    answer::{CallFrame, CallPath, CallPaths, Context, FunctionCalls, MetricValues},
    calibration::calibrate,
    clean,
    engine::Engine,
    functions::{Found, find},
    process::procfs,
    process_images::process_images,
    shared_memory::{Metrics, measure_ns_per_tick},
};
use dwell_profile::Pid;

use crate::{
    args::{CallpathsArgs, Metric},
    complain, print, print_json,
    text::{BOLD, DIM, fit, grouped, heat, paint, percent, si, width},
};

/// How long to sleep before the end of the target, signals and intervals are looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// Counts calls until the duration is over, the program ends or a signal comes.
pub fn run(args: &CallpathsArgs, json: bool) -> anyhow::Result<()> {
    if args.clean {
        return remove_left_probes(Pid(args.pid), json);
    }
    // The engine is a fork of this process, so it comes first.
    let mut engine = Engine::start().context("cannot start the process that probes")?;
    let stop = Stop::on_signals()?;
    let pid = Pid(args.pid);
    let images = process_images(pid)?;
    let mut wanted: Vec<Found> = Vec::new();
    for text in &args.function {
        for found in find(&images, text)? {
            if !wanted.contains(&found) {
                wanted.push(found);
            }
        }
    }
    let metrics = metrics(&args.metric);
    engine.attach(pid)?;
    let addresses = wanted.iter().map(|function| function.address).collect();
    let added = engine.add(addresses, metrics)?;
    let begin = Instant::now();
    let mut functions = Vec::new();
    let mut refusals = Vec::new();
    for (function, added) in wanted.into_iter().zip(added) {
        let image = &images[function.image].mapping.path;
        match added {
            Ok(_) => functions.push(function),
            Err(reason) => refusals.push(format!("{} in {image} is not probed: {reason}", function.name)),
        }
    }
    if functions.is_empty() {
        anyhow::bail!("{}", refusals.join("; "));
    }
    refusals.iter().for_each(|refusal| complain(refusal));
    let ns_per_tick = measure_ns_per_tick();
    let context = Context {
        pid: pid.0,
        images: &images,
        functions: &functions,
        metrics,
        ns_per_tick,
        calibration: calibrate(metrics, ns_per_tick).ok(),
    };
    let show = |engine: &Engine, elapsed| {
        let answer = CallPaths::new(&context, &engine.snapshot(), elapsed, engine.stopped);
        if json {
            print(&format!("{}\n", serde_json::to_string(&answer)?))
        } else {
            print(&render(&answer, width()))
        }
    };
    let mut next = args.interval.map(|seconds| begin + seconds);
    while !stop.is_requested()
        && args.duration.is_none_or(|longest| begin.elapsed() < longest)
        && !procfs::is_over(pid)
    {
        sleep(LOOK);
        if let (Some(at), Some(interval)) = (next, args.interval)
            && Instant::now() >= at
        {
            show(&engine, begin.elapsed())?;
            next = Some(at + interval);
        }
    }
    let elapsed = begin.elapsed();
    let removed = engine.remove();
    show(&engine, elapsed)?;
    Ok(removed?)
}

fn remove_left_probes(pid: Pid, json: bool) -> anyhow::Result<()> {
    let removed = clean(pid)?;
    if json {
        return print_json(&serde_json::json!({"schema": 1, "processes": [pid.0], "removed": removed}));
    }
    let what = if removed { "the probes of process" } else { "there are no probes in process" };
    print(&format!("{what} {pid}{}\n", if removed { " are removed" } else { "" }))
}

fn metrics(chosen: &[Metric]) -> Metrics {
    let has = |metric| chosen.contains(&metric);
    let blocked = has(Metric::Blocked);
    let (wall, cpu) = (has(Metric::Wall) || blocked, has(Metric::Cpu) || blocked);
    Metrics { returns: wall || cpu, wall, cpu, blocked }
}

/// Renders the calls of each function by path.
fn render(answer: &CallPaths, width: usize) -> String {
    let mut out = String::new();
    let seconds = answer.elapsed_ns as f64 / 1e9;
    for function in &answer.functions {
        render_function(&mut out, function, seconds, width);
    }
    out
}

fn render_function(out: &mut String, function: &FunctionCalls, seconds: f64, width: usize) {
    let mut say = |line: String| writeln!(out, "{}", line.trim_end()).expect("a String takes every text");
    let rate = si(function.calls as f64 / seconds.max(1e-9));
    say(format!(
        "{}  {}",
        paint(BOLD, format!("{}: {} calls", function.function, grouped(function.calls))),
        paint(DIM, format!("in {seconds:.1} s ({rate}/s), {}", function.image))
    ));
    let mut notes = Vec::new();
    notes.extend(
        function
            .unwound
            .filter(|n| *n > 0)
            .map(|n| format!("{} ended by an exception or longjmp", grouped(n))),
    );
    if let (Some(returns), Some(unwound)) = (function.returns, function.unwound) {
        let active = function.calls.saturating_sub(returns).saturating_sub(unwound);
        notes.extend((active > 0).then(|| format!("{} in progress", grouped(active))));
    }
    notes.extend(
        (function.missed > 0).then(|| format!("{} more could not be recorded", grouped(function.missed))),
    );
    if !notes.is_empty() {
        say(format!("  {}", notes.join(", ")));
    }
    for (name, values) in &function.metrics {
        say(format!("  {name:<8} {}", described(values, function.returns.unwrap_or(0))));
    }
    let metric = ["wall", "cpu", "blocked"].into_iter().find(|name| function.metrics.contains_key(name));
    let heading = metric.map_or(String::new(), |name| format!(" {:>9} {:>9}", name, "p99"));
    say(paint(DIM, format!("  {:>6} {:>12}{heading}  call path", "share", "calls")));
    for path in &function.paths {
        say(path_line(path, metric, width));
    }
}

fn path_line(path: &CallPath, metric: Option<&str>, width: usize) -> String {
    let values = metric.and_then(|name| path.metrics.get(name));
    let costs = values.map_or(String::new(), |values| {
        let mean = values.sum as f64 / path.calls.max(1) as f64;
        format!(" {:>9} {:>9}", time(mean), values.p99.map_or("–".to_owned(), |p99| time(p99 as f64)))
    });
    let start = format!(
        "  {} {:>12}{costs}  ",
        paint(heat(path.share), format!("{:>6}", percent(path.share, 1))),
        grouped(path.calls)
    );
    let columns = 2 + 6 + 1 + 12 + costs.chars().count() + 2;
    let beginning = if path.is_complete { "" } else { "… → " };
    let text = format!("{beginning}{}", frames(&path.frames));
    // The end of a path is what differs, so the beginning is cut.
    let room = width.saturating_sub(columns).max(30);
    let count = text.chars().count();
    let text = if count > room {
        let kept: String = text.chars().skip(count + 1 - room).collect();
        format!("…{kept}")
    } else {
        text
    };
    format!("{start}{}", fit(&text, room))
}

/// Formats frames from the outermost to the call site. A frame that repeats is shown once with a number.
fn frames(frames: &[CallFrame]) -> String {
    let mut names: Vec<(String, usize)> = Vec::new();
    for frame in frames {
        let name = frame.function.clone().unwrap_or_else(|| format!("{:#x}", frame.offset));
        match names.last_mut() {
            Some((last, times)) if *last == name => *times += 1,
            _ => names.push((name, 1)),
        }
    }
    let names =
        names.into_iter().map(|(name, times)| if times > 1 { format!("{name} ×{times}") } else { name });
    names.collect::<Vec<_>>().join(" → ")
}

fn described(values: &MetricValues, returns: u64) -> String {
    let share = |value: Option<u64>| value.map_or("–".to_owned(), |value| time(value as f64));
    format!(
        "{} in all; mean {}, median {}, 99 % below {}, longest {}",
        time(values.sum as f64),
        time(values.sum as f64 / returns.max(1) as f64),
        share(values.p50),
        share(values.p99),
        time(values.max as f64)
    )
}

/// Formats a time given in ns with three digits.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    };
    let decimals = if value >= 100.0 || unit == "ns" {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [7.4, 999.0, 1234.0, 45_600.0, 2.5e6, 3.21e9, 123.4e9].map(time);
        assert_eq!(times, ["7 ns", "999 ns", "1.23 µs", "45.6 µs", "2.50 ms", "3.21 s", "123 s"]);
    }

    #[test]
    fn repeated_frames_are_shown_once() {
        let frame = |name: &str| CallFrame {
            function: Some(name.to_owned()),
            image: None,
            offset: 0,
            file: None,
            line: None,
            inlined: false,
        };
        let path = ["main", "walk", "walk", "walk", "visit"].map(frame);
        assert_eq!(frames(&path), "main → walk ×3 → visit");
    }
}
