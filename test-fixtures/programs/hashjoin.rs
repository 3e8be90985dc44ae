//! Joins two tables by hashing: every probe lands on another cache line of a 64 MiB hash table.

use std::process::exit;

const KEYS: usize = 1 << 21;

#[derive(Clone, Copy, Default)]
struct Slot {
    key: u64,
    payload: u64,
}

/// xorshift64 (Marsaglia 2003).
fn random_next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn hash(key: u64, mask: usize) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask
}

/// Open addressing at half load; key 0 marks a free slot.
fn build(keys: &[u64]) -> Vec<Slot> {
    let mut slots = vec![Slot::default(); keys.len() * 2];
    let mask = slots.len() - 1;
    for (row, &key) in keys.iter().enumerate() {
        let mut at = hash(key, mask);
        while slots[at].key != 0 {
            at = (at + 1) & mask;
        }
        slots[at] = Slot { key, payload: row as u64 };
    }
    slots
}

/// Every probe finds its key: a join on a foreign key.
#[inline(never)]
fn probe(slots: &[Slot], probes: &[u64], mut sum: u64) -> u64 {
    let mask = slots.len() - 1;
    for &key in probes {
        let mut at = hash(key, mask);
        while slots[at].key != key { // HOT
            at = (at + 1) & mask;
        }
        sum = sum.rotate_left(1).wrapping_add(slots[at].payload);
    }
    sum
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Ok(rounds) = arguments.next().map_or(Ok(60), |text| text.parse::<u64>()) else {
        eprintln!("usage: hashjoin [REPETITIONS]");
        exit(2)
    };
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let keys: Vec<u64> = (0..KEYS).map(|_| random_next(&mut state)).collect();
    let slots = build(&keys);
    let probes: Vec<u64> = (0..KEYS).map(|_| keys[random_next(&mut state) as usize % KEYS]).collect();
    let sum = (0..rounds).fold(0u64, |sum, _| probe(&slots, &probes, sum));
    println!("hashjoin {sum:016x}");
}
