//! Renders `dwell top` as text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use dwell_profile::{Dimension, Event};
use dwell_query::{
    Query, SampleFilter, TopBy, TopRequest,
    answer::{EpochSummary, Top, TopRow},
};
use jiff::Timestamp;

use crate::{
    args::{By, Since},
    text::{
        BOLD, DIM, counted, cycles_each, cycles_interval, fit, grouped, heat, paint, seconds, si_or_dash,
    },
};

/// Renders the table. `epochs` are the merged epochs, `domains` describes the shares of user mode and kernel.
pub fn render(top: &Top, domains: Option<&str>, epochs: &[&EpochSummary], by: By, width: usize) -> String {
    let mut out = String::new();
    let mut say = |line: String| writeln!(out, "{}", line.trim_end()).expect("a String takes every text");
    headings(epochs).into_iter().for_each(|line| say(paint(DIM, line)));
    domains.iter().for_each(|d| say(paint(DIM, *d)));
    let off_cpu = off_cpu_period(top, epochs);
    let wait_column = |waits: &str, preempted: &str| {
        off_cpu.map_or(String::new(), |_| format!(" {waits:>8} {preempted:>9}"))
    };
    let interval = |row: &TopRow| cycles_interval(row.cpi, row.cpi_min, row.cpi_max);
    // The interval of the CPI is left out where it would leave too little room for names.
    let has_intervals = width >= 100 && top.rows.iter().any(|row| interval(row).is_some());
    let interval_column = |text: String| if has_intervals { format!(" {text:>11}") } else { String::new() };
    let other_columns = wait_column("", "").len() + interval_column(String::new()).len();
    let name_width = width.saturating_sub(9 + 9 + 11 + 10 + 8 + 2 + other_columns);
    say(paint(
        BOLD,
        format!(
            "{:>8} {:>8} {:>10} {:>9} {:>7}{}{}  {}",
            "share",
            "total",
            "samples",
            "cycles",
            "CPI",
            interval_column("90 %".to_owned()),
            wait_column("waits", "preempted"),
            title(by)
        ),
    ));
    let primary = top.primary();
    for row in &top.rows {
        let primary = primary.and_then(|(event, _)| row.samples.get(event)).copied().unwrap_or(0);
        say(format!(
            "{} {:>7.2}% {:>10} {:>9} {:>7}{}{}  {}",
            paint(heat(row.share), format!("{:>7.2}%", 100.0 * row.share)),
            100.0 * row.cumulative_share,
            grouped(if by == By::Line { waited(top, row) } else { primary }),
            si_or_dash(row.cycles),
            cycles_each(row.cpi, row.cpi_min),
            interval_column(interval(row).unwrap_or_default()),
            off_cpu.map_or(String::new(), |period| {
                let (waits, preempted) = waits(row, period);
                wait_column(&waits, &preempted)
            }),
            name(row, by, name_width),
        ));
    }
    if top.omitted_rows > 0 {
        say(paint(DIM, format!("… {}: -n 0 shows all", counted(top.omitted_rows, "more row"))));
    }
    top.notes.iter().for_each(|n| say(paint(DIM, format!("note: {n}"))));
    out
}

/// Returns how long the row's threads waited, and how long they were ready to run while others did.
fn waits(row: &TopRow, period: f64) -> (String, String) {
    let time = |count: u64| if count == 0 { "–".to_owned() } else { seconds(Some(count as f64 * period)) };
    let count = |event: Event| row.samples.get(event.name()).copied().unwrap_or(0);
    let preempted = count(Event::PREEMPTED);
    (time(count(Event::OFF_CPU).saturating_sub(preempted)), time(preempted))
}

/// Returns the mean period of the time off the CPU in seconds, if it is among the events of the table.
fn off_cpu_period(top: &Top, epochs: &[&EpochSummary]) -> Option<f64> {
    let name = Event::OFF_CPU.name();
    top.total.get(name)?;
    let events = || epochs.iter().filter_map(|epoch| epoch.events.get(name));
    let samples: u64 = events().map(|event| event.samples).sum();
    let nanoseconds: f64 = events().map(|event| event.samples as f64 * event.period as f64).sum();
    (samples > 0).then(|| nanoseconds * 1e-9 / samples as f64)
}

