//! How often code was executed, by instruction, edge and call: what optimizers are told.

/// The feedback of some epochs for compilers and linkers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// Ids of the epochs that were merged.
    pub epochs: Vec<String>,
    /// The event that was sampled, as perf spells it.
    pub event: String,
    /// Most samples first; only those whose instructions are known.
    pub procedures: Vec<FeedbackProcedure>,
    /// What one must know to use it.
    pub notes: Vec<String>,
}

/// One procedure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackProcedure {
    /// The image's path.
    pub image: String,
    /// Its id.
    pub build_id: String,
    /// The symbol's name.
    pub symbol: String,
    /// Of a symbol that its object file keeps to itself: its number among those of that name in the image, from 1, by
    /// address.
    pub local_number: Option<usize>,
    /// Blocks whose estimate was lowered to what there was time for.
    pub limited_blocks: usize,
    /// Blocks that nothing was seen in: their executions are 0, whatever the estimate.
    pub unseen_blocks: usize,
    /// First byte.
    pub address: u64,
    /// How often it was entered.
    pub entries: f64,
    /// All of its instructions, by ascending address.
    pub instructions: Vec<FeedbackInstruction>,
    /// First instructions of its basic blocks, as indices.
    pub block_starts: Vec<usize>,
    /// Transfers of control between its basic blocks.
    pub edges: Vec<FeedbackEdge>,
}

/// One instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackInstruction {
    /// As the image's headers spell it.
    pub address: u64,
    /// Samples where they landed.
    pub samples: u64,
    /// Estimated executions; `None` where there is no estimate.
    pub executions: Option<f64>,
    /// Innermost inlined call first; the last is the procedure's own. Empty without debug information.
    pub frames: Vec<FeedbackFrame>,
    /// What it calls, as far as that is known.
    pub calls: Vec<FeedbackCall>,
}

/// One call of those that were inlined into each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackFrame {
    /// Linkage name.
    pub function: Option<String>,
    /// Source file; of the line, not of the function.
    pub file: Option<String>,
    /// The line that the function is declared at; 0: unknown.
    pub start_line: u32,
    /// The line, of an outer frame that of the inlined call; 0: unknown.
    pub line: u32,
    /// Which of the blocks on that line, as the compiler encodes it.
    pub discriminator: u32,
}

/// A call to another procedure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackCall {
    /// The callee's linkage name.
    pub target: String,
    /// Its first byte.
    pub target_address: u64,
    /// How often.
    pub executions: f64,
    /// The instruction does not name its target: it was seen to go there.
    pub is_indirect: bool,
}

/// From one basic block to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FeedbackEdge {
    /// The last instruction of the block that it leaves.
    pub from: u64,
    /// The first of the block that it enters.
    pub to: u64,
    /// How often.
    pub executions: f64,
}
