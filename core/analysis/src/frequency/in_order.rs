//! Frequencies on in-order machines: the mixture likelihood of each class, then the flow that fits all of them.
//!
//! Input: [`Evidence`]. Output: estimates that conserve flow exactly. Complexity: that of [`mixture`] and [`flow_fit`],
//! for a constant number of rounds.
//!
//! Expectation and maximisation alternate (Dempster, Laird and Rubin, 1977): given frequencies, how likely each issue
//! point is free of stalls; given that, the flow that makes the samples of the free points most likely. A class whose
//! only point stalls starts too high; its neighbours pull it down, its point then looks stalled, and it stops pulling
//! back. The model's error is large at first and narrows round by round (annealing), so that no evidence is dropped
//! before its neighbours have had their effect.
//!
//! Counts take part ([`in_order_counts`](super::in_order_counts)): executions do not stall, so they determine a class
//! whose points all stall.
//!
//! Where a class's own points contradict the flow beyond doubt, control enters from outside (a jump from another
//! procedure, as between glibc's memmove and memcpy): such blocks get an entry of their own, and a note says so.

use super::{
    Estimate, Estimates, Evidence, basis, by_classes, confidence,
    flow_fit::{self, Flow, FlowFit, Known},
    heads::{self, DirectionEvidence},
    in_order_counts::Counts,
    mixture::{self, Point, Stalls},
    out_of_order, points, skid,
};
use crate::{
    Basis, Confidence,
    cfg::{CfgEdge, EdgeKind, Node},
};

/// The model's relative error in each round.
const MODEL_ERRORS: [f64; 7] = [0.0, 0.3, 0.15, 0.08, 0.04, 0.02, 0.0];
/// The relative change at which a round ends, except the last one. The next round starts from its flow.
const ROUGHLY: f64 = 0.03;
/// A prior in samples, which pulls towards the first guess and keeps flows above zero.
const PRIOR_SAMPLES: f64 = 0.1;
/// First guesses: an edge's part of the rarer of its ends, and the same for an edge that control never takes by itself.
const EDGE_PART: f64 = 0.5;
const PSEUDO_PART: f64 = 1e-3;
/// A class's points may all have this relative error in common, however many samples they have.
const CLASS_ERROR: f64 = 0.01;
/// Logarithm of the likelihood ratio between a class's own frequency and the flow's that proves an entry from outside.
const ENTRY_PROOF: f64 = 25.0;
/// Variance of the logarithm of a direction's odds in samples over its true odds: the time that a branch waits depends on
/// its direction. Chosen on the programs of role "tune".
const DIRECTION_LOG_VARIANCE: f64 = 0.1;
/// The part of a block's own samples that the directions of its branch may outweigh.
const OWN_PART: f64 = 0.9;
/// Greatest number of entries from outside.
const ENTRIES_MAX: usize = 8;

/// Estimates a procedure. Returns `None` if the graph has missing edges or elimination would take too much work.
pub fn estimate(evidence: &Evidence) -> Option<Estimates> {
    let Evidence { model, cfg, .. } = *evidence;
    if cfg.missing_edges || cfg.blocks.is_empty() {
        return None;
    }
    let stalls = Stalls::new(model);
    let counts = Counts::from_evidence(evidence);
    let mut fitted = fit(evidence, &counts, &[], &stalls)?;
    let entries = unseen_entries(evidence, &fitted, &stalls);
    if !entries.is_empty() {
        fitted = fit(evidence, &counts, &entries, &stalls)?;
    }
    let basis = basis::from_evidence(evidence);
    let entered = (!entries.is_empty()).then(|| ENTERED_NOTE.into());
    Some(Estimates {
        head_samples: head_samples(evidence),
        notes: entered.into_iter().chain(note(&basis)).collect(),
        basis,
        ..with_confidence(evidence, &counts, fitted, &stalls)
    })
}

