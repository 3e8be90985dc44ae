//! Prints the call paths of a function of a running program. A tool for developers; `dwell callpaths` is to replace it.
//!
//!     cargo run --release -p dwell-probe --example callpaths -- PID FUNCTION SECONDS [returns,wall,cpu]

use std::{
    collections::BTreeMap,
    thread::sleep,
    time::{Duration, Instant},
};

use dwell_image::Procedure;
use dwell_probe::{
    Probes,
    process_images::{MappedImage, process_images},
    shared_memory::{Metrics, measure_ns_per_tick},
};
use dwell_profile::Pid;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, name, seconds] = &arguments[..3] else {
        return Err("usage: PID FUNCTION SECONDS [METRICS]".into());
    };
    let pid = Pid(pid.parse()?);
    let chosen = arguments.get(3).map_or("returns,wall", String::as_str);
    let metrics = Metrics {
        returns: chosen.contains("returns"),
        wall: chosen.contains("wall"),
        cpu: chosen.contains("cpu"),
        blocked: false,
    };
    let begin = Instant::now();
    let images = process_images(pid)?;
    let tables: Vec<_> = images.iter().map(MappedImage::table).collect();
    let tables_bytes: usize = tables.iter().map(|table| table.table.bytes()).sum();
    println!("tables of {} KiB in {:?}", tables_bytes >> 10, begin.elapsed());
    let mut codes = Vec::new();
    for mapped in &images {
        let procedures: Vec<Procedure> =
            mapped.image.procedures().iter().filter(|p| p.name() == *name).collect();
        codes.extend(mapped.codes(&procedures));
    }
    println!("{} functions in {:?}", codes.len(), begin.elapsed());
    let codes = codes.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut probes = Probes::attach(pid, &tables)?;
    for added in probes.add(&codes.iter().map(|code| (code, metrics)).collect::<Vec<_>>())? {
        added?;
    }
    println!("attached after {:?}, stopped {:?} at most", begin.elapsed(), probes.stopped_max());
    sleep(Duration::from_secs_f64(seconds.parse()?));
    let before = Instant::now();
    probes.remove()?;
    println!("removed in {:?}, stopped {:?} at most", before.elapsed(), probes.stopped_max());
    let snapshot = probes.snapshot();
    let ns_per_tick = measure_ns_per_tick();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut name_of = |address: u64| {
        let name = names.entry(address).or_insert_with(|| {
            let is_in = |image: &&MappedImage| (image.mapping.start..image.mapping.end).contains(&address);
            let procedure = images.iter().find(is_in).and_then(|image| image.procedure_at(address - 1));
            procedure.map_or_else(|| format!("{address:#x}"), |procedure| procedure.demangled())
        });
        name.clone()
    };
    for path in &snapshot.paths {
        let frames: Vec<String> = path.return_addresses.iter().map(|address| name_of(*address)).collect();
        let per_call = |sum: u64, scale: f64| sum as f64 * scale / path.returns.max(1) as f64;
        println!(
            "{} calls, {} returns, {} unwound, wall {:.1} ns, cpu {:.1} ns, {:?}: {}",
            path.calls,
            path.returns,
            path.unwound,
            per_call(path.wall.sum, ns_per_tick),
            per_call(path.cpu.sum, ns_per_tick),
            path.end,
            frames.join(" < ")
        );
    }
    let missed: u64 = snapshot.missed.iter().flatten().sum();
    println!(
        "{} paths, {missed} missed, {} returns without a call",
        snapshot.paths.len(),
        snapshot.unmatched
    );
    Ok(())
}
