//! Classes of causes, which determine the colours in the report.
//!
//! Input: a cause as answers name it. Output: a class of the page's style sheet. Labels are not handled here; answers
//! contain them.

/// Returns the class of a cause. A colour stands for a class; the label names the cause.
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
