//! Names of the causes of stalls. The terminal, reports, editors and assistants all use this one table.

use dwell_analysis::Cause;

/// Names of one cause.
pub struct CauseNames {
    cause: Cause,
    /// Name in JSON and in files, which never changes: `d-cache-miss`.
    pub name: &'static str,
    /// Letter in the bubbles of a listing (DCPI Figure 2).
    pub letter: char,
    /// Name for users: `D-cache miss`.
    pub label: &'static str,
    /// What an instruction waits for, in words that need no knowledge of processors. Causes with the same words are one
    /// wait.
    awaited: &'static str,
    /// Whether `awaited` says as much as the label, so that the label is left out beside it.
    is_plain: bool,
}

const fn plain(
    cause: Cause,
    name: &'static str,
    letter: char,
    label: &'static str,
    awaited: &'static str,
) -> CauseNames {
    CauseNames { cause, name, letter, label, awaited, is_plain: true }
}

const fn expert(
    cause: Cause,
    name: &'static str,
    letter: char,
    label: &'static str,
    awaited: &'static str,
) -> CauseNames {
    CauseNames { cause, name, letter, label, awaited, is_plain: false }
}

#[rustfmt::skip] // Each cause has one row.
const CAUSES: [CauseNames; 17] = [
    expert(Cause::DCacheMiss, "d-cache-miss", 'd', "D-cache miss", "memory"),
    expert(Cause::DtlbMiss, "dtlb-miss", 'D', "DTLB miss", "memory"),
    expert(Cause::StoreForwarding, "store-forwarding", 'o', "store not forwarded", "memory"),
    expert(Cause::Aliasing4K, "4k-aliasing", '4', "4K aliasing", "memory"),
    expert(Cause::PageFault, "page-fault", 'g', "page fault", "memory"),
    expert(Cause::WriteBuffer, "write-buffer", 'w', "write buffer full", "room for stores"),
    plain(Cause::BranchMispredict, "branch-mispredict", 'p', "branch mispredict", "a mispredicted branch"),
    expert(Cause::ICacheMiss, "i-cache-miss", 'i', "I-cache miss", "code"),
    expert(Cause::ItlbMiss, "itlb-miss", 'I', "ITLB miss", "code"),
    plain(Cause::Divider, "divider", 'v', "divider busy", "the divider"),
    plain(Cause::Multiplier, "multiplier", 'm', "multiplier busy", "the multiplier"),
    expert(Cause::Synchronization, "synchronization", 'y', "synchronization", "other processors"),
    plain(Cause::System, "system", 'k', "system call or interrupt", "the kernel"),
    plain(Cause::Dependency, "dependency", 'a', "operand not ready", "an earlier result"),
    plain(Cause::FunctionalUnit, "functional-unit", 'f', "functional unit busy", "a busy unit"),
    expert(Cause::Slotting, "slotting", 's', "slotting", "a busy unit"),
    plain(Cause::Unexplained, "unexplained", '?', "unexplained", "something unexplained"),
];

/// Names in JSON and labels of those rows of a summary that do not stand for exactly one cause.
const SUMMARY_LABELS: [(&str, &str); 6] = [
    ("other", "other causes"),
    ("dependency-address", "operand not ready (address)"),
    ("dependency-flags", "operand not ready (flags)"),
    ("dependency-first", "operand not ready (1st source)"),
    ("dependency-second", "operand not ready (2nd source)"),
    ("dependency-third", "operand not ready (3rd source)"),
];

/// Returns the names of a cause.
pub fn names(cause: Cause) -> &'static CauseNames {
    CAUSES.iter().find(|names| names.cause == cause).expect("every cause has a row")
}

/// Returns the label of a row of a summary, given the row's name in JSON.
pub fn summary_label(name: &str) -> &'static str {
    let rows = CAUSES.iter().map(|names| (names.name, names.label)).chain(SUMMARY_LABELS);
    rows.into_iter().find(|(row, _)| *row == name).expect("every row has a label").1
}

/// Describes causes that cannot be told apart, the most likely first: `waits for memory (D-cache or DTLB miss)`.
pub fn waits_for(causes: &[Cause]) -> String {
    let mut waits: Vec<(&str, Vec<&str>)> = Vec::new();
    for cause in causes {
        let names = names(*cause);
        let wait = match waits.iter().position(|(awaited, _)| *awaited == names.awaited) {
            Some(wait) => wait,
            None => {
                waits.push((names.awaited, Vec::new()));
                waits.len() - 1
            }
        };
        if !names.is_plain && !waits[wait].1.contains(&names.label) {
            waits[wait].1.push(names.label);
        }
    }
    let phrase = |(awaited, labels): &(&str, Vec<&str>)| match labels.is_empty() {
        true => (*awaited).to_owned(),
        false => format!("{awaited} ({})", either(labels)),
    };
    let phrases: Vec<String> = waits.iter().map(phrase).collect();
    let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
    format!("waits for {}", joined(&phrases))
}

/// Joins labels as alternatives: `D-cache or DTLB miss`. Labels that end in `miss` share that word.
fn either(names: &[&str]) -> String {
    let (misses, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.ends_with(" miss"));
    if misses.len() < 2 {
        return joined(names);
    }
    let short: Vec<&str> = misses.iter().map(|name| name.trim_end_matches(" miss")).collect();
    let together = format!("{} miss", joined(&short));
    joined(&std::iter::once(together.as_str()).chain(others).collect::<Vec<_>>())
}

fn joined(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tied_causes_are_one_phrase() {
        let check = |causes: &[Cause], text: &str| assert_eq!(waits_for(causes), text);
        check(&[Cause::DCacheMiss], "waits for memory (D-cache miss)");
        check(&[Cause::DCacheMiss, Cause::DtlbMiss], "waits for memory (D-cache or DTLB miss)");
        check(
            &[Cause::DCacheMiss, Cause::BranchMispredict, Cause::DtlbMiss],
            "waits for memory (D-cache or DTLB miss) or a mispredicted branch",
        );
        check(
            &[Cause::DCacheMiss, Cause::DtlbMiss, Cause::StoreForwarding],
            "waits for memory (D-cache or DTLB miss or store not forwarded)",
        );
        check(&[Cause::ICacheMiss, Cause::ItlbMiss], "waits for code (I-cache or ITLB miss)");
        check(&[Cause::Unexplained], "waits for something unexplained");
    }
}