/// Returns the number of samples that the row's share stands for. By line, they are counted at the line that was waited for.
fn waited(top: &Top, row: &TopRow) -> u64 {
    let total = top.primary().map_or(0, |(_, samples)| samples);
    (row.share * total as f64).round() as u64
}

/// Returns a request for these epochs, limited to images whose path, file name or id contains `image`.
pub fn request(epochs: &[String], image: &Option<String>, filter: &SampleFilter) -> TopRequest {
    let (epochs, image, filter) = (epochs.to_vec(), image.clone(), filter.clone());
    TopRequest { epochs, image, filter, ..TopRequest::default() }
}

/// Returns the ids of the epochs in which something was sampled since a time.
pub fn since(query: &Query, Since(from): Since) -> anyhow::Result<Vec<String>> {
    let is_within = |e: &&EpochSummary| {
        e.end.as_ref().is_none_or(|end| end.parse::<Timestamp>().is_ok_and(|end| end >= from))
    };
    let ids: Vec<String> = query.epochs()?.epochs.iter().filter(is_within).map(|e| e.id.clone()).collect();
    anyhow::ensure!(!ids.is_empty(), "top: --since: no recording ended after {from:.0}, and none is running");
    Ok(ids)
}

/// Returns whether the row's image is the kernel or a kernel module.
pub fn is_kernel(row: &TopRow) -> bool {
    row.build_id.as_deref().is_some_and(|id| id == "kernel" || id.starts_with("module:"))
}

/// Returns the shares of user mode and of the kernel, from rows that are images.
pub fn shares(images: &Top) -> (f64, f64) {
    let kernel: f64 = images.rows.iter().filter(|r| is_kernel(r)).map(|r| r.share).sum();
    let all: f64 = images.rows.iter().map(|r| r.share).sum();
    ((all - kernel).max(0.0), kernel)
}

/// Describes these shares: `user 83.1%, kernel 16.9%`. Returns `None` if the kernel was not sampled.
pub fn domains(images: &Top) -> Option<String> {
    let (user, kernel) = shares(images);
    (kernel > 0.0).then(|| format!("user {:.1}%, kernel {:.1}%", 100.0 * user, 100.0 * kernel))
}

/// Returns what to request for this kind of rows.
pub fn by(by: By) -> TopBy {
    match by {
        By::Procedure => TopBy::Procedure,
        By::Image => TopBy::Image,
        By::Line => TopBy::Line,
        By::App => TopBy::App,
        By::Instance => TopBy::Instance,
        By::Thread => TopBy::Dimension(Dimension::Thread),
        By::Cpu => TopBy::Dimension(Dimension::Cpu),
        By::Cgroup => TopBy::Dimension(Dimension::Cgroup),
        By::Data => TopBy::Data,
        By::Caller => unreachable!("callers are rows of call stacks"),
    }
}

fn title(by: By) -> &'static str {
    match by {
        By::Procedure => "procedure",
        By::Image => "image",
        By::Line => "line",
        By::App => "application",
        By::Instance => "instance",
        By::Thread => "thread",
        By::Cpu => "CPU",
        By::Cgroup => "control group",
        By::Data => "data",
        By::Caller => "caller",
    }
}

