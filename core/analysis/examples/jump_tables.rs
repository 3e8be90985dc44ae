//! Measures the share of indirect jumps (calls, linkage tables and tail calls apart) whose targets are recovered.
//!
//! `cargo run --release -p dwell-analysis --example jump_tables -- FILE…` prints a line for each ELF file and their sum.

use dwell_analysis::{cfg::is_tail_call, recover_jump_targets};
use dwell_image::{Flow, Image};

/// Numbers of recovered tables, missed tables and tail calls.
type Counts = [usize; 3];

fn main() {
    let mut all = Counts::default();
    for path in std::env::args().skip(1) {
        match Image::open(&path) {
            Ok(image) => {
                let counts = count(&image);
                tell(&path, counts);
                all.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
            }
            Err(error) => eprintln!("{error}"),
        }
    }
    tell("all", all);
}

fn count(image: &Image) -> Counts {
    let mut counts = Counts::default();
    for procedure in image.procedures().iter().filter(|p| !p.name().contains("plt")) {
        let code = image.instructions(procedure.address, procedure.size_bytes);
        let targets = recover_jump_targets(image.arch(), &code, &|a, bytes| image.read(a, bytes));
        for jump in (0..code.len()).filter(|&i| code[i].flow == Flow::IndirectJump) {
            let kind = match () {
                () if targets.contains_key(&jump) => 0,
                () if is_tail_call(&code, jump) => 2,
                () => 1,
            };
            counts[kind] += 1;
        }
    }
    counts
}

fn tell(name: &str, [recovered, missed, tail_calls]: Counts) {
    let share = 100.0 * recovered as f64 / (recovered + missed).max(1) as f64;
    println!("{name}: {share:.1}% recovered ({recovered}), {missed} missed, {tail_calls} tail calls");
}
