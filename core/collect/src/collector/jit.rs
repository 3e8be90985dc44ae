//! Generated code: samples of it wait until their names are known.
//!
//! Enters: samples of anonymous code, each with the address space it ran in. Leaves: counts at offsets of the application's
//! image, whose symbols name them. Never here: a name of another process's code, or of other code that was at the address
//! before or after. Code belongs to an address space. Processes of one program may have different code at one address. A
//! child has its parent's code and names until it writes its own, and an exec ends both.
//!
//! Names are looked up repeatedly while a process is sampled, because its compiler may reuse addresses. If an address got
//! another name between two lookups, samples of that time are counted as uncertain, without a name.

use std::{
    collections::hash_map::Entry,
    path::Path,
    time::{Duration, Instant},
};

use dwell_attribution::{CodeId, ExecutionId, ImageIndex, Mapping};
use dwell_profile::{CountedEvent, Pid, VirtualAddress};
use rustc_hash::FxHashSet;

use super::{
    attribution::{Attribution, SampleContext},
    counts::{SampleCounts, Slot},
    generated_code::{Code, Waiting},
    jit_layout::JitLayout,
};
use crate::host::{
    Host,
    code_names::{CodeName, NamesWindow},
};

/// Shortest time between two lookups of names for sampled code.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The reciprocal of the largest share of time that lookups may take.
const LOOK_PART: u32 = 200;
/// Most addresses of a process that are remembered to be named later; further ones stay without a name.
const NAMELESS_MAX: usize = 1 << 14;
/// Most ancestors whose code a child is assumed to have inherited by forks without an exec.
const ANCESTORS_MAX: usize = 4;
/// Number of waiting counts at which all names are looked up at once.
const WAITING_MAX: usize = 1 << 15;

impl<H: Host> Attribution<H> {
    /// Notes a mapping of a process. If it may contain generated code, or is a jitdump, the files with names must be found
    /// now, while the process lives.
    pub(super) fn note_mapping(&mut self, pid: Pid, mapping: &Mapping, since_ns: Option<u64>) {
        let path = self.images.path_of(mapping.target).filter(|path| is_jitdump(path)).map(Path::to_owned);
        if mapping.anonymous.is_some() || path.is_some() {
            self.note_code(pid, None, since_ns);
        }
        if let (Some(path), Some(process)) = (path, self.processes.get(pid)) {
            self.host.note_jitdump(process.code, pid, &path);
        }
    }

    /// Notes all mappings of a process that ran before we looked at it.
    pub(super) fn note_mappings(&mut self, pid: Pid) {
        let Some(space) = self.processes.get(pid).map(|p| p.space.clone()) else { return };
        space.iter().for_each(|mapping| self.note_mapping(pid, mapping, None));
    }

    fn note_code(&mut self, pid: Pid, parent: Option<CodeId>, since_ns: Option<u64>) {
        let Some(code) = self.processes.get(pid).map(|p| p.code) else { return };
        if self.generated.codes.contains_key(&code) {
            return;
        }
        self.host.note_code(code, pid, parent, since_ns);
        // What a process wrote before we first looked at it is certain.
        let known = if since_ns.is_none() { self.host.code_names_bytes(code) } else { 0 };
        self.generated.codes.insert(code, Code { known, ..Code::default() });
    }

    /// Gives a child its parent's code, and the names written until now.
    pub(super) fn inherit_code(&mut self, pid: Pid, parent_pid: Pid, since_ns: u64) {
        let parent = self.processes.get(parent_pid).map(|p| p.code);
        let Some((parent, known)) = parent.and_then(|id| Some((id, self.generated.codes.get(&id)?))) else {
            return;
        };
        let mut ancestors = vec![(parent, self.host.code_names_bytes(parent))];
        ancestors.extend(known.ancestors.iter().take(ANCESTORS_MAX - 1));
        self.note_code(pid, Some(parent), Some(since_ns));
        if let Some(child) = self.processes.get(pid).and_then(|p| self.generated.codes.get_mut(&p.code)) {
            child.ancestors = ancestors;
        }
    }

