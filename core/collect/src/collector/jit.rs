//! The collector's part in code that was generated in memory: samples of it wait until their names are known.
//!
//! Enters: samples of anonymous code, each with the address space that it ran in. Leaves: counts at offsets of the application's
//! image, whose symbols name them. Never here: a name of another process's code, or of other code that was at the address
//! before or after. Code belongs to an address space: processes of one program may have different code at one address, a child
//! has its parent's code and names until it writes its own, and an execution ends both.
//!
//! Names are looked up again and again while a process is sampled, since its compiler may reuse addresses: of an address that got
//! another name between two looks, samples of that time are counted as uncertain, without a name.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use dwell_attribution::{CodeId, ExecutionId, ImageIndex, Mapping};
use dwell_profile::{CountedEvent, Pid};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Collector, ValuesIndex, jit_layout::JitLayout};
use crate::{
    code_names::{CodeName, NamesWindow},
    host::Host,
};

/// Names of code that is sampled are looked up no more often than that …
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// … and no more than this part of the time is spent on it.
const LOOK_PART: u32 = 200;
/// Addresses of a process that wait for a name: beyond, they stay without one.
const NAMELESS_MAX: usize = 1 << 14;
/// A child's code may be of so many ancestors that forked without executing anything.
const ANCESTORS_MAX: usize = 4;
/// More samples that wait for their names than that are looked up now.
const WAITING_MAX: usize = 1 << 15;

/// Code of all processes that generate some.
#[derive(Default)]
pub(super) struct Jit {
    codes: FxHashMap<CodeId, Code>,
    layouts: FxHashMap<Arc<str>, JitLayout>,
    waiting: usize,
    next_look: Option<Instant>,
    /// Samples in the epoch whose names are not certain.
    uncertain: u64,
}

/// Code of one address space.
#[derive(Default)]
struct Code {
    /// Who it was inherited of, the nearest first, and how long their texts of names were then.
    ancestors: Vec<(CodeId, u64)>,
    /// Its own text of names was read so far.
    known: u64,
    waiting: FxHashMap<Waiting, u64>,
    /// Addresses of samples that were counted without a name.
    nameless: FxHashSet<u64>,
}

/// Samples that wait for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Waiting {
    address: u64,
    execution: ExecutionId,
    dimensions: ValuesIndex,
    event: CountedEvent,
}

impl Jit {
    /// Sorts of samples that wait for their names.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Forgets what was stored: a new epoch begins.
    pub(super) fn begin_epoch(&mut self) {
        self.layouts.clear();
        self.codes.values_mut().for_each(|code| code.nameless.clear());
        self.uncertain = 0;
    }
}

impl<H: Host> Collector<H> {
    /// A process mapped something: where that may be generated code, or what names such code, that must be found now, while the
    /// process lives.
    pub(super) fn note_mapping(&mut self, pid: Pid, mapping: &Mapping, since_ns: Option<u64>) {
        let path = self.images.path_of(mapping.target).filter(|path| is_jitdump(path)).map(Path::to_owned);
        if mapping.anonymous.is_some() || path.is_some() {
            self.note_code(pid, None, since_ns);
        }
        if let (Some(path), Some(process)) = (path, self.processes.get(pid)) {
            self.host.note_jitdump(process.code, pid, &path);
        }
    }

    /// Notes all mappings that a process had before we looked at it.
    pub(super) fn note_mappings(&mut self, pid: Pid) {
        let Some(space) = self.processes.get(pid).map(|p| p.space.clone()) else { return };
        space.iter().for_each(|mapping| self.note_mapping(pid, mapping, None));
    }

    fn note_code(&mut self, pid: Pid, parent: Option<CodeId>, since_ns: Option<u64>) {
        let Some(code) = self.processes.get(pid).map(|p| p.code) else { return };
        if self.jit.codes.contains_key(&code) {
            return;
        }
        self.host.note_code(code, pid, parent, since_ns);
        // Of one that ran before we looked, what it had written by then is certain.
        let known = if since_ns.is_none() { self.host.code_names_bytes(code) } else { 0 };
        self.jit.codes.insert(code, Code { known, ..Code::default() });
    }

