//! What a line waits for, in words that need no knowledge of processors first: the same for the terminal, editors and reports.

use dwell_analysis::{Cause, ScaleKind};

/// What causes are called together: those of one group that cannot be told apart are one wait.
struct Group {
    /// What is waited for.
    awaited: &'static str,
    /// Its causes, each as an expert knows it.
    causes: &'static [(Cause, &'static str)],
}

const GROUPS: [Group; 11] = [
    Group {
        awaited: "memory",
        causes: &[
            (Cause::DCacheMiss, "D-cache miss"),
            (Cause::DtlbMiss, "DTLB miss"),
            (Cause::StoreForwarding, "store not forwarded"),
            (Cause::Aliasing4K, "4K aliasing"),
            (Cause::PageFault, "page fault"),
        ],
    },
    Group { awaited: "room for stores", causes: &[(Cause::WriteBuffer, "write buffer full")] },
    Group { awaited: "a mispredicted branch", causes: &[(Cause::BranchMispredict, "")] },
    Group { awaited: "code", causes: &[(Cause::ICacheMiss, "I-cache miss"), (Cause::ItlbMiss, "ITLB miss")] },
    Group { awaited: "the divider", causes: &[(Cause::Divider, "")] },
    Group { awaited: "the multiplier", causes: &[(Cause::Multiplier, "")] },
    Group { awaited: "other processors", causes: &[(Cause::Synchronization, "synchronization")] },
    Group { awaited: "the kernel", causes: &[(Cause::System, "")] },
    Group { awaited: "an earlier result", causes: &[(Cause::Dependency, "")] },
    Group { awaited: "a busy unit", causes: &[(Cause::FunctionalUnit, ""), (Cause::Slotting, "slotting")] },
    Group { awaited: "something unexplained", causes: &[(Cause::Unexplained, "")] },
];

/// `waits for memory (D-cache or DTLB miss)`: causes that cannot be told apart, the likeliest first.
pub fn waits_for(causes: &[Cause]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for cause in causes {
        let of = |group: &&Group| group.causes.iter().any(|(one, _)| one == cause);
        let Some(group) = GROUPS.iter().find(of) else { continue };
        let name = group.causes.iter().find(|(one, _)| one == cause).map_or("", |(_, name)| name);
        let known = match groups.iter().position(|(awaited, _)| *awaited == group.awaited) {
            Some(known) => known,
            None => {
                groups.push((group.awaited, Vec::new()));
                groups.len() - 1
            }
        };
        if !name.is_empty() && !groups[known].1.contains(&name) {
            groups[known].1.push(name);
        }
    }
    let phrase = |(awaited, names): &(&str, Vec<&str>)| match names.is_empty() {
        true => (*awaited).to_owned(),
        false => format!("{awaited} ({})", either(names)),
    };
    let phrases: Vec<String> = groups.iter().map(phrase).collect();
    let phrases: Vec<&str> = phrases.iter().map(String::as_str).collect();
    format!("waits for {}", joined(&phrases))
}

/// `D-cache or DTLB miss`: names that end in the same word say it once.
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

/// `absolute`, `program` or `procedure`.
pub fn scale_name(kind: ScaleKind) -> &'static str {
    match kind {
        ScaleKind::Absolute => "absolute",
        ScaleKind::Program => "program",
        ScaleKind::Procedure => "procedure",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_cannot_be_told_apart_are_one_phrase() {
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