/// Estimates each class by its points and its retired instructions, where no flow can be solved for. Returns `None`
/// without these.
pub fn by_class_points(evidence: &Evidence) -> Option<Estimates> {
    evidence.retired?;
    let stalls = Stalls::new(evidence.model);
    let shares = skid::edge_shares_by_samples(evidence.cfg, evidence.samples);
    let points = points::by_block(evidence, &points::issue_cycles(evidence, &shares));
    let of = |Class { points, own }: Class| {
        let frequency = own?;
        Some(Estimate { frequency, confidence: confidence::from_mixture(&points, own, frequency, &stalls) })
    };
    let classes = judged_classes(evidence, &points, &Counts::from_evidence(evidence), &stalls, &[]);
    let basis = Basis { retired: basis::from_evidence(evidence).retired, ..Basis::default() };
    let mut estimates = by_classes(evidence, classes.into_iter().map(of).collect());
    estimates.notes.extend(note(&basis));
    Some(Estimates { head_samples: head_samples(evidence), basis, ..estimates })
}

fn head_samples(evidence: &Evidence) -> Vec<f64> {
    evidence.samples.iter().map(|&s| s as f64).collect()
}

/// Describes the evidence beyond what every sample of time has.
fn note(basis: &Basis) -> Option<String> {
    let retired = (basis.retired > 0).then(|| basis::retired(basis));
    let counted: Vec<String> = retired.into_iter().chain(basis::relative(basis)).collect();
    let all = |counted: Vec<String>| [vec!["cycles".into()], counted].concat();
    let all = (!counted.is_empty()).then(|| all(counted))?;
    Some(format!("frequencies rest on {}", basis::enumeration(&all)?))
}

fn with_confidence(evidence: &Evidence, counts: &Counts, fitted: Fitted, stalls: &Stalls) -> Estimates {
    let equivalence = evidence.equivalence;
    let Fitted { flow, mut classes } = fitted;
    add_points_by_flow(evidence, counts, &flow, &mut classes, stalls);
    // An edge without points of its own is a difference of others and has low confidence. A class's blocks are executed
    // equally often, so one of them stands for all.
    let mut confidences = vec![Confidence::Low; classes.len()];
    let mut judged = vec![false; classes.len()];
    for (&frequency, &class) in flow.blocks.iter().zip(&equivalence.block_class) {
        if !std::mem::replace(&mut judged[class], true) {
            let Class { points, own } = &classes[class];
            confidences[class] = confidence::from_mixture(points, *own, frequency, stalls);
        }
    }
    let of =
        |(&frequency, &class): (&f64, &usize)| Some(Estimate { frequency, confidence: confidences[class] });
    Estimates {
        blocks: flow.blocks.iter().zip(&equivalence.block_class).map(of).collect(),
        edges: flow.edges.iter().zip(&equivalence.edge_class).map(of).collect(),
        ..Estimates::default()
    }
}

/// Adds the points whose scale follows from the flow.
fn add_points_by_flow(
    evidence: &Evidence,
    counts: &Counts,
    flow: &Flow,
    classes: &mut [Class],
    stalls: &Stalls,
) {
    let class_of = &evidence.equivalence.block_class;
    let points = counts.points_by(flow, |block| &classes[class_of[block]].points, stalls);
    for &(block, point) in &points {
        classes[class_of[block]].points.push(point);
    }
    for &(block, _) in &points {
        let Class { points, own } = &mut classes[class_of[block]];
        *own = mixture::most_likely(points, stalls);
    }
}

const ENTERED_NOTE: &str = "control seems to enter the middle of the function, by a jump from another one";

struct Fitted {
    flow: Flow,
    /// Returns the points of each class, at the shares of edges of this flow.
    classes: Vec<Class>,
}

/// A class's issue points, and its most likely frequency by them alone.
struct Class {
    points: Vec<Point>,
    own: Option<f64>,
}