    /// A child has its parent's code, and its names as of now.
    pub(super) fn inherit_code(&mut self, pid: Pid, parent_pid: Pid, since_ns: u64) {
        let parent = self.processes.get(parent_pid).map(|p| p.code);
        let Some((parent, known)) = parent.and_then(|id| Some((id, self.jit.codes.get(&id)?))) else {
            return;
        };
        let mut ancestors = vec![(parent, self.host.code_names_bytes(parent))];
        ancestors.extend(known.ancestors.iter().take(ANCESTORS_MAX - 1));
        self.note_code(pid, Some(parent), Some(since_ns));
        if let Some(child) = self.processes.get(pid).and_then(|p| self.jit.codes.get_mut(&p.code)) {
            child.ancestors = ancestors;
        }
    }

    /// Counts samples once their names are known.
    pub(super) fn add_waiting(
        &mut self,
        code: CodeId,
        address: u64,
        execution: ExecutionId,
        event: CountedEvent,
        count: u64,
    ) {
        let waiting = Waiting { address, execution, dimensions: self.dimensions.current(), event };
        let of_code = self.jit.codes.entry(code).or_default();
        let known = of_code.waiting.entry(waiting).or_insert(0);
        self.jit.waiting += usize::from(*known == 0);
        *known += count;
        if self.jit.waiting >= WAITING_MAX {
            self.name_all_code();
        }
    }

    /// Looks names up of processes that were sampled, where it is time.
    pub fn name_code_when_due(&mut self) {
        let began = Instant::now();
        if self.jit.waiting == 0 || self.jit.next_look.is_some_and(|next| began < next) {
            return;
        }
        let sampled = self.jit.codes.iter().filter(|(_, code)| !code.waiting.is_empty());
        let sampled: Vec<CodeId> = sampled.map(|(id, _)| *id).collect();
        sampled.into_iter().for_each(|code| self.name_code(code));
        self.jit.next_look = Some(Instant::now() + LOOK_EVERY.max(began.elapsed() * LOOK_PART));
    }

    /// Looks all names up that samples wait for.
    pub(super) fn name_all_code(&mut self) {
        let mut all: Vec<CodeId> = self.jit.codes.keys().copied().collect();
        all.sort_unstable(); // So that the same samples stand at the same offsets.
        all.into_iter().for_each(|code| self.name_code(code));
    }

    /// A process ends: what it wrote is complete now, and soon out of reach.
    pub(super) fn name_code_of(&mut self, pid: Pid) {
        if let Some(code) = self.processes.get(pid).map(|p| p.code) {
            self.name_code(code);
        }
    }

    fn name_code(&mut self, id: CodeId) {
        let Some(code) = self.jit.codes.get_mut(&id) else { return };
        if code.waiting.is_empty() && code.nameless.is_empty() {
            return;
        }
        let mut waiting: Vec<(Waiting, u64)> = code.waiting.drain().collect();
        waiting.sort_unstable();
        self.jit.waiting -= waiting.len();
        let mut addresses: Vec<u64> = waiting.iter().map(|(w, _)| w.address).collect();
        addresses.extend(&code.nameless);
        addresses.sort_unstable();
        addresses.dedup();
        let names = self.names(id, &addresses);
        let name_of = |address| addresses.binary_search(&address).map_or(&CodeName::Unknown, |at| &names[at]);
        self.name_later(id, &name_of, &waiting);
        for (sample, count) in waiting {
            self.count_named(id, sample, name_of(sample.address), count);
        }
    }

