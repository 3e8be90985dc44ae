//! Request `stats`: how much the samples of procedures vary over several runs (DCPI §3.3, Figure 3), and whether two groups
//! of runs differ (see [`significance`](crate::analyse::significance)).
//!
//! Input: samples by procedure and set. Output: range, sum, mean and deviation. Cost: one look-up for each procedure and
//! set.

use std::collections::BTreeMap;

use dwell_profile::Unit;

use crate::{
    Cancel, Query, QueryError,
    analyse::{
        procedures::image_name,
        significance::{Observed, compare, false_discovery_rates},
    },
    answer::{Stats, StatsComparison, StatsRow, StatsSet},
    load::selection::Selection,
};

/// A request to [`Query::stats`].
#[derive(Clone, Debug, Default)]
pub struct StatsRequest {
    /// Sets of samples, one epoch each. If empty, the latest epoch is used.
    pub epochs: Vec<String>,
    /// Sets to compare against, one epoch each. If empty, nothing is compared.
    pub against: Vec<String>,
    /// What different sets are assumed to have in common, so that their counts can be compared.
    pub normalize: Normalize,
    /// Largest number of rows; `None` means all.
    pub limit: Option<usize>,
    /// Least share of all samples (0 to 1) that a procedure must have. With fewer samples, its range is mostly chance.
    pub share_min: f64,
    /// If set, only procedures of images whose path, file name or id contains this text.
    pub image: Option<String>,
}

/// The quantity that the expected count of a procedure is proportional to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Normalize {
    /// Each set is one run of the same work; only the sampling rate may differ.
    #[default]
    Run,
    /// Duration of sampling.
    Time,
    /// All samples of the set: compares the share of time that a procedure takes.
    Samples,
    /// The samples of this procedure, which is assumed to do the same work in every set.
    Procedure(String),
}

/// Largest share of false positives among the differences that are shown as significant.
pub const FALSE_DISCOVERY_MAX: f64 = 0.05;

/// Identifies a procedure in different builds: file name of the image, and linkage name.
pub type Name = (String, String);

/// Samples of one set, by procedure.
pub struct Counted {
    /// Description of the set.
    pub set: StatsSet,
    /// Name of the event that was sampled.
    pub event: String,
    /// Demangled name and number of samples of each procedure.
    pub by_name: BTreeMap<Name, (String, u64)>,
}

impl Query {
    /// Returns how much procedures vary over several epochs, and whether two groups of epochs differ.
    pub fn stats(&self, request: &StatsRequest, cancel: &Cancel) -> Result<Stats, QueryError> {
        let latest = ["latest".to_owned()];
        let asked = if request.epochs.is_empty() { &latest[..] } else { &request.epochs };
        let selectors = asked.iter().map(|s| (s, false)).chain(request.against.iter().map(|s| (s, true)));
        let mut sets = Vec::new();
        let mut notes = Vec::new();
        for (selector, against) in selectors {
            cancel.check()?;
            let view = self.view(std::slice::from_ref(selector))?;
            notes.extend(view.selection.notes.iter().cloned());
            let procedures = self.procedures(&view, cancel)?;
            let rows = procedures.iter().map(|p| {
                let record = &view.selection.images[p.image].record;
                let samples = p.counts.first().copied().unwrap_or(0);
                ((image_name(record), p.name.clone()), p.demangled.clone(), samples, record)
            });
            let rows = rows.filter(|(.., record)| crate::load::filter::wants(&request.image, record));
            let mut counted = Counted::new(&view.selection, against);
            rows.for_each(|(name, demangled, samples, _)| counted.add(name, demangled, samples));
            sets.push(counted);
        }
        expose(&mut sets, &self.exposures(request, cancel)?)?;
        Ok(answer(&sets, request, notes))
    }

    /// Returns the exposure of each set, in the order of the request.
    fn exposures(&self, request: &StatsRequest, cancel: &Cancel) -> Result<Vec<f64>, QueryError> {
        let latest = ["latest".to_owned()];
        let asked = if request.epochs.is_empty() { &latest[..] } else { &request.epochs };
        let of = |selector: &String| {
            let view = self.view(std::slice::from_ref(selector))?;
            self.exposure(&view, &request.normalize, cancel)
        };
        asked.iter().chain(&request.against).map(of).collect()
    }