fn name(row: &TopRow, by: By, width: usize) -> String {
    let image = row.image.as_deref().unwrap_or_default();
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match by {
        By::Procedure => {
            let procedure = row.demangled.as_deref().unwrap_or_default();
            let room = (width * 2 / 3).clamp(20, 60);
            let image = fit(&file_name(image), width.saturating_sub(room + 2).max(12));
            format!("{:<room$}  {}", fit(procedure, room), paint(DIM, image))
        }
        By::Image => image.to_owned(),
        By::Line => match (&row.file, row.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            _ => paint(DIM, format!("{image} (no source line)")),
        },
        By::App => row.app.clone().unwrap_or_default(),
        By::Instance => {
            let instance = row.instance.unwrap_or(0);
            let app = row.app.as_deref().unwrap_or_default();
            if instance > 0 { format!("{app} #{instance}") } else { app.to_owned() }
        }
        By::Thread | By::Cpu | By::Cgroup => dimension(row),
        By::Caller => String::new(),
        By::Data => {
            let data = row.data.as_deref().unwrap_or_default();
            let room = (width * 2 / 3).clamp(20, 60);
            if image.is_empty() {
                return data.to_owned();
            }
            let image = fit(&file_name(image), width.saturating_sub(room + 2).max(12));
            format!("{:<room$}  {}", fit(data, room), paint(DIM, image))
        }
    }
}

/// Returns the name of a row by thread, CPU or control group.
pub fn dimension(row: &TopRow) -> String {
    let or_unknown = |text: &str| if text.is_empty() { "[unknown]".to_owned() } else { text.to_owned() };
    match row {
        TopRow { thread: Some(name), .. } => or_unknown(name),
        TopRow { cpu: Some(cpu), .. } => cpu.map_or("[unknown]".to_owned(), |cpu| cpu.to_string()),
        TopRow { cgroup: Some(path), container: Some(name), .. } => format!("{name}  {path}"),
        TopRow { cgroup: Some(path), .. } => or_unknown(path),
        _ => String::new(),
    }
}

/// Number of merged epochs that are described one by one.
const DESCRIBED_MAX: usize = 6;

/// Describes merged epochs: a few one by one, many in one line.
fn headings(epochs: &[&EpochSummary]) -> Vec<String> {
    let (Some(first), Some(last)) = (epochs.first(), epochs.last()) else { return Vec::new() };
    if epochs.len() <= DESCRIBED_MAX {
        return epochs.iter().map(|epoch| heading(epoch)).collect();
    }
    let mut sums: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for (name, event) in epochs.iter().flat_map(|epoch| &epoch.events) {
        let (samples, lost, unknown) = sums.entry(name).or_default();
        *samples += event.samples;
        *lost += event.lost;
        *unknown += event.unknown;
    }
    let events = sums.iter().map(|(name, (samples, lost, unknown))| {
        let unknown = 100.0 * *unknown as f64 / (*samples).max(1) as f64;
        let lost = if *lost > 0 { format!(", {} lost", grouped(*lost)) } else { String::new() };
        format!("{} samples of {name}{lost}, {unknown:.2}% unknown", grouped(*samples))
    });
    let events = events.collect::<Vec<_>>().join("; ");
    let hosts: BTreeSet<&str> = epochs.iter().map(|epoch| epoch.host.as_str()).collect();
    let on = match hosts.len() {
        1 => format!("on {}", first.host),
        machines => format!("on {machines} machines"),
    };
    let end = last.end.as_deref().unwrap_or("now");
    vec![format!("{} recordings {on}, {} to {end}: {events}", epochs.len(), first.start)]
}

/// Describes an epoch and how far to trust it, in one line.
pub fn heading(epoch: &EpochSummary) -> String {
    let events = epoch.events.iter().map(|(name, e)| {
        let lost = if e.lost > 0 { format!(", {} lost", grouped(e.lost)) } else { String::new() };
        let unknown = 100.0 * e.unknown as f64 / e.samples.max(1) as f64;
        let samples = grouped(e.samples);
        format!(
            "{name} every {} {}: {samples} samples{lost}, {unknown:.2}% unknown",
            grouped(e.period),
            e.unit
        )
    });
    let name = epoch.name.as_ref().map_or(String::new(), |n| format!(" '{n}'"));
    format!("epoch {}{name}, {}, {}", epoch.id, fit(&epoch.scope, 60), events.collect::<Vec<_>>().join("; "))
}