fn fit(evidence: &Evidence, counts: &Counts, entries: &[Node], stalls: &Stalls) -> Option<Fitted> {
    let Evidence { cfg, samples, .. } = *evidence;
    let solver = FlowFit::new(cfg, entries)?;
    let forks = heads::forks(evidence);
    let seen = sampled_directions(evidence);
    let scales = counts.scales();
    let mut shares = skid::edge_shares_by_samples(cfg, samples);
    let mut fitted: Option<(Flow, Vec<Vec<Point>>)> = None;
    let mut classes = Vec::new();
    for (round, error) in MODEL_ERRORS.into_iter().enumerate() {
        let cycles = points::issue_cycles(evidence, &shares);
        let points = points::by_block(evidence, &cycles);
        let (guess, doubts) = match &fitted {
            None => {
                classes = judged_classes(evidence, &points, counts, stalls, &[]);
                frequencies_by_class(evidence, entries, &classes, stalls)
            }
            Some((flow, _)) => (flow.all(), vec![0.0; points.len()]),
        };
        let heads: Vec<DirectionEvidence> = match &fitted {
            None => Vec::new(),
            Some((flow, _)) => forks.iter().filter_map(|f| f.evidence(evidence, &cycles, flow)).collect(),
        };
        let mut known = knowledge(&points, &heads, &guess, &doubts, &stalls.with_model_error(error));
        counts.add(&mut known);
        heads.iter().chain(&seen).for_each(|s| add_odds(&mut known, s.block, &s.edges, cfg.blocks.len()));
        counts.odds.iter().for_each(|(block, edges)| add_odds(&mut known, *block, edges, cfg.blocks.len()));
        let is_last = round + 1 == MODEL_ERRORS.len();
        let flow =
            solver.solve(&known, &scales, &guess, if is_last { flow_fit::CONVERGED } else { ROUGHLY })?;
        shares = skid::edge_shares(cfg, &flow.edges);
        fitted = Some((flow, points));
    }
    let (flow, points) = fitted?;
    Some(Fitted { flow, classes: judged_classes(evidence, &points, counts, stalls, &classes) })
}

/// Returns the evidence of each block's stall-free points except heads that are used by forks, and the prior for edges
/// and entries.
fn knowledge(
    points: &[Vec<Point>],
    heads: &[DirectionEvidence],
    guess: &[f64],
    doubts: &[f64],
    stalls: &Stalls,
) -> Vec<Known> {
    let mut has_spoken = vec![false; points.len()];
    heads.iter().flat_map(|s| s.heads).flatten().for_each(|block| has_spoken[block] = true);
    let of_block = |(block, points): (usize, &Vec<Point>)| {
        let points = points.iter().filter(|p| !(p.is_head && has_spoken[block]));
        let (samples, cycles) = mixture::free_part(points, guess[block], stalls);
        let worth = 1.0 / (1.0 + (doubts[block] + CLASS_ERROR * CLASS_ERROR) * samples);
        Known { samples: worth * samples, cycles: worth * cycles }
    };
    let blocks = points.iter().enumerate().map(of_block);
    let nothing = std::iter::repeat(Known { samples: 0.0, cycles: 0.0 });
    let known = blocks.chain(nothing).zip(guess);
    known
        .map(|(k, &f)| Known {
            samples: k.samples + PRIOR_SAMPLES,
            cycles: k.cycles + PRIOR_SAMPLES / f.max(f64::MIN_POSITIVE),
        })
        .collect()
}

/// Adds the directions in samples' registers.
fn sampled_directions(evidence: &Evidence) -> Vec<DirectionEvidence> {
    let cfg = evidence.cfg;
    let of_block = |(block, range): (usize, &std::ops::Range<usize>)| {
        let of = |kind| cfg.successors[block].iter().copied().find(|&e| cfg.edges[e].kind == kind);
        let edges = [of(EdgeKind::Taken)?, of(EdgeKind::NotTaken)?];
        let (taken, not_taken) = evidence.directions[range.end - 1];
        let counts = out_of_order::unbiased((taken, not_taken), DIRECTION_LOG_VARIANCE);
        let edges = [(edges[0], counts.0), (edges[1], counts.1)];
        (taken > 0 || not_taken > 0).then_some(DirectionEvidence { block, edges, heads: [None; 2] })
    };
    cfg.blocks.iter().enumerate().filter_map(of_block).collect()
}

/// Adds observed directions of a branch, whose multinomial likelihood is Σ n·ln z − Σn·ln z_block. The second term alone
/// is not concave, so directions count no more than the block's own samples outweigh; a tangent in its place would keep
/// the flow near its first guess for many rounds.
fn add_odds(known: &mut [Known], block: Node, edges: &[(usize, f64)], blocks: usize) {
    let times: f64 = edges.iter().map(|e| e.1).sum();
    let block = &mut known[block];
    let part = (OWN_PART * block.samples / times.max(f64::MIN_POSITIVE)).min(1.0);
    block.samples -= part * times;
    edges.iter().for_each(|&(edge, n)| known[blocks + edge].samples += part * n);
}

