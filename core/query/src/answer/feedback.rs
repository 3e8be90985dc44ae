//! How often code was executed, by instruction, edge and call: the profile that optimizers read.

/// The profile of some epochs for compilers and linkers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// Ids of the epochs whose samples were merged.
    pub epochs: Vec<String>,
    /// Name of the sampled event, as perf spells it.
    pub event: String,
    /// Procedures whose instructions are known, most samples first.
    pub procedures: Vec<FeedbackProcedure>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

/// Execution counts of one procedure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackProcedure {
    /// Path of the image.
    pub image: String,
    /// Id of the image.
    pub build_id: String,
    /// Name of the symbol.
    pub symbol: String,
    /// For a symbol that is local to its object file: its number among the local symbols of the same name in the image, from
    /// 1, in the order of their addresses.
    pub local_number: Option<usize>,
    /// Number of blocks whose estimate was lowered to the executions that the sampled time allows.
    pub limited_blocks: usize,
    /// Number of blocks in which nothing was seen. Their executions are 0, whatever the estimate was.
    pub unseen_blocks: usize,
    /// Address of the first byte.
    pub address: u64,
    /// Estimated number of times that the procedure was entered.
    pub entries: f64,
    /// All instructions of the procedure, by ascending address.
    pub instructions: Vec<FeedbackInstruction>,
    /// First instruction of each basic block, as an index into `instructions`.
    pub block_starts: Vec<usize>,
    /// Transfers of control between the basic blocks.
    pub edges: Vec<FeedbackEdge>,
}

/// Execution counts of one instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackInstruction {
    /// Image address, as the image's headers spell it.
    pub address: u64,
    /// Samples, counted at the instruction that the interrupt reported.
    pub samples: u64,
    /// Estimated executions; `None` if there is no estimate.
    pub executions: Option<f64>,
    /// Inlined calls at this instruction, innermost first; the last frame is the procedure's own. Empty without debug
    /// information.
    pub frames: Vec<FeedbackFrame>,
    /// Procedures that the instruction calls, as far as they are known.
    pub calls: Vec<FeedbackCall>,
}

/// One function of a chain of inlined calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackFrame {
    /// Linkage (mangled) name.
    pub function: Option<String>,
    /// Source file of `line`, which may differ from the file of the function.
    pub file: Option<String>,
    /// Line that the function is declared at; 0 if unknown.
    pub start_line: u32,
    /// Line of the instruction; in an outer frame, the line of the inlined call. 0 if unknown.
    pub line: u32,
    /// Number that distinguishes the blocks on one line, as the compiler encodes it (DWARF discriminator).
    pub discriminator: u32,
}

/// A call to another procedure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackCall {
    /// Linkage name of the callee.
    pub target: String,
    /// Address of the callee's first byte.
    pub target_address: u64,
    /// Estimated number of executions.
    pub executions: f64,
    /// Whether the call is indirect: the instruction does not name its target, but was seen to go there.
    pub is_indirect: bool,
}

/// Transfer of control from one basic block to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FeedbackEdge {
    /// Address of the last instruction of the block that control leaves.
    pub from: u64,
    /// Address of the first instruction of the block that control enters.
    pub to: u64,
    /// Estimated number of executions.
    pub executions: f64,
}
