//! Prints the call paths of a function of a running program. A tool for developers; `dwell callpaths` is to replace it.
//!
//!     cargo run --release -p dwell-probe --example callpaths -- PID FUNCTION SECONDS [returns,wall,cpu]

use std::{
    collections::BTreeMap,
    thread::sleep,
    time::{Duration, Instant},
};

use dwell_image::{Image, ImageAddress, ImageOffset, Procedure};
use dwell_probe::{
    Probes,
    patch::from_image::function_codes,
    shared_memory::{MappedTable, Metrics, measure_ns_per_tick},
    target::procfs::mappings,
    unwind_table::UnwindTable,
};
use dwell_profile::Pid;

struct Mapped {
    start: u64,
    end: u64,
    bias: u64,
    image: Image,
    table: UnwindTable,
}

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
    };
    let begin = Instant::now();
    let mut images = Vec::new();
    for mapping in
        mappings(pid)?.into_iter().filter(|mapping| mapping.is_executable && mapping.file.is_some())
    {
        let image = Image::open(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end))?;
        let Some(first) = image.address_of(ImageOffset(mapping.offset)) else { continue };
        let table = UnwindTable::new(&image.unwind_rows(), first.0, mapping.end - mapping.start);
        let bias = mapping.start.wrapping_sub(first.0);
        images.push(Mapped { start: mapping.start, end: mapping.end, bias, image, table });
    }
    let tables: Vec<MappedTable> = images
        .iter()
        .map(|image| MappedTable { start: image.start, end: image.end, table: &image.table })
        .collect();
    let tables_bytes: usize = images.iter().map(|image| image.table.bytes()).sum();
    println!("tables of {} KiB in {:?}", tables_bytes >> 10, begin.elapsed());
    let mut codes = Vec::new();
    for mapped in &images {
        let procedures: Vec<Procedure> =
            mapped.image.procedures().iter().filter(|p| p.name() == *name).collect();
        codes.extend(function_codes(&mapped.image, &procedures, mapped.bias));
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
    let (snapshot, stopped) = probes.remove()?;
    println!("removed in {:?}, stopped {stopped:?} at most", before.elapsed());
    let ns_per_tick = measure_ns_per_tick();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut name_of = |address: u64| {
        let name = names.entry(address).or_insert_with(|| {
            let mapped = images.iter().find(|image| (image.start..image.end).contains(&address));
            let procedure = mapped.and_then(|mapped| {
                mapped.image.procedure_at(ImageAddress((address - 1).wrapping_sub(mapped.bias)))
            });
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