/// Returns the frequency of each arc by its own class, and the variance of each block's.
fn frequencies_by_class(
    evidence: &Evidence,
    entries: &[Node],
    classes: &[Class],
    stalls: &Stalls,
) -> (Vec<f64>, Vec<f64>) {
    let Evidence { cfg, equivalence, .. } = *evidence;
    let own: Vec<Option<f64>> = classes.iter().map(|c| c.own).collect();
    let doubt_of = |c: &Class| c.own.map_or(0.0, |f| mixture::log_variance(&c.points, f, stalls));
    let doubts: Vec<f64> = classes.iter().map(doubt_of).collect();
    // A guess must not be far too low, because the loss is steep above it. Where no point is known, all samples are used.
    let by_samples = |b: usize| {
        let range = cfg.blocks[b].clone();
        let samples: f64 = range.clone().map(|i| evidence.samples[i] as f64).sum();
        samples.max(0.5) / range.map(|i| evidence.schedule.issue_cycles_min[i]).sum::<f64>().max(1.0)
    };
    let blocks = 0..cfg.blocks.len();
    let mut guess: Vec<f64> =
        blocks.map(|b| own[equivalence.block_class[b]].unwrap_or_else(|| by_samples(b))).collect();
    let edge = |(e, &class): (&CfgEdge, &usize)| {
        let ends = [e.from, e.to].map(|n| guess.get(n).copied().unwrap_or(f64::INFINITY));
        let around = ends[0].min(ends[1]);
        match e.kind {
            _ if own[class].is_some() => own[class].unwrap_or(around),
            EdgeKind::Enter | EdgeKind::Leave => around,
            k if k.is_pseudo() => PSEUDO_PART * around,
            _ => EDGE_PART * around,
        }
    };
    let edges: Vec<f64> = cfg.edges.iter().zip(&equivalence.edge_class).map(edge).collect();
    let entering: Vec<f64> = entries.iter().map(|&b| guess[b]).collect();
    guess.extend(edges.into_iter().chain(entering));
    guess.iter_mut().for_each(|g| *g = g.clamp(1e-9, 1e19));
    (guess, equivalence.block_class.iter().map(|&c| doubts[c]).collect())
}

/// Returns the classes with these points and with their absolute counts. Results of `earlier` classes with the same
/// points are reused.
fn judged_classes(
    evidence: &Evidence,
    points: &[Vec<Point>],
    counts: &Counts,
    stalls: &Stalls,
    earlier: &[Class],
) -> Vec<Class> {
    let mut classes = vec![Vec::new(); evidence.equivalence.classes];
    for (points, &class) in points.iter().zip(&evidence.equivalence.block_class) {
        classes[class].extend_from_slice(points);
    }
    counts.points().for_each(|(block, p)| classes[evidence.equivalence.block_class[block]].push(p));
    let judged = |(class, points): (usize, Vec<Point>)| {
        let same = earlier.get(class).filter(|e| e.points == points);
        Class { own: same.map_or_else(|| mixture::most_likely(&points, stalls), |e| e.own), points }
    };
    classes.into_iter().enumerate().map(judged).collect()
}

/// Returns the first blocks of the classes whose points prove that the flow is too small.
fn unseen_entries(evidence: &Evidence, fitted: &Fitted, stalls: &Stalls) -> Vec<Node> {
    let mut seen = vec![false; fitted.classes.len()];
    let mut proven = Vec::new();
    for (block, &class) in evidence.equivalence.block_class.iter().enumerate() {
        let (Class { points, own }, flow) = (&fitted.classes[class], fitted.flow.blocks[block]);
        if std::mem::replace(&mut seen[class], true) || points.len() < 2 {
            continue;
        }
        let Some(own) = own.filter(|own| *own > 1.1 * flow) else {
            continue;
        };
        let proof =
            mixture::log_likelihood(points, own, stalls) - mixture::log_likelihood(points, flow, stalls);
        if proof > ENTRY_PROOF {
            proven.push((proof, block));
        }
    }
    proven.sort_by(|a, b| b.0.total_cmp(&a.0));
    proven.iter().take(ENTRIES_MAX).map(|p| p.1).collect()
}
