//! How the results degrade with fewer samples, or with a model whose latencies are wrong.
//!
//! Enters: a program. Leaves: the shares of Dwell and of the clusters under each change. Samples are thinned binomially,
//! seeded by the program's name; shares are weighted by all samples, so that every row judges the same instructions.

use dwell_analysis::MachineModel;
use serde::Serialize;

use crate::{
    estimators::{
        Estimates, clusters,
        dwell::{self, EvidenceKinds},
    },
    metrics::{self, Point, Shares},
    points::instruction_points,
    program::{Evidence, Program},
    random::Random,
};

/// The shares under one change.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// What was changed.
    pub change: &'static str,
    /// The shares of Dwell's analysis.
    pub dwell: Shares,
    /// The shares of the paper's clusters.
    pub clusters: Shares,
}

/// Judges every change; the last ones change the model.
pub fn judge(name: &str, program: &Program) -> Vec<Sensitivity> {
    let evidence = &program.evidence;
    let with_model = |model| Evidence { model, ..evidence.clone() };
    let changes = [
        ("1/10 of the samples", thinned(evidence, 0.1, name)),
        ("1/50 of the samples", thinned(evidence, 0.02, name)),
        ("latencies one less", with_model(with_latencies_changed(&evidence.model, -1.0))),
        ("latencies one more", with_model(with_latencies_changed(&evidence.model, 1.0))),
    ];
    changes.into_iter().map(|(change, changed)| shares(change, program, &changed)).collect()
}

fn shares(change: &'static str, program: &Program, changed: &Evidence) -> Sensitivity {
    let period = changed.period_cycles.unwrap_or(1.0);
    let of = |estimates: &dyn Fn(usize) -> Estimates| {
        let points: Vec<Vec<Point>> = (0..changed.procedures.len())
            .map(|p| {
                let samples = &program.evidence.procedures[p].samples;
                instruction_points(samples, &program.truth[p], &estimates(p))
            })
            .collect();
        metrics::shares(&points, &metrics::fit(&points), program.is_absolute, 0.0)
    };
    let analyses = dwell::analyses(changed, &changed.model, EvidenceKinds::OWN);
    Sensitivity {
        change,
        dwell: of(&|p| dwell::estimate(&analyses[p], period)),
        clusters: of(&|p| clusters::estimate(changed, &changed.procedures[p], period)),
    }
}

/// Keeps each sample, each direction observed with it and each sample of another event with probability `part`. The
/// distance between two samples grows accordingly.
pub fn thinned(evidence: &Evidence, part: f64, seed: &str) -> Evidence {
    let mut random = Random::from_text(seed);
    let mut thin = evidence.clone();
    thin.period_cycles = thin.period_cycles.map(|p| p / part);
    for procedure in &mut thin.procedures {
        procedure.samples.iter_mut().for_each(|s| *s = random.binomial(*s, part));
        for (taken, not_taken) in &mut procedure.directions {
            *taken = random.binomial(*taken, part);
            *not_taken = random.binomial(*not_taken, part);
        }
        for (counts, period) in procedure.events.values_mut() {
            counts.iter_mut().for_each(|s| *s = random.binomial(*s, part));
            *period = (*period as f64 / part) as u64;
        }
    }
    thin
}

/// Returns the model with every latency changed by `cycles`. A latency of at least one cycle stays at least one.
fn with_latencies_changed(model: &MachineModel, cycles: f64) -> MachineModel {
    let change =
        |latency: f64| if latency > 0.0 { (latency + cycles).max(latency.min(1.0)) } else { latency };
    let mut changed = model.clone();
    for cost in changed.classes.values_mut() {
        cost.latency = change(cost.latency);
        cost.address_latency = cost.address_latency.map(change);
    }
    changed.memory.l1_cycles = change(changed.memory.l1_cycles);
    changed
}

#[cfg(test)]
mod tests {
    use dwell_analysis::machine::OpcodeClass;

    use super::*;

    #[test]
    fn latencies_change_by_one() {
        let model = MachineModel::named("generic-inorder-2").expect("the model");
        let latency = |m: &MachineModel, class| m.cost(class).latency;
        let (less, more) = (with_latencies_changed(model, -1.0), with_latencies_changed(model, 1.0));
        assert_eq!((latency(&less, OpcodeClass::Load), latency(&more, OpcodeClass::Load)), (2.0, 4.0));
        assert_eq!((latency(&less, OpcodeClass::Alu), latency(&more, OpcodeClass::Alu)), (1.0, 2.0));
    }
}
