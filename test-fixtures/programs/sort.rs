//! Quicksort with Lomuto's partition over pseudo-random numbers: its comparison is a branch that cannot be predicted.

use std::process::exit;

const N: usize = 1 << 20;

/// xorshift64 (Marsaglia 2003).
fn random_next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Moves what is below the last element before it, and returns where that element now stands. `v` is not empty.
#[inline(never)]
fn partition(v: &mut [u32]) -> usize {
    let pivot = v[v.len() - 1];
    let (mut below, mut at) = (0, 0);
    // All on one line, since the samples of a mispredicted branch land anywhere on its two ways.
    while at < v.len() { let x = v[at]; if x < pivot { v[at] = v[below]; v[below] = x; below += 1; } at += 1; } // HOT
    v.swap(below, at - 1);
    below
}

fn quicksort(mut v: &mut [u32]) {
    while v.len() > 1 {
        let middle = partition(v);
        let (left, right) = v.split_at_mut(middle);
        quicksort(left);
        v = &mut right[1..];
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Ok(rounds) = arguments.next().map_or(Ok(28), |text| text.parse::<u64>()) else {
        eprintln!("usage: sort [REPETITIONS]");
        exit(2)
    };
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut sum = 0u64;
    for _ in 0..rounds {
        let mut v: Vec<u32> = (0..N).map(|_| random_next(&mut state) as u32).collect();
        quicksort(&mut v);
        assert!(v.is_sorted());
        sum = sum.wrapping_mul(31).wrapping_add(u64::from(v[N / 2]));
    }
    println!("sort {sum:016x}");
}
