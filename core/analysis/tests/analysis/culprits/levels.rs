//! Levels of the memory: which of them can explain how long a load was waited for.

use std::fmt::Write;

use dwell_profile::Event;
use expect_test::{Expect, expect};

use super::{in_order_case, out_of_order_case};
use crate::show::Case;

/// Data misses with where the data may have come from, and in which part of executions.
fn check(case: &Case, expected: Expect) {
    let analysis = case.analyze();
    let mut text = String::new();
    for (cost, instruction) in analysis.instructions.iter().zip(&case.instructions) {
        for stall in cost.stalls.iter().filter(|s| !s.sources.is_empty()) {
            write!(text, "{}: {:.1} cycles from", instruction.text, stall.cycles_max).unwrap();
            stall.sources.iter().for_each(|s| write!(text, " {:?} {:.0}%", s.level, 100.0 * s.part).unwrap());
            text.push('\n');
        }
    }
    expected.assert_eq(&text);
}

/// `step` bytes on each time, and `waited` samples of 1,000 executions at the user.
fn walk(step: u32, waited: u64) -> Case<'static> {
    let text = format!(
        "loop:
         ldr x1, [x2]
         add x2, x2, {step}
         add x3, x3, x1
         add x8, x8, 1
         cmp x8, x9
         b.ne loop
         ret"
    );
    in_order_case(&text, &[1000, 0, waited, 0, 1000, 1000, 0])
}

/// The second level delivers the data after 12 cycles, three of which the model expects.
#[test]
fn what_the_second_level_takes() {
    check(
        &walk(64, 12_000),
        expect![[r#"
        add x3, x3, x1: 9.0 cycles from Second 100% Memory 8%
    "#]],
    );
}

/// The simulated core has no third level.
#[test]
fn longer_than_the_second_level_is_memory() {
    check(
        &walk(64, 60_000),
        expect![[r#"
        add x3, x3, x1: 57.0 cycles from Memory 53%
    "#]],
    );
}

/// In an eighth of the executions, the second level can explain one cycle each, and no more.
#[test]
fn within_a_line_a_level_explains_its_part() {
    check(
        &walk(8, 4_100),
        expect![[r#"
        add x3, x3, x1: 1.1 cycles from Second 12% Memory 1%
    "#]],
    );
    check(
        &walk(8, 9_000),
        expect![[r#"
        add x3, x3, x1: 6.0 cycles from Memory 6%
    "#]],
    );
}

/// Ninety instructions were retired for each cycle sample of 1,000 cycles, so executions are known.
fn chase(events: &[(&'static str, u64, u64)]) -> Case<'static> {
    let text = "loop:
         mov rax, [rax]
         dec rcx
         jne loop
         ret";
    let mut case = out_of_order_case(text, &[0, 30_000, 0, 0], &[(2, 999, 1)]);
    case.period_cycles = Some(1000.0);
    case.events.insert(Event::INSTRUCTIONS, (vec![600, 600, 600, 0], 1000));
    for &(name, samples, period) in events {
        case.events.insert(Event::named(name), (vec![0, samples, 0, 0], period));
    }
    case
}

/// Some fifty cycles: the third level of a Zen 4, or memory now and then.
#[test]
fn out_of_order_a_load_waits_for_itself() {
    check(
        &chase(&[]),
        expect![[r#"
        mov rax, [rax]: 46.2 cycles from Last 92% Memory 11%
    "#]],
    );
}

/// Nobody missed the last level, so memory was not asked.
#[test]
fn events_rule_memory_out() {
    check(
        &chase(&[("L1-dcache-load-misses", 600, 1000), ("cache-misses", 0, 1000)]),
        expect![[r#"
        mov rax, [rax]: 46.2 cycles from Last 92%
    "#]],
    );
}

/// Every other execution missed the first level: no cache is slow enough.
#[test]
fn events_rule_caches_out() {
    check(
        &chase(&[("L1-dcache-load-misses", 200, 1000)]),
        expect![[r#"
        mov rax, [rax]: 46.2 cycles from Memory 11%
    "#]],
    );
}
