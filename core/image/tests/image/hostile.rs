//! Damaged fixtures, seeded: no panic, no endless loop.

use std::time::{Duration, Instant};

use dwell_image::fuzz_elf;

use crate::fixtures;

/// Random numbers by SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

const ROUNDS: u64 = 24;
/// Time limit for one file on a busy machine; most files take a millisecond.
const TIME_MAX: Duration = Duration::from_secs(20);

#[test]
fn truncated_and_overwritten_files_do_no_harm() {
    for name in fixtures::binaries() {
        let whole = fixtures::bytes(&name);
        timed(&name, 0, &whole);
        for seed in 0..ROUNDS {
            let mut random = Random(seed);
            let mut damaged = whole.clone();
            match seed % 3 {
                0 => damaged.truncate(random.below(whole.len())),
                1 => overwrite(&mut damaged, &mut random, 1),
                _ => overwrite(&mut damaged, &mut random, 64),
            }
            timed(&name, seed, &damaged);
        }
    }
}

/// Damage in debug sections and headers goes deeper than damage in code.
#[test]
fn no_wrong_byte_in_headers_or_debug_sections_does_harm() {
    for name in ["c-dwarf5.elf", "c-dwarf4.elf", "c-zstd.elf", "rust-words.so"] {
        let whole = fixtures::bytes(name);
        let tail = whole.len() * 2 / 3;
        let mut random = Random(7);
        for round in 0..150 {
            let mut damaged = whole.clone();
            let at = if round % 3 == 0 {
                random.below(64 + 56 * 12)
            } else {
                tail + random.below(whole.len() - tail)
            };
            damaged[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
            timed(name, round, &damaged);
        }
    }
}

fn overwrite(bytes: &mut [u8], random: &mut Random, count: usize) {
    for _ in 0..count {
        let at = random.below(bytes.len());
        bytes[at] = random.next() as u8;
    }
}

fn timed(name: &str, seed: u64, bytes: &[u8]) {
    let start = Instant::now();
    let result = std::panic::catch_unwind(|| fuzz_elf(bytes));
    assert!(result.is_ok(), "{name} with seed {seed} panicked");
    assert!(start.elapsed() < TIME_MAX, "{name} with seed {seed} took {:?}", start.elapsed());
}

/// Inlined calls nested as deep as bytes allow: readers that recurse overflow their stack here.
#[test]
fn deeply_nested_entries_do_not_overflow_the_stack() {
    let mut info: Vec<u8> = Vec::new();
    // The bytes are a DWARF 4 unit header, the unit, a function with code, and two nested inlined calls.
    info.extend([0; 4]);
    info.extend(4_u16.to_le_bytes());
    info.extend([0, 0, 0, 0, 8, 1]);
    for entry in [1, 2] {
        info.push(entry);
        info.truncate(info.len() - usize::from(entry == 1));
        info.extend(0x1000_u64.to_le_bytes());
        info.extend(0x1000_u64.to_le_bytes());
    }
    info.extend(std::iter::repeat_n(3, 1_000_000));
    let length = (info.len() - 4) as u32;
    info[..4].copy_from_slice(&length.to_le_bytes());
    let abbreviations =
        [1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, 2, 0x2e, 1, 0x11, 1, 0x12, 7, 0, 0, 3, 0x1d, 1, 0, 0, 0];
    let elf =
        elf(&[(".text", 6, &[0x90; 4096]), (".debug_info", 0, &info), (".debug_abbrev", 0, &abbreviations)]);
    let image = dwell_image::Image::parse(elf).unwrap();
    assert_eq!(image.frames(dwell_image::ImageAddress(0x1000)).len(), 1, "the function");
}

/// An executable of these sections (name, flags, bytes); code is at 0x1000.
fn elf(sections: &[(&str, u64, &[u8])]) -> Vec<u8> {
    let mut names = vec![0_u8];
    let mut body = Vec::new();
    let mut headers = vec![0_u8; 64];
    let strings: Vec<_> = sections.iter().map(|s| s.0).chain([".shstrtab"]).collect();
    let offsets: Vec<u32> = strings
        .iter()
        .map(|s| {
            let at = names.len() as u32;
            names.extend(s.bytes().chain([0]));
            at
        })
        .collect();
    let table = (".shstrtab", 0, &names[..]);
    for ((_, flags, bytes), name) in sections.iter().chain([&table]).zip(&offsets) {
        let kind = if bytes.as_ptr() == names.as_ptr() { 3_u32 } else { 1 };
        let address = if *flags != 0 { 0x1000_u64 } else { 0 };
        headers.extend(name.to_le_bytes().into_iter().chain(kind.to_le_bytes()));
        for word in [*flags, address, 120 + body.len() as u64, bytes.len() as u64, 0, 8, 0] {
            headers.extend(word.to_le_bytes());
        }
        body.extend_from_slice(bytes);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    elf.resize(16, 0);
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [0_u64, 64, 120 + body.len() as u64] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend([0; 4]);
    for half in [64_u16, 56, 1, 64, sections.len() as u16 + 2, sections.len() as u16 + 1] {
        elf.extend(half.to_le_bytes());
    }
    // There is one segment: it is executable and covers the first section.
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [120, 0x1000, 0x1000, sections[0].2.len() as u64, sections[0].2.len() as u64, 8] {
        elf.extend(u64::to_le_bytes(word));
    }
    assert_eq!(elf.len(), 120);
    elf.extend(body);
    elf.extend(headers);
    elf
}