    /// Returns the exposure of the view: the number that counts are divided by to compare them with those of other views.
    pub(crate) fn exposure(
        &self,
        view: &crate::query::View,
        normalize: &Normalize,
        cancel: &Cancel,
    ) -> Result<f64, QueryError> {
        let selection = &view.selection;
        let rate = 1.0 / period(selection).unwrap_or(1.0);
        Ok(match normalize {
            Normalize::Run => {
                rate * selection.epochs.iter().map(|epoch| epoch.recordings() as f64).sum::<f64>()
            }
            Normalize::Time => rate * seconds(selection),
            Normalize::Samples => selection.primary_total() as f64,
            Normalize::Procedure(name) => {
                let all = self.procedures(view, cancel)?;
                let one = crate::analyse::procedure_names::by_name(selection, &self.store, all, name)?;
                one.counts.first().copied().unwrap_or(0) as f64
            }
        })
    }
}

/// Returns the mean period of the primary event. A set that was sampled twice as often has twice as many samples.
fn period(selection: &Selection) -> Option<f64> {
    let event = selection.primary()?;
    if let Some(cycles) = selection.period_cycles().filter(|_| event.base_name() == "cycles") {
        return Some(cycles);
    }
    // Nanoseconds are not converted to cycles, because clock rates may vary.
    let records = selection.epochs.iter().filter_map(|e| e.events.get(event));
    let (mut sum, mut samples) = (0.0, 0);
    for r in records.filter(|r| r.unit == Unit::Nanoseconds || r.unit == Unit::Events) {
        let weight = r.samples.max(1); // An event without samples had a period, too.
        sum += r.period as f64 * weight as f64;
        samples += weight;
    }
    (samples > 0).then(|| sum / samples as f64)
}

/// Returns the duration of sampling in seconds. An epoch without an end counts as zero.
fn seconds(selection: &Selection) -> f64 {
    selection.epochs.iter().map(|epoch| epoch.sampled_ns() as f64 / 1e9).sum()
}

/// Sets the exposure of each set, relative to that of the first one.
fn expose(sets: &mut [Counted], exposures: &[f64]) -> Result<(), QueryError> {
    let first = exposures.first().copied().unwrap_or(1.0);
    for (counted, exposure) in sets.iter_mut().zip(exposures) {
        counted.set.exposure = exposure / first;
        if !(counted.set.exposure.is_finite() && counted.set.exposure > 0.0) {
            return Err(QueryError::NothingToCompare { epoch: counted.set.epoch.clone() });
        }
    }
    Ok(())
}

impl Counted {
    /// Creates a set without samples.
    pub fn new(selection: &Selection, against: bool) -> Counted {
        let set = StatsSet {
            epoch: selection.name(),
            name: selection.epochs.first().and_then(|e| e.name.clone()),
            against,
            samples: selection.primary_total(),
            exposure: 1.0,
        };
        let event = selection.primary().map_or("", |e| e.name()).to_owned();
        Counted { set, event, by_name: BTreeMap::new() }
    }

    /// Adds the samples of a procedure.
    pub fn add(&mut self, name: Name, demangled: String, samples: u64) {
        self.by_name.entry(name).or_insert((demangled, 0)).1 += samples;
    }
}

