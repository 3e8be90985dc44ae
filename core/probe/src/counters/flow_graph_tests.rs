//! Random walks through random graphs: what is computed from the counted blocks must be what was walked.

use dwell_analysis::cfg::{CfgEdge, EdgeKind};

use super::*;

/// A generator of numbers (Marsaglia, "Xorshift RNGs", 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Returns a graph in which each block leads to the next one, and some to another one.
fn random_cfg(random: &mut Random) -> Cfg {
    let blocks = 1 + random.below(12);
    let (entry, exit) = (blocks, blocks + 1);
    let mut edges: Vec<CfgEdge> = Vec::new();
    for from in 0..blocks {
        let next = if from + 1 < blocks { from + 1 } else { exit };
        edges.push(CfgEdge { from, to: next, kind: EdgeKind::NotTaken });
        let to = random.below(blocks + 2);
        if random.below(3) > 0 && to != entry && to != next {
            edges.push(CfgEdge { from, to, kind: EdgeKind::Taken });
        }
    }
    edges.push(CfgEdge { from: entry, to: 0, kind: EdgeKind::Enter });
    let mut successors = vec![Vec::new(); blocks + 2];
    let mut predecessors = vec![Vec::new(); blocks + 2];
    for (at, edge) in edges.iter().enumerate() {
        successors[edge.from].push(at);
        predecessors[edge.to].push(at);
    }
    let blocks = (0..blocks).map(|block| block..block + 1).collect();
    Cfg { blocks, edges, successors, predecessors, missing_edges: false }
}

/// Returns how often each block is executed in some walks from the entry to the exit.
fn walk(cfg: &Cfg, random: &mut Random) -> Vec<u64> {
    let mut counts = vec![0; cfg.blocks.len()];
    for _ in 0..20 {
        let mut node = cfg.entry();
        while node != cfg.exit() {
            let ways = &cfg.successors[node];
            node = cfg.edges[ways[random.below(ways.len())]].to;
            if let Some(count) = counts.get_mut(node) {
                *count += 1;
            }
        }
    }
    counts
}

#[test]
fn the_other_blocks_follow_from_the_counted_ones() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut chosen_sum, mut blocks_sum) = (0, 0);
    for round in 0..2000 {
        let cfg = random_cfg(&mut random);
        let graph = FlowGraph::new(&cfg);
        let counts = walk(&cfg, &mut random);
        let weights: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
        let chosen = graph.choose(&weights, &vec![true; counts.len()]);
        let counted: Vec<(usize, u64)> = chosen.iter().map(|block| (*block, counts[*block])).collect();
        let solved = graph.solve(&counted);
        assert_eq!(solved, counts.iter().copied().map(Some).collect::<Vec<_>>(), "round {round}: {cfg:?}");
        chosen_sum += chosen.len();
        blocks_sum += counts.len();
    }
    assert!(chosen_sum < blocks_sum * 2 / 3, "{chosen_sum} of {blocks_sum} blocks are counted");
}

#[test]
fn what_follows_is_right_although_some_blocks_cannot_be_counted() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut solved_sum, mut blocks_sum) = (0, 0);
    for round in 0..2000 {
        let cfg = random_cfg(&mut random);
        let graph = FlowGraph::new(&cfg);
        let counts = walk(&cfg, &mut random);
        let is_countable: Vec<bool> = counts.iter().map(|_| random.below(4) > 0).collect();
        let chosen = graph.choose(&vec![1.0; counts.len()], &is_countable);
        assert!(chosen.iter().all(|block| is_countable[*block]));
        let counted: Vec<(usize, u64)> = chosen.iter().map(|block| (*block, counts[*block])).collect();
        for (block, solved) in graph.solve(&counted).into_iter().enumerate() {
            assert!(
                solved.is_none_or(|count| count == counts[block]),
                "round {round}, block {block}: {cfg:?}"
            );
            solved_sum += usize::from(solved.is_some());
        }
        blocks_sum += counts.len();
    }
    assert!(solved_sum > blocks_sum * 3 / 4, "{solved_sum} of {blocks_sum} blocks are known");
}

#[test]
fn a_loop_of_one_block_is_counted_in_it() {
    // entry → 0 → 1 ⟲ → 2 → exit
    let edge = |from, to, kind| CfgEdge { from, to, kind };
    let edges = vec![
        edge(0, 1, EdgeKind::FallThrough),
        edge(1, 1, EdgeKind::Taken),
        edge(1, 2, EdgeKind::NotTaken),
        edge(2, 4, EdgeKind::Leave),
        edge(3, 0, EdgeKind::Enter),
    ];
    let cfg = Cfg {
        blocks: vec![0..1, 1..2, 2..3],
        edges,
        successors: vec![vec![0], vec![1, 2], vec![3], vec![4], vec![]],
        predecessors: vec![vec![4], vec![0, 1], vec![2], vec![], vec![3]],
        missing_edges: false,
    };
    let graph = FlowGraph::new(&cfg);
    let chosen = graph.choose(&[1.0, 1000.0, 1.0], &[true; 3]);
    assert_eq!(chosen.len(), 2);
    assert_eq!(graph.solve(&[(0, 5), (1, 5000)]), [Some(5), Some(5000), Some(5)]);
    // Without the block in the loop, nothing says how often it was executed.
    assert_eq!(graph.solve(&[(0, 5)]), [Some(5), None, Some(5)]);
}

#[test]
fn flow_that_is_not_conserved_gives_no_more_than_was_counted() {
    // entry → 0 → 1 → exit, 0 → exit; 2 is a landing pad that leads to 1.
    let edge = |from, to, kind| CfgEdge { from, to, kind };
    let edges = vec![
        edge(0, 1, EdgeKind::NotTaken),
        edge(0, 4, EdgeKind::Taken),
        edge(1, 4, EdgeKind::Leave),
        edge(2, 1, EdgeKind::Jump),
        edge(3, 0, EdgeKind::Enter),
        edge(3, 2, EdgeKind::Unseen),
    ];
    let cfg = Cfg {
        blocks: vec![0..1, 1..2, 2..3],
        edges,
        successors: vec![vec![0, 1], vec![2], vec![3], vec![4, 5], vec![]],
        predecessors: vec![vec![4], vec![0, 3], vec![5], vec![], vec![1, 2]],
        missing_edges: false,
    };
    let graph = FlowGraph::new(&cfg);
    assert_eq!(graph.solve(&[(0, 1000), (1, 1500)])[2], None);
    assert_eq!(graph.solve(&[(1, 1500), (2, 500)]), [None, Some(1500), Some(500)]);
    assert_eq!(graph.solve(&[(0, 1000), (2, 0)]), [Some(1000), None, Some(0)]);
}
