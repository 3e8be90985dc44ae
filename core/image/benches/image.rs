//! How fast an image answers. Input: this bench's own executable (Rust, debug lines, tens of MB), so that the figures
//! compare within one run; `DWELL_BENCH_IMAGE` names another.
//!
//! Against other tools on the same file: `time addr2line -fie FILE < addresses`, `time objdump -d FILE`.

use std::hint::black_box;
use std::path::PathBuf;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dwell_image::{Image, ImageAddress};

fn path() -> PathBuf {
    std::env::var_os("DWELL_BENCH_IMAGE").map_or_else(|| std::env::current_exe().unwrap(), PathBuf::from)
}

fn open(criterion: &mut Criterion) {
    let path = path();
    criterion.bench_function("open", |b| b.iter(|| Image::open(&path).unwrap()));
    criterion.bench_function("open and procedures", |b| {
        b.iter(|| Image::open(&path).unwrap().procedures().iter().len());
    });
}

fn look_up(criterion: &mut Criterion) {
    let path = path();
    let image = Image::open(&path).unwrap();
    let addresses: Vec<ImageAddress> = image.procedures().iter().step_by(7).map(|p| p.address).collect();
    let mut group = criterion.benchmark_group("look-up");
    group.throughput(Throughput::Elements(addresses.len() as u64));
    group.bench_function("procedure_at", |b| {
        b.iter(|| addresses.iter().filter(|a| image.procedure_at(**a).is_some()).count());
    });
    group.bench_function("frames, warm", |b| {
        b.iter(|| addresses.iter().map(|a| image.frames(*a).len()).sum::<usize>());
    });
    group.finish();
    criterion.bench_function("frames, cold, one address", |b| {
        let fresh = || Image::open(&path).unwrap();
        b.iter_batched(fresh, |image| black_box(image.frames(addresses[0])), BatchSize::PerIteration);
    });
}

fn decode(criterion: &mut Criterion) {
    let image = Image::open(path()).unwrap();
    let largest = image.procedures().iter().max_by_key(|p| p.size_bytes).unwrap();
    let mut group = criterion.benchmark_group("instructions");
    group.throughput(Throughput::Bytes(largest.size_bytes));
    group.bench_function("largest procedure", |b| {
        b.iter(|| image.instructions(largest.address, largest.size_bytes).len());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = open, look_up, decode
}
criterion_main!(benches);