    /// Adds samples that will be counted when their names are known.
    pub(super) fn add_waiting(
        &mut self,
        counts: &mut SampleCounts,
        context: &SampleContext,
        event: CountedEvent,
        (code, address): (CodeId, VirtualAddress),
        count: u64,
    ) {
        let SampleContext { execution, dimensions, .. } = *context;
        self.wait_for_name(code, Waiting { address, execution, dimensions, event: Some(event) }, count);
        if self.generated.waiting >= WAITING_MAX {
            self.name_all_code(counts);
        }
    }

    /// Makes an address wait for its name.
    pub(super) fn wait_for_name(&mut self, code: CodeId, waiting: Waiting, count: u64) {
        let of_code = self.generated.codes.entry(code).or_default();
        match of_code.waiting.entry(waiting) {
            Entry::Occupied(mut known) => *known.get_mut() += count,
            Entry::Vacant(new) => {
                new.insert(count);
                self.generated.waiting += 1;
            }
        }
    }

    /// Looks up names for sampled processes if it is time.
    pub(super) fn name_code_when_due(&mut self, counts: &mut SampleCounts) {
        let began = Instant::now();
        if self.generated.waiting == 0 || self.generated.next_look.is_some_and(|next| began < next) {
            return;
        }
        let sampled = self.generated.codes.iter().filter(|(_, code)| !code.waiting.is_empty());
        let sampled: Vec<CodeId> = sampled.map(|(id, _)| *id).collect();
        sampled.into_iter().for_each(|code| self.name_code(code, counts));
        self.generated.next_look = Some(Instant::now() + LOOK_EVERY.max(began.elapsed() * LOOK_PART));
    }

    /// Looks up all names that samples wait for.
    pub(super) fn name_all_code(&mut self, counts: &mut SampleCounts) {
        let mut all: Vec<CodeId> = self.generated.codes.keys().copied().collect();
        all.sort_unstable(); // A fixed order gives the same samples the same offsets.
        all.into_iter().for_each(|code| self.name_code(code, counts));
    }

    /// Looks up names for a process that ends: its file is complete now and will soon be unreachable.
    pub(super) fn name_code_of(&mut self, pid: Pid, counts: &mut SampleCounts) {
        if let Some(code) = self.processes.get(pid).map(|p| p.code) {
            self.name_code(code, counts);
        }
    }

    fn name_code(&mut self, id: CodeId, counts: &mut SampleCounts) {
        let Some(code) = self.generated.codes.get_mut(&id) else { return };
        if code.waiting.is_empty() && code.nameless.is_empty() {
            return;
        }
        let mut waiting: Vec<(Waiting, u64)> = code.waiting.drain().collect();
        waiting.sort_unstable();
        self.generated.waiting -= waiting.len();
        let mut addresses: Vec<VirtualAddress> = waiting.iter().map(|(w, _)| w.address).collect();
        addresses.extend(&code.nameless);
        addresses.sort_unstable();
        addresses.dedup();
        let names = self.names(id, &addresses);
        let name_of = |address| addresses.binary_search(&address).map_or(&CodeName::Unknown, |at| &names[at]);
        self.name_later(id, &name_of, &waiting);
        for (sample, count) in waiting {
            self.count_named(counts, id, sample, name_of(sample.address), count);
        }
    }

    /// Returns the names of addresses from what the process has written, or else from what its ancestors had written when it
    /// was born. Later text in an ancestor's file may have been written by any process that shares the file.
    fn names(&mut self, id: CodeId, addresses: &[VirtualAddress]) -> Vec<CodeName> {
        let Some(code) = self.generated.codes.get(&id) else {
            return vec![CodeName::Unknown; addresses.len()];
        };
        let (known, ancestors) = (code.known, code.ancestors.clone());
        let (mut names, end) = self.host.code_names(id, addresses, NamesWindow { since: known, until: None });
        let writes_itself = end > 0;
        if let Some(code) = self.generated.codes.get_mut(&id) {
            code.known = end.max(known);
        }
        for (ancestor, since) in ancestors {
            let missing: Vec<VirtualAddress> = addresses
                .iter()
                .zip(&names)
                .filter(|(_, n)| **n == CodeName::Unknown)
                .map(|(a, _)| *a)
                .collect();
            if missing.is_empty() {
                break;
            }
            let until = writes_itself.then_some(since);
            let (inherited, _) = self.host.code_names(ancestor, &missing, NamesWindow { since, until });
            for (address, name) in missing.iter().zip(inherited) {
                if let Ok(at) = addresses.binary_search(address) {
                    names[at] = name;
                }
            }
        }
        names
    }

