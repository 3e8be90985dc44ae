//! Source lines on both sides of a change, each image's as it was built.
//!
//! Enters: analysed procedures. Leaves: a row for each line. A line of A is a line of B where a diff of the two texts says
//! so; where a text is not known, where the numbers agree.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use super::{Row, Sides};
use crate::{
    Query,
    answer::{DiffChange, DiffLine},
    costs::{ProcedureCosts, Totals},
    query::View,
    significance::{Comparison, false_discovery_rates},
    source::map_lines,
};

/// A line as its side spells it.
type Place = (Arc<str>, u32);

/// What one side knows of a file: an image that it was compiled into.
type Images = BTreeMap<Arc<str>, usize>;

/// Lines of the procedures that were compared.
pub struct Lines<'a> {
    sides: &'a Sides,
    sums: [BTreeMap<Place, (Totals, Option<Comparison>)>; 2],
    images: [Images; 2],
}

impl<'a> Lines<'a> {
    /// None yet.
    pub fn new(sides: &'a Sides) -> Self {
        Lines { sides, sums: Default::default(), images: Default::default() }
    }

    /// Adds a procedure's, on both sides.
    pub fn add(&mut self, row: &Row) {
        for (side, costs) in row.costs.iter().enumerate() {
            let Some(costs) = costs else { continue };
            let Some((_, procedure)) = row.subject(self.sides, side == 1) else { continue };
            for (place, indices) in by_line(costs) {
                self.images[side].entry(place.0.clone()).or_insert(procedure.image);
                let sum = self.sums[side].entry(place).or_default();
                sum.0.add(&costs.totals(indices));
                // The most unsteady of its procedures speaks for the line.
                let steadier = sum.1.is_some_and(|c| c.dispersion >= row.compared.dispersion);
                sum.1 = if steadier { sum.1 } else { Some(row.compared) };
            }
        }
    }

    /// Rows, the largest change first, and how many may be chance.
    pub fn finish(self, query: &Query, all: bool) -> (Vec<DiffLine>, usize) {
        let maps = self.maps(query);
        let Lines { sides, sums: [a, mut b], .. } = self;
        let mut rows = Vec::new();
        for ((file, line), (totals, whole)) in a {
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

    /// By file that both sides know, and whose texts are known and differ: line in A → line in B.
    fn maps(&self, query: &Query) -> HashMap<Arc<str>, HashMap<u32, u32>> {
        let text = |view: &View, image: usize, file: &str| query.text_as_built(view, image, Path::new(file));
        let files =
            self.images[0].iter().filter_map(|(file, a)| Some((file, *a, *self.images[1].get(file)?)));
        let maps = files.filter_map(|(file, a, b)| {
            let before = text(&self.sides.a.view, a, file)?;
            let after = text(&self.sides.b.view, b, file)?;
            (before != after).then(|| (file.clone(), map_lines(&before, &after).same))
        });
        maps.collect()
    }
}

/// Indices of the instructions of each line.
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
