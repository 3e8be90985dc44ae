//! The state of generated code: what is known of each address space, and the samples that wait for names.

use std::{sync::Arc, time::Instant};

use dwell_attribution::{CodeId, ExecutionId, ImageIndex};
use dwell_profile::{CountedEvent, VirtualAddress};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{dimensions::ValuesIndex, jit_layout::JitLayout};

/// The generated code of all processes.
#[derive(Default)]
pub(super) struct GeneratedCode {
    pub(super) codes: FxHashMap<CodeId, Code>,
    pub(super) layouts: FxHashMap<Arc<str>, JitLayout>,
    pub(super) waiting: usize,
    pub(super) next_look: Option<Instant>,
    /// Samples in the epoch whose names are uncertain.
    pub(super) uncertain: u64,
    /// Places of frames of call stacks, since they were last taken.
    pub(super) frames: FxHashMap<(CodeId, VirtualAddress, ExecutionId), (ImageIndex, u64)>,
}

/// The generated code of one address space.
#[derive(Default)]
pub(super) struct Code {
    /// Address spaces whose code was inherited, nearest first, each with the length of its text of names at the fork.
    pub(super) ancestors: Vec<(CodeId, u64)>,
    /// Length in bytes of its own text of names that was read so far.
    pub(super) known: u64,
    pub(super) waiting: FxHashMap<Waiting, u64>,
    /// Addresses of samples that were counted without a name.
    pub(super) nameless: FxHashSet<VirtualAddress>,
}

/// Key of samples that wait for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Waiting {
    pub(super) address: VirtualAddress,
    pub(super) execution: ExecutionId,
    pub(super) dimensions: ValuesIndex,
    /// What is counted at the address. `None`: nothing is; it is a frame of a call stack, whose place is wanted.
    pub(super) event: Option<CountedEvent>,
}

impl GeneratedCode {
    /// Returns the number of counts that wait for names.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Forgets what was stored because a new epoch begins.
    pub(super) fn begin_epoch(&mut self) {
        self.layouts.clear();
        self.codes.values_mut().for_each(|code| code.nameless.clear());
        self.uncertain = 0;
    }
}