    /// Names samples that were counted without a name, if their process has written the name since.
    fn name_later<'n>(
        &mut self,
        id: CodeId,
        name_of: &dyn Fn(VirtualAddress) -> &'n CodeName,
        waiting: &[(Waiting, u64)],
    ) {
        let Some(code) = self.generated.codes.get_mut(&id).filter(|code| !code.nameless.is_empty()) else {
            return;
        };
        let named = |address: &VirtualAddress| *name_of(*address) != CodeName::Unknown;
        let named: Vec<VirtualAddress> = code.nameless.extract_if(named).collect();
        let execution = waiting
            .first()
            .map(|(sample, _)| sample.execution)
            .or_else(|| self.processes.iter_ever().find(|(_, p)| p.code == id).map(|(_, p)| p.execution));
        let Some(execution) = execution else { return };
        for address in named {
            if let CodeName::Named(symbol) = name_of(address) {
                let app = self.apps.resolve(execution).app;
                let layout = self.generated.layouts.entry(app.clone()).or_default();
                layout.place(id, symbol, address);
                let (image, new) = (self.images.jit(&app), layout.take_new());
                self.add_symbols(image, new);
            }
        }
    }

    fn count_named(
        &mut self,
        counts: &mut SampleCounts,
        id: CodeId,
        sample: Waiting,
        name: &CodeName,
        count: u64,
    ) {
        let app = self.apps.resolve(sample.execution).app;
        let (image, address) = (self.images.jit(&app), sample.address);
        let layout = self.generated.layouts.entry(app).or_default();
        let placed = match name {
            CodeName::Named(symbol) => layout.place(id, symbol, address),
            CodeName::Unknown => None,
            CodeName::Ambiguous => {
                self.generated.uncertain +=
                    if matches!(sample.event, Some(CountedEvent::Sampled(_))) { count } else { 0 };
                Some(JitLayout::place_uncertain(address))
            }
        };
        let offset = placed.unwrap_or_else(|| {
            let (offset, may_be_named) = layout.place_nameless(id, address);
            if let Some(code) =
                self.generated.codes.get_mut(&id).filter(|c| may_be_named && c.nameless.len() < NAMELESS_MAX)
            {
                code.nameless.insert(address);
            }
            offset
        });
        let new = layout.take_new();
        self.add_symbols(image, new);
        let Some(event) = sample.event else {
            self.generated.frames.insert((id, address, sample.execution), (image, offset));
            return;
        };
        let execution = self.apps.counted_as(sample.execution);
        let slot = Slot { image, execution, dimensions: sample.dimensions, event };
        counts.add(slot, offset, count);
    }

    /// Returns the place of code that runs now in its application's image, for observations that are not samples.
    pub(super) fn jit_place(&mut self, address: VirtualAddress, execution: ExecutionId) -> (ImageIndex, u64) {
        let app = self.apps.resolve(execution).app;
        (self.images.jit(&app), JitLayout::place_uncertain(address))
    }

    /// Returns the number of samples in the epoch whose names are uncertain, because code was replaced while it was sampled.
    pub(super) fn uncertain_names(&self) -> u64 {
        self.generated.uncertain
    }

    /// Forgets the code of ended processes, except code that living processes inherited.
    pub(super) fn reap_code(&mut self) {
        let live: FxHashSet<CodeId> = self.processes.iter_ever().map(|(_, p)| p.code).collect();
        let of_live = self.generated.codes.iter().filter(|(id, _)| live.contains(id));
        let ancestors: FxHashSet<CodeId> =
            of_live.flat_map(|(_, c)| c.ancestors.iter().map(|a| a.0)).collect();
        let is_needed = |id: CodeId| live.contains(&id) || ancestors.contains(&id);
        self.generated.codes.retain(|id, code| is_needed(*id) || !code.waiting.is_empty());
        self.host.forget_code(&is_needed);
    }
}

/// Returns whether a path has the form by which perf finds jitdumps: `jit-PID.dump`. They are mapped executable as a marker.
fn is_jitdump(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("jit-") && name.ends_with(".dump"))
}
