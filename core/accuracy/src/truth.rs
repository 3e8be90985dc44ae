//! The names that simulators use for the causes of waiting, translated into those of the analysis.

use std::str::FromStr;

use dwell_analysis::{Cause, Level};

/// Why the head of the queue waited, according to a simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrueCause {
    /// The cause follows from the machine's model: issue, latencies, units.
    Base,
    /// The cause depends on what happened at run time.
    Dynamic(Cause),
}

/// Parses a name of `stalls.tsv`. `-`, `_` and case do not matter.
const NAMES: &[(&str, TrueCause)] = &[
    ("base", TrueCause::Base),
    ("icachemiss", TrueCause::Dynamic(Cause::ICacheMiss)),
    ("itlbmiss", TrueCause::Dynamic(Cause::ItlbMiss)),
    ("dcachemiss", TrueCause::Dynamic(Cause::DCacheMiss)),
    ("dtlbmiss", TrueCause::Dynamic(Cause::DtlbMiss)),
    ("writebuffer", TrueCause::Dynamic(Cause::WriteBuffer)),
    ("storebuffer", TrueCause::Dynamic(Cause::WriteBuffer)),
    ("synchronization", TrueCause::Dynamic(Cause::Synchronization)),
    ("branchmispredict", TrueCause::Dynamic(Cause::BranchMispredict)),
    ("divider", TrueCause::Dynamic(Cause::Divider)),
    ("multiplier", TrueCause::Dynamic(Cause::Multiplier)),
    ("storeforwarding", TrueCause::Dynamic(Cause::StoreForwarding)),
    ("aliasing4k", TrueCause::Dynamic(Cause::Aliasing4K)),
    ("pagefault", TrueCause::Dynamic(Cause::PageFault)),
    ("system", TrueCause::Dynamic(Cause::System)),
];

impl FromStr for TrueCause {
    type Err = String;

    fn from_str(text: &str) -> Result<TrueCause, String> {
        let name: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
        let known = NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(&name));
        known.map(|(_, cause)| *cause).ok_or_else(|| format!("\"{text}\" is not a cause of a stall"))
    }
}

/// Parses a level of the memory in `stalls.tsv`.
pub fn level(name: &str) -> Result<Level, String> {
    match name {
        "l2" => Ok(Level::Second),
        "last" => Ok(Level::Last),
        "memory" => Ok(Level::Memory),
        _ => Err(format!("\"{name}\" is not a level of the memory")),
    }
}
