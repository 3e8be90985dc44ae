//! The paper's estimator as the reference, for any machine: clusters of the ratios of issue points in each equivalence
//! class, then local propagation (DCPI §6.1.3–6.1.4). Complexity: near-linear.

use dwell_analysis::{
    equivalence::Equivalence,
    frequency::{self, Evidence as FrequencyEvidence},
    schedule::Schedule,
};

use super::Estimates;
use crate::program::{Evidence, Procedure};

/// Estimates the executions of one procedure.
pub fn estimate(evidence: &Evidence, procedure: &Procedure, period_cycles: f64) -> Estimates {
    let cfg = &procedure.cfg;
    let equivalence = Equivalence::new(cfg);
    let schedule = Schedule::new(&evidence.model, evidence.arch, &procedure.instructions, cfg);
    let found = frequency::by_clusters(&FrequencyEvidence {
        model: &evidence.model,
        cfg,
        equivalence: &equivalence,
        schedule: &schedule,
        samples: &procedure.samples,
        directions: &procedure.directions,
        transfers: &[],
        counted: &[],
        absolute: &[],
        is_anchored: false,
        retired: None,
    });
    let executions = |e: Option<frequency::Estimate>| e.map(|e| e.frequency * period_cycles);
    Estimates::from_graph(cfg, |b| executions(found.blocks[b]), |e| executions(found.edges[e]))
}
