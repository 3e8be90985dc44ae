//! Writing and reading a segment of 100,000 rows, through the database: encoded, synced and renamed; read and added up.
//! Prints bytes per row.

use std::{collections::BTreeMap, hint::black_box, sync::Arc};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dwell_profile::*;

const ROWS: u64 = 100_000;

/// Rows as a machine has them: 200 images of skewed sizes, offsets in clumps, few counts above 1, several applications.
fn rows() -> Counts {
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut counts = Counts::default();
    while (counts.len() as u64) < ROWS {
        let image = random(200) * random(200) / 200;
        let procedure = random(300) * random(300) / 300;
        let offset = 0x1000 + procedure * 417 + random(64) * 3;
        let key = SampleKey {
            image: ImageId::named(&blake3_like(image)),
            event: Event::CPU_CLOCK,
            offset: ImageOffset(offset),
            app: Arc::from(format!("app{}", random(30) * random(30) / 30)),
            instance: 1 + random(4) as u32,
            dimensions: None,
        };
        *counts.entry(key).or_insert(0) += 1 + random(40) / 39 * random(200);
    }
    counts
}

/// A text of a build id's length.
fn blake3_like(n: u64) -> String {
    (0..5).map(|i| format!("{:08x}", (n + 1).wrapping_mul(2_654_435_761 + i) as u32)).collect()
}

fn epoch(n: i64) -> Epoch {
    let start = jiff::Timestamp::from_second(1_700_000_000 + n).unwrap();
    Epoch {
        id: EpochId::new(start),
        name: None,
        start,
        end: None,
        host: Host { name: "bench".into(), kernel_release: "6".into() },
        cpu: Cpu {
            arch: "x86_64".into(),
            vendor: "v".into(),
            model_name: "m".into(),
            family: 0,
            model: 0,
            stepping: 0,
            count: 2,
            clock_hz: None,
            clock_hz_range: None,
            machine_model: None,
        },
        backend: "perf".into(),
        scope: Scope::System,
        events: BTreeMap::new(),
        notes: vec![],
        bursts: None,
        breakpoints: None,
        counts: None,
        call_stacks: None,
        collector: None,
    }
}

fn segment(c: &mut Criterion) {
    let counts = rows();
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let writer = db.writer().unwrap();
    let mut stored = writer.begin(epoch(0)).unwrap();
    stored.append(&counts, &[]).unwrap();
    let id = stored.epoch().id.clone();
    let path = dir.path().join("epochs").join(&id.0).join("segment-000001.parquet");
    let bytes = std::fs::metadata(&path).unwrap().len();
    println!("segment: {ROWS} rows, {bytes} bytes, {:.2} bytes per row", bytes as f64 / ROWS as f64);

    let mut group = c.benchmark_group("segment");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);
    let mut n = 0;
    group.bench_function("append 100k rows", |b| {
        let fresh = || {
            n += 1;
            writer.begin(epoch(n)).unwrap()
        };
        b.iter_batched_ref(fresh, |epoch| epoch.append(&counts, &[]).unwrap(), BatchSize::PerIteration);
    });
    group.bench_function("read 100k rows", |b| b.iter(|| black_box(db.read(&id).unwrap().counts.len())));
    let file = std::fs::read(&path).unwrap();
    group.bench_function("decode 100k rows", |b| {
        b.iter(|| black_box(read_segment(&file).unwrap().rows.len()))
    });
    group.finish();
}

criterion_group!(benches, segment);
criterion_main!(benches);
