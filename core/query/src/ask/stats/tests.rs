//! Checks against the paper's Figure 3. The counts are constructed to have the figure's sums, extremes and deviations,
//! because the paper prints those and not the counts. The total samples of the eight sets are the paper's own.

use std::collections::BTreeMap;

use super::{Counted, StatsRequest, answer};
use crate::answer::{Stats, StatsSet};

const SETS: [u64; 8] = [860_301, 862_645, 871_952, 870_780, 942_929, 893_154, 890_969, 951_871];

const PROCEDURES: [(&str, [u64; 8]); 6] = [
    ("smooth_", [38171, 42131, 53175, 52669, 88075, 88075, 40589, 38155]),
    ("fftb_", [9290, 9622, 9039, 8578, 8722, 8658, 9160, 9316]),
    ("fftf_", [8554, 8923, 8989, 8635, 9453, 8467, 9135, 8973]),
    ("parmvr_", [521604, 548809, 515253, 529686, 524461, 555180, 524464, 522622]),
    ("putb_", [46206, 46746, 46218, 47535, 48284, 48786, 48297, 46550]),
    ("vslv1p_", [50422, 50422, 52098, 52934, 50736, 50787, 50420, 53110]),
];

/// Rows as the figure prints them.
const FIGURE: [&str; 6] = [
    "11.32% 441040.00 6.17% 8 55130.00 21168.70 38155.00 88075.00 smooth_",
    "1.44% 72385.00 1.01% 8 9048.12 368.74 8578.00 9622.00 fftb_",
    "1.39% 71129.00 1.00% 8 8891.12 327.68 8467.00 9453.00 fftf_",
    "0.94% 4242079.00 59.37% 8 530259.87 14097.11 515253.00 555180.00 parmvr_",
    "0.68% 378622.00 5.30% 8 47327.75 1032.09 46206.00 48786.00 putb_",
    "0.65% 410929.00 5.75% 8 51366.13 1161.61 50420.00 53110.00 vslv1p_",
];

fn sets(against_from: usize) -> Vec<Counted> {
    let set = |(i, samples): (usize, u64)| Counted {
        set: StatsSet {
            epoch: i.to_string(),
            name: None,
            against: i >= against_from,
            samples,
            exposure: 1.0,
        },
        event: "cycles".to_owned(),
        by_name: PROCEDURES
            .iter()
            .map(|(name, counts)| (("wave5".to_owned(), name.to_string()), (name.to_string(), counts[i])))
            .collect::<BTreeMap<_, _>>(),
    };
    SETS.into_iter().enumerate().map(set).collect()
}

fn printed(stats: &Stats) -> Vec<String> {
    let rows = stats.rows.iter();
    rows.map(|r| {
        format!(
            "{:.2}% {:.2} {:.2}% {} {:.2} {:.2} {:.2} {:.2} {}",
            100.0 * r.range_share,
            r.sum as f64,
            100.0 * r.sum_share,
            r.n,
            r.mean,
            r.std_dev,
            r.min as f64,
            r.max as f64,
            r.procedure
        )
    })
    .collect()
}

#[test]
fn figure_3() {
    let stats = answer(&sets(8), &StatsRequest::default(), Vec::new());
    assert_eq!(stats.total, 7_144_601);
    assert_eq!(printed(&stats), FIGURE);
    assert!(stats.rows.iter().all(|r| r.comparison.is_none()));
}

#[test]
fn small_procedures_and_further_rows_are_left_out() {
    let request = StatsRequest { share_min: 0.05, limit: Some(2), ..StatsRequest::default() };
    let stats = answer(&sets(8), &request, Vec::new());
    let names: Vec<_> = stats.rows.iter().map(|r| r.procedure.as_str()).collect();
    assert_eq!((names, stats.omitted_rows), (vec!["smooth_", "parmvr_"], 4));
}

#[test]
fn groups_are_compared_by_their_own_variation() {
    let mut sets = sets(4);
    let name = ("wave5".to_owned(), "slower".to_owned());
    for (i, set) in sets.iter_mut().enumerate() {
        let samples = if set.set.against { 10_000 } else { 12_000 } + 10 * i as u64;
        set.add(name.clone(), name.1.clone(), samples);
    }
    let stats = answer(&sets, &StatsRequest::default(), Vec::new());
    let first = &stats.rows[0];
    let comparison = first.comparison.as_ref().unwrap();
    assert_eq!(first.procedure, "slower");
    assert!(
        comparison.significant && comparison.ratio.is_some_and(|r| (r - 1.195).abs() < 0.01),
        "{first:?}"
    );
    // The paper's eight runs are runs of one program, so no other procedure differs.
    let others = stats.rows[1..].iter().map(|r| r.comparison.as_ref().unwrap());
    assert!(others.clone().all(|c| !c.significant), "{:?}", others.collect::<Vec<_>>());
}