    /// The names of addresses, by what their process has written, else by what its ancestors had when it was born. What
    /// others wrote behind that may be of any of them.
    fn names(&mut self, id: CodeId, addresses: &[u64]) -> Vec<CodeName> {
        let Some(code) = self.jit.codes.get(&id) else { return vec![CodeName::Unknown; addresses.len()] };
        let (known, ancestors) = (code.known, code.ancestors.clone());
        let (mut names, end) = self.host.code_names(id, addresses, NamesWindow { since: known, until: None });
        let writes_itself = end > 0;
        if let Some(code) = self.jit.codes.get_mut(&id) {
            code.known = end.max(known);
        }
        for (ancestor, since) in ancestors {
            let missing: Vec<u64> = addresses
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

    /// Samples that were counted without a name get the name that their process has written since.
    fn name_later<'n>(
        &mut self,
        id: CodeId,
        name_of: &dyn Fn(u64) -> &'n CodeName,
        waiting: &[(Waiting, u64)],
    ) {
        let Some(code) = self.jit.codes.get_mut(&id).filter(|code| !code.nameless.is_empty()) else { return };
        let named = |address: &u64| *name_of(*address) != CodeName::Unknown;
        let named: Vec<u64> = code.nameless.extract_if(named).collect();
        let execution = waiting
            .first()
            .map(|(sample, _)| sample.execution)
            .or_else(|| self.processes.iter_ever().find(|(_, p)| p.code == id).map(|(_, p)| p.execution));
        let Some(execution) = execution else { return };
        for address in named {
            if let CodeName::Named(symbol) = name_of(address) {
                let app = self.apps.resolve(execution).app;
                let layout = self.jit.layouts.entry(app.clone()).or_default();
                layout.place(id, symbol, address);
                let (image, new) = (self.images.jit(&app), layout.take_new());
                self.add_symbols(image, new);
            }
        }
    }

    fn count_named(&mut self, id: CodeId, sample: Waiting, name: &CodeName, count: u64) {
        let app = self.apps.resolve(sample.execution).app;
        let (image, address) = (self.images.jit(&app), sample.address);
        let layout = self.jit.layouts.entry(app).or_default();
        let placed = match name {
            CodeName::Named(symbol) => layout.place(id, symbol, address),
            CodeName::Unknown => None,
            CodeName::Ambiguous => {
                self.jit.uncertain +=
                    if matches!(sample.event, CountedEvent::Sampled(_)) { count } else { 0 };
                Some(JitLayout::place_uncertain(address))
            }
        };
        let offset = placed.unwrap_or_else(|| {
            let (offset, may_be_named) = layout.place_nameless(id, address);
            if let Some(code) =
                self.jit.codes.get_mut(&id).filter(|c| may_be_named && c.nameless.len() < NAMELESS_MAX)
            {
                code.nameless.insert(address);
            }
            offset
        });
        let new = layout.take_new();
        self.add_symbols(image, new);
        let execution = self.apps.counted_as(sample.execution);
        self.add_with(sample.dimensions, offset, image, execution, sample.event, count);
    }

    /// Returns the place of code that runs now in its application's image, for observations that are no samples.
    pub(super) fn jit_place(&mut self, address: u64, execution: ExecutionId) -> (ImageIndex, u64) {
        let app = self.apps.resolve(execution).app;
        (self.images.jit(&app), JitLayout::place_uncertain(address))
    }

    /// Samples of the epoch whose names are not certain, since their code was replaced while it was sampled.
    pub fn uncertain_names(&self) -> u64 {
        self.jit.uncertain
    }

    /// Forgets code of processes that are gone, but for those that others inherited of.
    pub(super) fn reap_code(&mut self) {
        let live: FxHashSet<CodeId> = self.processes.iter_ever().map(|(_, p)| p.code).collect();
        let of_live = self.jit.codes.iter().filter(|(id, _)| live.contains(id));
        let ancestors: FxHashSet<CodeId> =
            of_live.flat_map(|(_, c)| c.ancestors.iter().map(|a| a.0)).collect();
        let is_needed = |id: CodeId| live.contains(&id) || ancestors.contains(&id);
        self.jit.codes.retain(|id, code| is_needed(*id) || !code.waiting.is_empty());
        self.host.forget_code(&is_needed);
    }
}

/// The marker by which perf finds these files: `jit-PID.dump`, mapped executable.
fn is_jitdump(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("jit-") && name.ends_with(".dump"))
}
