//! The two profiles that are compared, and a procedure on both sides.

use std::{collections::BTreeMap, sync::Arc};

use dwell_analysis::{Confidence, MachineModel};

use crate::{
    Cancel, Query, QueryError, SampleFilter,
    analyse::{
        costs::ProcedureCosts,
        procedures::{ProcedureSamples, image_name},
        significance::{Comparison, Observed, compare, compare_given, false_discovery_rates},
        totals::Totals,
    },
    answer::{DiffChange, DiffFactors, DiffProcedure, DiffSide},
    ask::{
        stats::{FALSE_DISCOVERY_MAX, Name, Normalize},
        top::{TopRequest, image_notes},
    },
    load::images::ImageStore,
    query::View,
};

/// A request to [`Query::diff`].
#[derive(Clone, Debug, Default)]
pub struct DiffRequest {
    /// Epochs before the change.
    pub a: Vec<String>,
    /// Epochs after the change. Several epochs on one side show how much runs vary by themselves.
    pub b: Vec<String>,
    /// If set, only this procedure (`NAME` or `IMAGE:NAME`) is compared, instruction by instruction.
    pub procedure: Option<String>,
    /// What both sides are assumed to have in common.
    pub normalize: Normalize,
    /// Whether to include changes that may be chance.
    pub all: bool,
    /// Largest number of procedures and of lines; `None` means all.
    pub limit: Option<usize>,
}

/// One of the two profiles.
pub struct ComparedProfile {
    /// All epochs of the side, merged.
    pub view: Arc<View>,
    /// One entry for each run ([`Selection::runs`]): samples by procedure, all samples, and the exposure.
    pub(super) runs: Vec<(BTreeMap<Name, u64>, u64, f64)>,
    /// The procedure with the most samples for each name.
    pub(super) procedures: BTreeMap<Name, ProcedureSamples>,
}

impl ComparedProfile {
    pub(super) fn read(
        query: &Query,
        epochs: &[String],
        by: &Normalize,
        cancel: &Cancel,
    ) -> Result<ComparedProfile, QueryError> {
        let view = query.view_apart(epochs, &SampleFilter::default())?;
        let mut runs = Vec::new();
        for run in view.selection.runs() {
            cancel.check()?;
            // A machine or recording without the service is no run of it.
            let Some(one) = query.of_service(query.view(&run))? else { continue };
            let mut by_name = BTreeMap::new();
            for p in query.procedures(&one, cancel)? {
                *by_name.entry(name_of(&one, p)).or_default() += p.counts.first().copied().unwrap_or(0);
            }
            let exposure = query.exposure(&one, by, cancel)?;
            if !(exposure.is_finite() && exposure > 0.0) {
                return Err(QueryError::NothingToCompare { epoch: run.join("+") });
            }
            runs.push((by_name, one.selection.primary_total(), exposure));
        }
        if view.selection.primary_total() == 0 {
            return Err(QueryError::NothingToCompare { epoch: view.selection.name() });
        }
        let mut procedures = BTreeMap::new();
        for p in query.procedures(&view, cancel)? {
            // The procedure with the most samples comes first.
            procedures.entry(name_of(&view, p)).or_insert_with(|| p.clone());
        }
        Ok(ComparedProfile { view, runs, procedures })
    }

    pub(super) fn exposure(&self) -> f64 {
        self.runs.iter().map(|(.., exposure)| exposure).sum()
    }

    /// Returns the samples of the procedure in each run.
    pub(super) fn counts(&self, name: &Name) -> Vec<Observed> {
        let runs = self.runs.iter();
        runs.map(|(by_name, _, e)| Observed { count: by_name.get(name).copied().unwrap_or(0), exposure: *e })
            .collect()
    }

    pub(super) fn totals(&self) -> Vec<Observed> {
        self.runs.iter().map(|&(_, count, exposure)| Observed { count, exposure }).collect()
    }

    pub(super) fn model(&self) -> &'static MachineModel {
        let epochs = &self.view.selection.epochs;
        MachineModel::for_cpu(&epochs[epochs.len() - 1].cpu)
    }

    pub(super) fn answer(&self) -> DiffSide {
        let selection = &self.view.selection;
        DiffSide {
            epochs: selection.epochs.iter().map(|e| e.id.to_string()).collect(),
            cpu: selection.epochs[selection.epochs.len() - 1].cpu.model_name.clone(),
            machine_model: self.model().name().to_owned(),
            event: selection.primary().map_or("", |e| e.name()).to_owned(),
            samples: selection.primary_total(),
            period_cycles: selection.period_cycles(),
        }
    }
}

