//! Local propagation through flow constraints (DCPI §6.1.4).
//!
//! Input: the graph, its classes, estimates of some classes. Output: estimates of more: a block is the sum of its
//! incoming edges and the sum of its outgoing edges. Each new estimate is that of its whole class; none is negative.
//! Complexity: linear: a class is estimated once, and each of its edges makes two blocks be visited again.

use super::{Estimate, confidence};
use crate::{
    cfg::{Cfg, EdgeKind, Node},
    equivalence::Equivalence,
};

/// Fills `classes` where the flow constraints allow it. An existing estimate is never changed.
pub fn propagate(cfg: &Cfg, equivalence: &Equivalence, classes: &mut [Option<Estimate>]) {
    let mut propagation = Propagation { cfg, equivalence, members: members_of(cfg, equivalence), classes };
    propagation.run((0..cfg.blocks.len()).collect());
    // Edges that control never takes by itself carry nothing, unless the samples say otherwise.
    let nothing = Estimate { frequency: 0.0, confidence: crate::Confidence::Low };
    let pseudo = |e: &usize| cfg.edges[*e].kind == EdgeKind::Endless;
    for edge in (0..cfg.edges.len()).filter(pseudo) {
        propagation.set(equivalence.edge_class[edge], nothing);
    }
    propagation.run((0..cfg.blocks.len()).collect());
    debug_assert_eq!(verify_classes(classes), Ok(()));
}

/// Checks that no difference of frequencies became negative.
fn verify_classes(classes: &[Option<Estimate>]) -> Result<(), String> {
    match classes.iter().flatten().find(|e| !(e.frequency.is_finite() && e.frequency >= 0.0)) {
        Some(estimate) => Err(format!("{estimate:?}")),
        None => Ok(()),
    }
}

/// Returns for each class the nodes whose constraints contain it.
fn members_of(cfg: &Cfg, equivalence: &Equivalence) -> Vec<Vec<Node>> {
    let mut members = vec![Vec::new(); equivalence.classes];
    for (block, &class) in equivalence.block_class.iter().enumerate() {
        members[class].push(block);
    }
    for (edge, &class) in cfg.edges.iter().zip(&equivalence.edge_class) {
        members[class].extend([edge.from, edge.to].into_iter().filter(|&n| n < cfg.blocks.len()));
    }
    members
}

struct Propagation<'a> {
    cfg: &'a Cfg,
    equivalence: &'a Equivalence,
    members: Vec<Vec<Node>>,
    classes: &'a mut [Option<Estimate>],
}

impl Propagation<'_> {
    fn run(&mut self, mut work: Vec<Node>) {
        while let Some(block) = work.pop() {
            let incoming =
                (!self.cfg.missing_edges).then(|| self.solve(block, &self.cfg.predecessors[block]));
            let outgoing = self.solve(block, &self.cfg.successors[block]);
            for (class, estimate) in incoming.flatten().into_iter().chain(outgoing) {
                if self.set(class, estimate) {
                    work.extend_from_slice(&self.members[class]);
                }
            }
        }
    }

    fn set(&mut self, class: usize, estimate: Estimate) -> bool {
        let is_new = self.classes[class].is_none();
        self.classes[class].get_or_insert(estimate);
        is_new
    }

    /// Returns the unknown of a block and its edges on one side, if there is exactly one.
    fn solve(&self, block: Node, edges: &[usize]) -> Option<(usize, Estimate)> {
        let own = self.equivalence.block_class[block];
        let of = |e: &usize| self.classes[self.equivalence.edge_class[*e]];
        let known: Vec<Estimate> = edges.iter().filter_map(of).collect();
        let sum: f64 = known.iter().map(|e| e.frequency).sum();
        match self.classes[own] {
            None if known.len() == edges.len() && !edges.is_empty() => {
                let confidence = confidence::from_propagated(known.iter().map(|e| e.confidence));
                Some((own, Estimate { frequency: sum, confidence }))
            }
            Some(block) if known.len() + 1 == edges.len() => {
                let unknown = edges.iter().find(|e| of(e).is_none())?;
                let sources = known.iter().chain([&block]).map(|e| e.confidence);
                let frequency = (block.frequency - sum).max(0.0);
                let estimate = Estimate { frequency, confidence: confidence::from_propagated(sources) };
                Some((self.equivalence.edge_class[*unknown], estimate))
            }
            _ => None,
        }
    }
}
