//! Tests FORMAT.md's argument that a listing is recognized as incomplete if a compaction overtakes it. All
//! interleavings are tried: every order of the names in the folder, and every moment at which the listing may pass each
//! of them.

use crate::database::{
    disk::Entry,
    layout::{SegmentList, SegmentRange},
};

/// The name that means, in the states of the folder, that removals were counted. It is not listed but read separately.
const COUNTED: &str = "counted";

/// Returns the folder after each step of a compaction: the merged file appears, the removal is counted if it is beyond
/// the first segment, then the parts disappear in this order.
fn states(before: &[&str], merged: &str, parts: &[&str], counted: bool) -> Vec<Vec<String>> {
    let mut now: Vec<String> = before.iter().map(|n| (*n).to_owned()).collect();
    let mut states = vec![now.clone()];
    now.push(merged.to_owned());
    states.push(now.clone());
    if counted && SegmentRange::parse(parts[0]).is_some_and(|part| part.first > 1) {
        now.push(COUNTED.to_owned());
        states.push(now.clone());
    }
    for part in parts {
        now.retain(|n| n != part);
        states.push(now.clone());
    }
    states
}

/// Counts the interleavings in which a reader would take an incomplete listing for the whole epoch.
fn deceived(before: &[&str], merged: &str, parts: &[&str], last: u64, counted: bool) -> usize {
    let states = states(before, merged, parts, counted);
    let mut names = states[1].clone();
    let mut deceived = 0;
    permutations(&mut names, 0, &mut |names| {
        moments(names.len(), states.len(), &mut Vec::new(), &mut |times| {
            let seen = names.iter().zip(times).filter(|(name, time)| states[**time].contains(name));
            let listed: Vec<_> = seen.map(|(name, _)| Entry { name: file(name), is_dir: false }).collect();
            let list = SegmentList::of(&listed);
            let suspicious = list.live.is_empty() || !list.gaps().is_empty();
            // The segments are opened right after the listing. Later more of them are gone, and more of that is
            // noticed.
            let opened = &states[*times.last().expect("a name at least")];
            // The count is read right before and right after the listing; any other moment would notice more.
            let is_counted = |time: usize| states[time].iter().any(|name| name == COUNTED);
            let counted_meanwhile =
                is_counted(times[0]) != is_counted(*times.last().expect("a name at least"));
            let gone = list.live.iter().any(|range| !opened.iter().any(|name| is_file(name, *range)));
            let complete = list.live.last().is_some_and(|range| range.last == last);
            deceived += usize::from(!suspicious && !counted_meanwhile && !gone && !complete);
        });
    });
    deceived
}

fn file(range: &str) -> String {
    SegmentRange::parse(range).expect("a range").file_name()
}

fn is_file(name: &str, range: SegmentRange) -> bool {
    name != COUNTED && file(name) == range.file_name()
}

fn permutations(names: &mut Vec<String>, from: usize, visit: &mut dyn FnMut(&[String])) {
    if from == names.len() {
        return visit(names);
    }
    for i in from..names.len() {
        names.swap(from, i);
        permutations(names, from + 1, visit);
        names.swap(from, i);
    }
}

/// Visits all ascending sequences of `length` moments.
fn moments(length: usize, states: usize, times: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize])) {
    if times.len() == length {
        return visit(times);
    }
    for time in times.last().copied().unwrap_or(0)..states {
        times.push(time);
        moments(length, states, times, visit);
        times.pop();
    }
}

#[test]
fn no_interleaving_deceives_a_reader() {
    assert_eq!(deceived(&["1", "2", "3"], "1-3", &["1", "2", "3"], 3, true), 0);
    assert_eq!(deceived(&["1", "2", "3", "4"], "1-3", &["1", "2", "3"], 4, true), 0);
    assert_eq!(deceived(&["1-2", "3", "4"], "1-4", &["1-2", "3", "4"], 4, true), 0);
    // These segments follow a full segment.
    assert_eq!(deceived(&["1", "2", "3"], "2-3", &["2", "3"], 3, true), 0);
    assert_eq!(deceived(&["1-2", "3-4", "5"], "3-5", &["3-4", "5"], 5, true), 0);
    assert_eq!(deceived(&["1-2", "3", "4", "5"], "3-4", &["3", "4"], 5, true), 0);
}

/// Shows that each part of the rule is necessary: the parts are removed in ascending order, and if a merged segment
/// does not start at 1, the removal is counted before.
#[test]
fn another_order_or_a_missing_count_deceives_a_reader() {
    assert!(deceived(&["1", "2", "3"], "1-3", &["3", "2", "1"], 3, false) > 0);
    assert!(deceived(&["1", "2", "3"], "2-3", &["2", "3"], 3, false) > 0);
}