/// Returns the name that identifies a procedure on both sides.
pub(super) fn name_of(view: &View, p: &ProcedureSamples) -> Name {
    (image_name(&view.selection.images[p.image].record), p.name.clone())
}

/// Both profiles, and how their sample counts relate.
pub struct Sides {
    /// The profile before the change.
    pub a: ComparedProfile,
    /// The profile after the change.
    pub b: ComparedProfile,
    /// Factor by which B would have more samples than A if nothing had changed.
    pub exposure: f64,
}

impl Sides {
    /// Returns a row for each procedure of either side, the largest change first.
    pub(super) fn rows(&self) -> Vec<Row> {
        let names: std::collections::BTreeSet<&Name> =
            self.a.procedures.keys().chain(self.b.procedures.keys()).collect();
        let row = |name: &Name| {
            Row::new(self, name.clone(), self.a.procedures.get(name), self.b.procedures.get(name))
        };
        let mut rows: Vec<Row> = names.into_iter().map(row).collect();
        let p: Vec<f64> = rows.iter().map(|r| r.change.p).collect();
        for (row, rate) in rows.iter_mut().zip(false_discovery_rates(&p)) {
            row.change.judge(rate);
        }
        rows.sort_by(|x, y| y.change.change.abs().total_cmp(&x.change.change.abs()));
        rows
    }

    /// Compares the counts of runs on both sides, as if this were the only comparison.
    pub(super) fn change(&self, a: Vec<Observed>, b: Vec<Observed>) -> (DiffChange, Comparison) {
        let compared = compare(&a, &b);
        let sum = |runs: &[Observed]| runs.iter().map(|o| o.count as f64).sum();
        let mut change = self.of_samples(sum(&a), sum(&b));
        change.p = compared.p;
        change.judge(compared.p);
        (change, compared)
    }

    /// Compares the samples of a part of a procedure. `whole` is the comparison of the procedure, which provides the
    /// dispersion between runs.
    pub fn change_of_part(&self, a: f64, b: f64, whole: &Comparison) -> DiffChange {
        let observed = |samples: f64, side: &ComparedProfile| Observed {
            count: samples.round().max(0.0) as u64,
            exposure: side.exposure(),
        };
        let freedom = self.a.runs.len() + self.b.runs.len() - 2;
        let mut change = self.of_samples(a, b);
        change.p = compare_given(observed(a, &self.a), observed(b, &self.b), whole.dispersion, freedom);
        change.judge(change.p);
        change
    }

    pub(super) fn of_samples(&self, a: f64, b: f64) -> DiffChange {
        let change = b / self.exposure - a;
        DiffChange {
            samples_a: a,
            samples_b: b,
            change,
            change_share: change / (self.a.view.selection.primary_total().max(1) as f64),
            ratio: (a > 0.0).then(|| b / self.exposure / a),
            ..DiffChange::default()
        }
    }

    /// Splits a change into executions and cycles per execution.
    pub fn factors(&self, a: Option<&Totals>, b: Option<&Totals>) -> DiffFactors {
        let executions = |totals: Option<&Totals>, side: &ComparedProfile| {
            Some(totals?.absolute_executed()? * side.view.selection.period_cycles()?)
        };
        let (executions_a, executions_b) = (executions(a, &self.a), executions(b, &self.b));
        let (cpi_a, cpi_b) = (a.and_then(Totals::cpi), b.and_then(Totals::cpi));
        let over = |b: Option<f64>, a: Option<f64>| Some(b? / a.filter(|a| *a > 0.0)?);
        // The number of samples depends on the period, but the number of executions does not. So executions are divided by
        // the exposure without the ratio of the periods.
        let periods = over(self.b.view.selection.period_cycles(), self.a.view.selection.period_cycles());
        let work = self.exposure * periods.unwrap_or(1.0);
        let count_ratio = over(executions_b, executions_a).map(|r| r / work);
        let cost_ratio = over(cpi_b, cpi_a);
        // The whole change is count × cost. Count changed further than cost if its change is above the square root of the
        // whole, and less if it is below.
        let beyond = |(count, cost): (f64, f64)| (count / cost).ln().abs() / 2.0;
        let tells_apart = count_ratio.zip(cost_ratio).zip(a.zip(b)).is_some_and(|(ratios, (a, b))| {
            beyond(ratios) > a.executed_interval().half_width().hypot(b.executed_interval().half_width())
        });
        DiffFactors { executions_a, executions_b, cpi_a, cpi_b, count_ratio, cost_ratio, tells_apart }
    }