/// Returns the statistics of the sets; those of the first group come first.
pub fn answer(sets: &[Counted], request: &StatsRequest, mut notes: Vec<String>) -> Stats {
    let mut names: BTreeMap<&Name, &str> = BTreeMap::new();
    for (name, (demangled, _)) in sets.iter().flat_map(|s| &s.by_name) {
        names.insert(name, demangled);
    }
    let total: u64 = sets.iter().map(|s| s.set.samples).sum();
    let rows = names.iter().map(|(name, demangled)| row(sets, name, demangled, total));
    let mut rows: Vec<StatsRow> = rows.filter(|r| r.sum > 0 && r.sum_share >= request.share_min).collect();
    judge(&mut rows);
    rows.sort_by(|a, b| rank(a).total_cmp(&rank(b)).then(b.range_share.total_cmp(&a.range_share)));
    let known = names.len();
    rows.truncate(request.limit.unwrap_or(rows.len()));
    let mut events: Vec<&str> = sets.iter().map(|s| s.event.as_str()).collect();
    events.dedup();
    if events.len() > 1 {
        notes.push(format!("different events are compared: {}", events.join(", ")));
    }
    notes.sort();
    notes.dedup();
    Stats {
        schema: 1,
        event: events.first().copied().unwrap_or_default().to_owned(),
        sets: sets.iter().map(|s| s.set.clone()).collect(),
        total,
        omitted_rows: known - rows.len(),
        rows,
        notes,
    }
}

/// Returns the sort key by which the most certain difference comes first; all rows are equal if nothing was compared.
fn rank(row: &StatsRow) -> f64 {
    row.comparison.as_ref().map_or(0.0, |c| c.p)
}

fn row(sets: &[Counted], name: &Name, demangled: &str, total: u64) -> StatsRow {
    let samples: Vec<u64> = sets.iter().map(|s| s.by_name.get(name).map_or(0, |(_, n)| *n)).collect();
    let sum: u64 = samples.iter().sum();
    let (min, max) = (samples.iter().min().copied().unwrap_or(0), samples.iter().max().copied().unwrap_or(0));
    let (mean, std_dev) = mean_and_deviation(&samples);
    StatsRow {
        procedure: name.1.clone(),
        demangled: demangled.to_owned(),
        image: name.0.clone(),
        range_share: (max - min) as f64 / sum.max(1) as f64,
        sum,
        sum_share: sum as f64 / total.max(1) as f64,
        n: samples.len(),
        mean,
        std_dev,
        min,
        max,
        comparison: comparison(sets, &samples),
        samples,
    }
}

/// Computes mean and standard deviation in one pass (B. P. Welford, *Technometrics* 4(3), 1962), which avoids cancellation
/// if counts are large and similar.
fn mean_and_deviation(samples: &[u64]) -> (f64, f64) {
    let (mut mean, mut squares) = (0.0, 0.0);
    for (seen, &sample) in (1..).zip(samples) {
        let off = sample as f64 - mean;
        mean += off / f64::from(seen);
        squares += off * (sample as f64 - mean);
    }
    let freedom = samples.len().saturating_sub(1);
    (mean, if freedom > 0 { (squares / freedom as f64).sqrt() } else { 0.0 })
}

fn comparison(sets: &[Counted], samples: &[u64]) -> Option<StatsComparison> {
    let group = |against: bool| -> Vec<Observed> {
        let of_group = sets.iter().zip(samples).filter(|(s, _)| s.set.against == against);
        of_group.map(|(s, &count)| Observed { count, exposure: s.set.exposure }).collect()
    };
    let (first, against) = (group(false), group(true));
    if first.is_empty() || against.is_empty() {
        return None;
    }
    let mean = |g: &[Observed]| {
        g.iter().map(|o| o.count as f64).sum::<f64>() / g.iter().map(|o| o.exposure).sum::<f64>()
    };
    let compared = compare(&against, &first);
    Some(StatsComparison {
        mean: mean(&first),
        mean_against: mean(&against),
        ratio: compared.ratio,
        dispersion: compared.dispersion,
        p: compared.p,
        false_discovery_rate: 1.0,
        significant: false,
    })
}

fn judge(rows: &mut [StatsRow]) {
    let p: Vec<f64> = rows.iter().map(|r| r.comparison.as_ref().map_or(1.0, |c| c.p)).collect();
    for (row, rate) in rows.iter_mut().zip(false_discovery_rates(&p)) {
        if let Some(comparison) = &mut row.comparison {
            comparison.false_discovery_rate = rate;
            comparison.significant = rate < FALSE_DISCOVERY_MAX;
        }
    }
}

#[cfg(test)]
mod tests;
