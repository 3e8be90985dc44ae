//! The classes of causes that the report's colours stand for.
//!
//! Enters: a cause as answers name it. Leaves: a class of the page's style sheet. Never here: labels, which answers carry.

/// Returns the class of a cause: colours stand for classes, labels for causes.
pub fn class(cause: &str) -> &'static str {
    match cause {
        "d-cache-miss" | "dtlb-miss" | "write-buffer" | "store-forwarding" | "4k-aliasing" => "memory",
        "i-cache-miss" | "itlb-miss" | "branch-mispredict" => "front",
        "divider" | "multiplier" | "functional-unit" => "unit",
        "synchronization" | "system" | "page-fault" | "other" => "system",
        "slotting" => "fixed",
        dependency if dependency.starts_with("dependency") => "fixed",
        _ => "unknown",
    }
}
