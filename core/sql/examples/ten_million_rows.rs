//! Makes a database of ten million rows, for the figures in docs/benchmarks.md ("SQL").
//!
//! Enters: the folder of the new database. Leaves: three epochs of 24 segments with 138,300 rows each. The images are
//! binaries of this machine that together have at most 240,000 procedures; samples fall on them by power laws, with a
//! fixed seed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dwell_profile::{
    Counts, Database, Epoch, Event, ImageId, ImageKind, ImageOffset, ImageRecord, SampleKey,
};
use dwell_query::{Options, ProcedureRange, Query};

const PROCEDURES_MAX: usize = 240_000;
/// Largest number of procedures of one image, so that there are many images.
const PROCEDURES_PER_IMAGE_MAX: usize = 10_000;
const IMAGES_MAX: usize = 300;
const EPOCHS: i64 = 3;
const SEGMENTS: usize = 24;
const ROWS: usize = 138_300;
const FOLDERS: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/bin", "/usr/lib/gcc", "/usr/libexec"];

fn main() {
    let folder = std::env::args().nth(1).expect("usage: ten_million_rows DIR");
    let database = Database::open(&folder).expect("the folder can be opened");
    let images = images(&Query::open(Options::for_database(&folder)).expect("the folder can be opened"));
    let procedures: usize = images.iter().map(|(_, procedures)| procedures.len()).sum();
    let records: Vec<ImageRecord> = images.iter().map(|(record, _)| record.clone()).collect();
    let writer = database.writer().expect("the folder can be written");
    let (mut random, mut rows) = (Random(88_172_645_463_325_252), 0);
    for day in 0..EPOCHS {
        let mut epoch = writer.begin(epoch(day)).expect("an epoch can be begun");
        for _ in 0..SEGMENTS {
            let counts = counts(&images, &mut random);
            rows += counts.len();
            epoch.append(&counts, &records).expect("samples can be stored");
        }
    }
    println!("{rows} rows, {} images, {procedures} procedures", images.len());
}

/// Returns the images with their procedures.
fn images(query: &Query) -> Vec<(ImageRecord, Vec<ProcedureRange>)> {
    let mut files: Vec<(u64, PathBuf)> = Vec::new();
    FOLDERS.iter().for_each(|folder| collect(Path::new(folder), &mut files));
    files.sort_by(|a, b| b.cmp(a));
    let (mut images, mut procedures) = (Vec::new(), 0);
    for (size, path) in files {
        let id = ImageId::named(&format!("file:{}", images.len()));
        let record = ImageRecord { size_bytes: Some(size), ..ImageRecord::new(id, ImageKind::File, path) };
        let ranges = query.procedure_ranges(&record);
        let fits = ranges.len() <= PROCEDURES_PER_IMAGE_MAX && procedures + ranges.len() <= PROCEDURES_MAX;
        if !ranges.is_empty() && fits && images.len() < IMAGES_MAX {
            procedures += ranges.len();
            images.push((record, ranges));
        }
    }
    images
}

fn collect(folder: &Path, files: &mut Vec<(u64, PathBuf)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        match meta.is_dir() {
            true => collect(&entry.path(), files),
            false if meta.is_file() && meta.len() > 100_000 => files.push((meta.len(), entry.path())),
            false => {}
        }
    }
}

fn counts(images: &[(ImageRecord, Vec<ProcedureRange>)], random: &mut Random) -> Counts {
    let mut counts = Counts::default();
    while counts.len() < ROWS {
        let at = (random.share().powi(3) * images.len() as f64) as usize;
        let (record, procedures) = &images[at];
        let procedure = &procedures[(random.share().powi(4) * procedures.len() as f64) as usize];
        let inside = (random.share() * (procedure.end - procedure.start) as f64) as u64;
        let key = SampleKey {
            image: record.id.clone(),
            event: if random.share() < 0.2 { Event::INSTRUCTIONS } else { Event::CYCLES },
            offset: ImageOffset(procedure.start + inside),
            app: format!("app{}", at % 40).into(),
            instance: (random.share() * 3.0) as u32,
            dimensions: None,
        };
        *counts.entry(key).or_insert(0) += 1 + (random.share() * 3.0) as u64;
    }
    counts
}

fn epoch(day: i64) -> Epoch {
    let epoch = serde_json::json!({
        "id": format!("2026112{day}T000000Z-000000"), "name": format!("day{day}"), "start": format!("2026-11-2{day}T00:00:00Z"),
        "end": format!("2026-11-2{day}T23:59:59Z"), "host": {"name": "host", "kernel_release": "6"},
        "cpu": {"arch": "x86_64", "vendor": "v", "model_name": "m", "family": 6, "model": 1, "stepping": 1, "count": 2, "clock_hz": 1e9},
        "backend": "import", "scope": {"import": "ten_million_rows"},
        "events": {"cycles": {"period": 62000, "unit": "cycles", "samples": 0, "lost": 0, "throttled": 0, "unknown": 0}},
    });
    serde_json::from_value(epoch).expect("it is an epoch")
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    /// Returns a number from 0 up to 1.
    fn share(&mut self) -> f64 {
        for shift in [13, -7, 17] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
