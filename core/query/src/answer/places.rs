//! Samples by instruction, with all that is known about the place of each: the data that exports are made from.

/// All samples of some epochs, by procedure and instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    /// Ids of the epochs whose samples were merged.
    pub epochs: Vec<String>,
    /// Events that were sampled. The first one is the event that procedures are ordered by; derived events are not included.
    pub events: Vec<PlaceEvent>,
    /// Mean number of cycles between two samples of the first event; `None` if the clock rate is unknown or the event does
    /// not measure time.
    pub period_cycles: Option<f64>,
    /// Time when sampling began, in ns since 1970.
    pub start_ns: i64,
    /// Duration of sampling, in ns; 0 if it is unknown.
    pub duration_ns: i64,
    /// Procedures, most samples first.
    pub procedures: Vec<ProcedurePlaces>,
    /// Notes that a reader needs to interpret the answer.
    pub notes: Vec<String>,
}

impl Places {
    /// Returns whether the executions of at least one instruction are known.
    pub fn knows_executions(&self) -> bool {
        self.procedures.iter().flat_map(|p| &p.instructions).any(|i| i.executions.is_some())
    }
}

/// An event and its period.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceEvent {
    /// Name of the event, as perf spells it.
    pub name: String,
    /// Mean period, in units of `unit`.
    pub period: u64,
    /// Unit of the period: `cycles`, `ns` or `events`.
    pub unit: String,
}

/// One procedure and its sampled or executed instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcedurePlaces {
    /// Linkage (mangled) name.
    pub procedure: String,
    /// Demangled name, as the source code spells it.
    pub demangled: String,
    /// Path of the image.
    pub image: String,
    /// Id of the image.
    pub build_id: String,
    /// Image address of the first byte; 0 if no symbol covers the samples.
    pub address: u64,
    /// Image address of the image's first byte: 0 except for executables at fixed addresses.
    pub image_base: u64,
    /// Image address minus offset in the file, for all addresses of the procedure; 0 if the image is not at hand, because
    /// addresses are offsets then.
    pub address_over_offset: u64,
    /// Source file that the procedure begins in.
    pub file: Option<String>,
    /// Line that the procedure begins at, from 1.
    pub line: Option<u32>,
    /// Instructions that were sampled or executed, by ascending address.
    pub instructions: Vec<InstructionPlace>,
}

/// Samples and executions of one instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct InstructionPlace {
    /// Image address, as the image's headers and debug information spell it; an offset if the image is not at hand.
    pub address: u64,
    /// Samples of each of [`Places::events`], counted at the instruction that the interrupt reported.
    pub samples: Vec<u64>,
    /// Time samples during which the instruction was at the head of the queue.
    pub head_samples: f64,
    /// Executions; `None` unless the scale is absolute.
    pub executions: Option<f64>,
    /// Inlined calls at this instruction, innermost first; the last frame is the procedure's own. Empty without debug
    /// information.
    pub frames: Vec<PlaceFrame>,
}

/// One function of a chain of inlined calls.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceFrame {
    /// Name of the function, as the source code spells it.
    pub function: Option<String>,
    /// Source file, as the debug information spells it.
    pub file: Option<String>,
    /// Line in that file, from 1.
    pub line: Option<u32>,
}
