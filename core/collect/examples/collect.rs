//! A bare collector for measurements: `collect DB SECONDS HZ (-a | -p PID | -- CMD…)`, tallies on standard output.

use std::{collections::BTreeMap, error::Error, time::Duration};

use dwell_collect::{Progress, Rate, RecordOptions, Stop, Target, record};
use dwell_profile::Database;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [database, seconds, hz, mode, rest @ ..] = words.as_slice() else {
        return Err("usage: collect DB SECONDS HZ (-a | -p PID | -- CMD…)".into());
    };
    let target = match mode.as_str() {
        "-a" => Target::System,
        "-p" => Target::Processes(rest.iter().map(|p| p.parse()).collect::<Result<_, _>>()?),
        _ => Target::Command(rest.iter().map(Into::into).collect()),
    };
    let mut options = RecordOptions::new(target);
    options.rate = Rate::Frequency(hz.parse()?);
    options.duration = Some(Duration::from_secs_f64(seconds.parse()?)).filter(|d| !d.is_zero());
    options.branches = std::env::var_os("NO_REGISTERS").is_none();
    let database = Database::open(database)?;
    let mut tell = |p: Progress| {
        if let Progress::Warning(warning) = p {
            eprintln!("warning: {warning}");
        }
    };
    let recorded = record(options, &database.writer()?, &Stop::on_signals()?, &mut tell)?;
    let epoch = &recorded.epoch;
    println!(
        "{} {:?} {:?} clock {:?} {:?}",
        epoch.id, epoch.events, epoch.notes, epoch.cpu.clock_hz, epoch.cpu.clock_hz_range
    );
    println!("exit {:?} interrupted {}", recorded.exit, recorded.interrupted);
    if std::env::var_os("TALLIES_ONLY").is_some() {
        return Ok(());
    }
    let mut images: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (key, count) in &database.read(&epoch.id)?.counts {
        *images.entry((key.event.name().to_owned(), key.image.to_string())).or_default() += count;
    }
    let mut images: Vec<_> = images.into_iter().collect();
    images.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    images.iter().take(12).for_each(|((event, image), count)| println!("{count:9} {event:16} {image}"));
    Ok(())
}
