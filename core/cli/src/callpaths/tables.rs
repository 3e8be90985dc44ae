//! The tables of `dwell callpaths`: for each function its numbers, then its call paths, the most expensive first.

use std::{cmp::Reverse, fmt::Write};

use dwell_probe::answer::{CallFrame, CallPath, CallPaths, FunctionCalls, MetricValues};

use crate::text::{BOLD, DIM, fit, grouped, heat, paint, percent, si};

/// Renders the calls of each function, with `limit` paths (0: all).
pub fn render(answer: &CallPaths, limit: usize, width: usize) -> String {
    let mut out = String::new();
    let seconds = answer.elapsed_ns as f64 / 1e9;
    for function in &answer.functions {
        render_function(&mut out, function, seconds, limit, width);
    }
    out
}

fn render_function(out: &mut String, function: &FunctionCalls, seconds: f64, limit: usize, width: usize) {
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
    let metric = ["blocked", "cpu", "wall"].into_iter().find(|name| function.metrics.contains_key(name));
    let heading = metric.map_or(String::new(), |name| format!(" {name:>9} {:>9}", "p99"));
    let share = metric.map_or("share".to_owned(), |name| format!("of {name}"));
    say(paint(DIM, format!("  {share:>10} {:>12}{heading}  call path", "calls")));
    let cost =
        |path: &CallPath| metric.map_or(path.calls, |name| path.metrics.get(name).map_or(0, |m| m.sum));
    let total = function.paths.iter().map(cost).sum::<u64>().max(1) as f64;
    let mut paths: Vec<&CallPath> = function.paths.iter().collect();
    paths.sort_by_key(|path| Reverse(cost(path)));
    let limit = if limit == 0 { paths.len() } else { limit.min(paths.len()) };
    let (shown, left) = paths.split_at(limit);
    for path in shown {
        say(path_line(path, cost(path) as f64 / total, metric, width));
    }
    if !left.is_empty() {
        let calls: u64 = left.iter().map(|path| path.calls).sum();
        let cost: u64 = left.iter().map(|path| cost(path)).sum();
        let share = percent(cost as f64 / total, 1);
        let text =
            format!("  {share:>10} {:>12}  {} more paths (-n 0)", grouped(calls), grouped(left.len() as u64));
        say(paint(DIM, text));
    }
}

/// Formats a path: its share of the function's metric, or of its calls if there is none, calls, mean, p99, frames.
fn path_line(path: &CallPath, share: f64, metric: Option<&str>, width: usize) -> String {
    let values = metric.and_then(|name| path.metrics.get(name));
    let costs = values.map_or(String::new(), |values| {
        let mean =
            path.returns.filter(|returns| *returns > 0).map(|returns| values.sum as f64 / returns as f64);
        let [mean, p99] = [mean, values.p99.map(|p99| p99 as f64)].map(|ns| ns.map_or("–".to_owned(), time));
        format!(" {mean:>9} {p99:>9}")
    });
    let start = format!(
        "  {} {:>12}{costs}  ",
        paint(heat(share), format!("{:>10}", percent(share, 1))),
        grouped(path.calls)
    );
    let columns = 2 + 10 + 1 + 12 + costs.chars().count() + 2;
    let beginning = if path.is_complete { "" } else { "… → " };
    let text = match &path.frames[..] {
        [] => "on other paths, which are too many to be told apart".to_owned(),
        named => format!("{beginning}{}", frames(named)),
    };
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
