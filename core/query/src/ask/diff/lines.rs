//! Compares source lines on both sides of a change, using each image's source as it was built.
//!
//! Input: analysed procedures. Output: a row for each line. A line of A and a line of B are the same line if a diff of the
//! two texts pairs them; if one of the texts is unknown, if their numbers are equal. A file that was compiled in another
//! folder counts as the same file.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use super::sides::{Row, Sides};
use crate::{
    Query,
    analyse::{
        costs::ProcedureCosts,
        significance::{Comparison, false_discovery_rates},
        totals::Totals,
    },
    answer::{DiffChange, DiffLine},
    load::source::map_lines,
    query::View,
};

/// File and number of a line, as one side's debug information spells it.
type Place = (Arc<str>, u32);

/// Files that one side knows, each with an image (an index) that was compiled from it.
type Images = BTreeMap<Arc<str>, usize>;

/// Lines of the procedures that are compared.
pub struct Lines<'a> {
    sides: &'a Sides,
    sums: [BTreeMap<Place, (Totals, Option<Comparison>)>; 2],
    images: [Images; 2],
}

impl<'a> Lines<'a> {
    /// Creates a comparison without lines.
    pub fn new(sides: &'a Sides) -> Self {
        Lines { sides, sums: Default::default(), images: Default::default() }
    }

    /// Adds the lines of a procedure, on both sides.
    pub fn add(&mut self, row: &Row) {
        for (side, costs) in row.costs.iter().enumerate() {
            let Some(costs) = costs else { continue };
            let Some((_, procedure)) = row.subject(self.sides, side == 1) else { continue };
            for (place, indices) in by_line(costs) {
                self.images[side].entry(place.0.clone()).or_insert(procedure.image);
                let sum = self.sums[side].entry(place).or_default();
                sum.0.add(&costs.totals(indices));
                // The procedure that varies most between runs determines the dispersion of the line.
                let steadier = sum.1.is_some_and(|c| c.dispersion >= row.compared.dispersion);
                sum.1 = if steadier { sum.1 } else { Some(row.compared) };
            }
        }
    }

    /// Returns the rows, the largest change first, and the number of rows that may be chance.
    pub fn finish(self, query: &Query, all: bool) -> (Vec<DiffLine>, usize) {
        let moved = moved_files(&self.images);
        let maps = self.maps(query, &moved);
        let Lines { sides, sums: [a, mut b], .. } = self;
        let mut rows = Vec::new();
        for ((before, line), (totals, whole)) in a {
            let file = moved.get(&before).cloned().unwrap_or(before);
            let now = match maps.get(&file) {
                Some(map) => map.get(&line).copied(),
                None => Some(line),
            };
            let other = now.and_then(|now| b.remove(&(file.clone(), now)));
            let whole = other.as_ref().and_then(|o| o.1).or(whole);
            rows.push(row(sides, file, (Some(line), now), (Some(totals), other.map(|o| o.0)), whole));
        }
        for ((file, line), (totals, whole)) in b {
            let before = match maps.get(&file) {
                Some(map) => map.iter().find(|(_, now)| **now == line).map(|(before, _)| *before),
                None => Some(line),
            };
            rows.push(row(sides, file, (before, Some(line)), (None, Some(totals)), whole));
        }
        let p: Vec<f64> = rows.iter().map(|r| r.change.p).collect();
        for (row, rate) in rows.iter_mut().zip(false_discovery_rates(&p)) {
            row.change.judge(rate);
        }
        let insignificant = rows.iter().filter(|r| !r.change.significant).count();
        rows.retain(|r| all || r.change.significant);
        rows.sort_by(|x, y| y.change.change.abs().total_cmp(&x.change.change.abs()));
        (rows, insignificant)
    }