    pub(super) fn notes(&self, store: &ImageStore) -> Vec<String> {
        let (a, b) = (self.a.answer(), self.b.answer());
        let mut notes = Vec::new();
        let arch = |side: &ComparedProfile| side.view.selection.epochs[0].cpu.arch.clone();
        if (arch(&self.a), &a.cpu) != (arch(&self.b), &b.cpu) || a.machine_model != b.machine_model {
            notes.push(format!(
                "different machines: A on {} ({}), B on {} ({}): cycles and CPI differ for that reason too",
                a.cpu, a.machine_model, b.cpu, b.machine_model
            ));
        }
        if a.event != b.event {
            notes.push(format!("different events: A counted {}, B counted {}", a.event, b.event));
        }
        if self.a.runs.len() + self.b.runs.len() == 2 {
            let why =
                "one run on each side: only sampling noise is filtered, as variation of runs is unknown";
            notes.push(why.to_owned());
        }
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            let selection = &side.view.selection;
            let images = image_notes(selection, store, &TopRequest::default());
            notes.extend(selection.notes.iter().chain(&images).map(|n| format!("{name}: {n}")));
        }
        notes.sort();
        notes.dedup();
        notes
    }
}

impl DiffChange {
    /// Marks the change as significant if fewer than one in twenty changes so marked are false positives.
    pub(crate) fn judge(&mut self, false_discovery_rate: f64) {
        self.false_discovery_rate = false_discovery_rate;
        self.significant = false_discovery_rate < FALSE_DISCOVERY_MAX;
    }
}

/// A procedure on both sides.
pub struct Row {
    pub(super) name: Name,
    pub(super) demangled: String,
    pub(super) change: DiffChange,
    /// Comparison of the procedure's runs, which shows how much runs vary.
    pub compared: Comparison,
    pub(super) procedures: [Option<ProcedureSamples>; 2],
    /// Analysed procedure in A and in B, if it can be analysed.
    pub costs: [Option<Arc<ProcedureCosts>>; 2],
}

impl Row {
    pub(super) fn new(
        sides: &Sides,
        name: Name,
        a: Option<&ProcedureSamples>,
        b: Option<&ProcedureSamples>,
    ) -> Row {
        let (change, compared) = sides.change(sides.a.counts(&name), sides.b.counts(&name));
        let demangled = b.or(a).map_or_else(|| name.1.clone(), |p| p.demangled.clone());
        Row { name, demangled, change, compared, procedures: [a.cloned(), b.cloned()], costs: [None, None] }
    }

    pub(super) fn analyse(&mut self, query: &Query, sides: &Sides) {
        for (i, side) in [&sides.a, &sides.b].into_iter().enumerate() {
            self.costs[i] = self.procedures[i].as_ref().and_then(|p| query.costs_once(&side.view, p));
        }
    }

    pub(super) fn answer(&self, sides: &Sides) -> DiffProcedure {
        let [a, b] = [0, 1].map(|i| self.costs[i].as_ref().map(|c| c.all_totals()));
        let confidences = self.costs.iter().flatten().filter_map(|c| confidence(c));
        DiffProcedure {
            procedure: self.name.1.clone(),
            demangled: self.demangled.clone(),
            image: self.name.0.clone(),
            change: self.change,
            factors: sides.factors(a.as_ref(), b.as_ref()),
            confidence: confidences.min().unwrap_or(Confidence::Low),
        }
    }

    /// Returns the view of one side, and the procedure in it.
    pub fn subject<'s>(&self, sides: &'s Sides, of_b: bool) -> Option<(&'s View, &ProcedureSamples)> {
        let side = if of_b { &sides.b } else { &sides.a };
        Some((&side.view, self.procedures[usize::from(of_b)].as_ref()?))
    }
}

/// Returns the confidence of the instructions that hold most of the samples.
fn confidence(costs: &ProcedureCosts) -> Option<Confidence> {
    let mut samples: BTreeMap<Confidence, f64> = BTreeMap::new();
    for cost in &costs.analysis.instructions {
        *samples.entry(cost.confidence).or_default() += cost.head_samples;
    }
    samples.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(confidence, _)| confidence)
}

impl Query {
    pub(super) fn sides(&self, request: &DiffRequest, cancel: &Cancel) -> Result<Sides, QueryError> {
        let a = ComparedProfile::read(self, &request.a, &request.normalize, cancel)?;
        let b = ComparedProfile::read(self, &request.b, &request.normalize, cancel)?;
        let sides = Sides { exposure: b.exposure() / a.exposure(), a, b };
        if !(sides.exposure.is_finite() && sides.exposure > 0.0) {
            return Err(QueryError::NothingToCompare { epoch: sides.b.view.selection.name() });
        }
        Ok(sides)
    }
}
