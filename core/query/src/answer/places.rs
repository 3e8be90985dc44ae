//! Samples by instruction, with whatever tells where that is: what exports are made of.

/// Everything sampled in some epochs.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    /// Ids of the epochs that were merged.
    pub epochs: Vec<String>,
    /// The events, the one that procedures are ordered by first; none that was derived.
    pub events: Vec<PlaceEvent>,
    /// Cycles between two samples of the first event; `None` where the clock is unknown or it does not measure time.
    pub period_cycles: Option<f64>,
    /// When sampling began, in ns since 1970.
    pub start_ns: i64,
    /// How long was sampled, in ns; 0 where that is unknown.
    pub duration_ns: i64,
    /// Most samples first.
    pub procedures: Vec<ProcedurePlaces>,
    /// What one must know to read it.
    pub notes: Vec<String>,
}

impl Places {
    /// Whether the executions of any instruction are known.
    pub fn knows_executions(&self) -> bool {
        self.procedures.iter().flat_map(|p| &p.instructions).any(|i| i.executions.is_some())
    }
}

/// An event and its period.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceEvent {
    /// As perf spells it.
    pub name: String,
    /// Mean period, in `unit`.
    pub period: u64,
    /// `cycles`, `ns` or `events`.
    pub unit: String,
}

/// One procedure's places.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcedurePlaces {
    /// Linkage name.
    pub procedure: String,
    /// As the programmer wrote it.
    pub demangled: String,
    /// The image's path.
    pub image: String,
    /// Its id.
    pub build_id: String,
    /// First byte; 0 where no symbol covers it.
    pub address: u64,
    /// Address of the image's first byte, 0 except for executables at fixed addresses.
    pub image_base: u64,
    /// What addresses exceed their offsets in the image's file by; 0 where the image is not at hand: they are offsets then.
    pub address_over_offset: u64,
    /// Source file it begins in …
    pub file: Option<String>,
    /// … and the line, from 1.
    pub line: Option<u32>,
    /// Those that were sampled or executed, by ascending address.
    pub instructions: Vec<InstructionPlace>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct InstructionPlace {
    /// As the image's own headers and debug information spell it; an offset where the image is not at hand.
    pub address: u64,
    /// Samples where they landed, by [`Places::events`].
    pub samples: Vec<u64>,
    /// Time samples during which it was waited for.
    pub head_samples: f64,
    /// Executions; `None` where their scale is not absolute.
    pub executions: Option<f64>,
    /// Innermost inlined call first; the last is the procedure's own. Empty without debug information.
    pub frames: Vec<PlaceFrame>,
}

/// One call of those that were inlined into each other.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceFrame {
    /// As the source spells it.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Its line, from 1.
    pub line: Option<u32>,
}