    /// Returns maps from lines in A to lines in B. They are keyed by B's spelling of the file and exist for files that both
    /// sides know, whose texts are known and differ.
    fn maps(
        &self,
        query: &Query,
        moved: &HashMap<Arc<str>, Arc<str>>,
    ) -> HashMap<Arc<str>, HashMap<u32, u32>> {
        let text = |view: &View, image: usize, file: &str| query.text_as_built(view, image, file);
        let files = self.images[0].iter().filter_map(|(before, a)| {
            let now = moved.get(before).unwrap_or(before);
            Some((before, *a, now, *self.images[1].get(now)?))
        });
        let maps = files.filter_map(|(before, a, now, b)| {
            let (then, after) = (text(&self.sides.a.view, a, before)?, text(&self.sides.b.view, b, now)?);
            (then != after).then(|| (now.clone(), map_lines(&then, &after).same))
        });
        maps.collect()
    }
}

/// Finds files that only one side has but that were moved, such as between two checkouts or two build folders. Returns A's
/// path → B's path. Among files of equal name, those with the longest common end of their paths are paired, unless this is
/// ambiguous.
fn moved_files([a, b]: &[Images; 2]) -> HashMap<Arc<str>, Arc<str>> {
    let only = |own: &'_ Images, other: &Images| -> Vec<Arc<str>> {
        own.keys().filter(|file| !other.contains_key(*file)).cloned().collect()
    };
    let (gone, new) = (only(a, b), only(b, a));
    let pair = |file: &Arc<str>| {
        let now = closest(file, &new)?;
        (closest(now, &gone)? == file).then(|| (file.clone(), now.clone()))
    };
    gone.iter().filter_map(pair).collect()
}

/// Returns the file with the most path components in common with the end of `file`. Returns `None` if no file has the same
/// name, or if several are equally close.
fn closest<'f>(file: &str, among: &'f [Arc<str>]) -> Option<&'f Arc<str>> {
    let common = |other: &str| {
        let pairs = Path::new(file).components().rev().zip(Path::new(other).components().rev());
        pairs.take_while(|(x, y)| x == y).count()
    };
    let most = among.iter().map(|other| common(other)).max().filter(|most| *most > 0)?;
    let mut best = among.iter().filter(|other| common(other) == most);
    best.next().filter(|_| best.next().is_none())
}

/// Groups the indices of instructions by source line.
fn by_line(costs: &ProcedureCosts) -> BTreeMap<Place, Vec<usize>> {
    let mut lines: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
    for (i, line) in costs.lines.iter().enumerate() {
        if let Some(place) = line {
            lines.entry(place.clone()).or_default().push(i);
        }
    }
    lines
}

fn row(
    sides: &Sides,
    file: Arc<str>,
    (line_a, line_b): (Option<u32>, Option<u32>),
    (a, b): (Option<Totals>, Option<Totals>),
    whole: Option<Comparison>,
) -> DiffLine {
    let samples = |t: &Option<Totals>| t.map_or(0.0, |t| t.head_samples);
    let whole = whole.unwrap_or(Comparison { ratio: None, dispersion: None, p: 1.0 });
    let change: DiffChange = sides.change_of_part(samples(&a), samples(&b), &whole);
    let factors = sides.factors(a.as_ref(), b.as_ref());
    DiffLine { file: file.to_string(), line_a, line_b, change, factors }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_compiled_elsewhere_is_the_same_file() {
        let images = |files: &[&str]| files.iter().map(|file| (Arc::from(*file), 0)).collect::<Images>();
        let check = |a: &[&str], b: &[&str], moved: &[(&str, &str)]| {
            let expected = moved.iter().map(|(a, b)| (Arc::from(*a), Arc::from(*b))).collect();
            assert_eq!(moved_files(&[images(a), images(b)]), expected);
        };
        check(
            &["/old/src/a.c", "/usr/include/x.h"],
            &["/new/src/a.c", "/usr/include/x.h"],
            &[("/old/src/a.c", "/new/src/a.c")],
        );
        check(
            &["/old/lib/util.c", "/old/app/util.c"],
            &["/new/app/util.c", "/new/lib/util.c"],
            &[("/old/lib/util.c", "/new/lib/util.c"), ("/old/app/util.c", "/new/app/util.c")],
        );
        check(&["/old/a.c"], &["/new/1/a.c", "/new/2/a.c"], &[]); // Two files match, so neither is chosen.
        check(&["/old/1/a.c", "/old/2/a.c"], &["/new/a.c"], &[]);
        check(&["/old/a.c"], &["/old/b.c"], &[]);
    }
}
