//! Counters in the code of programs for `dwell record --count`: what dwell-collect asks for is done by dwell-probe.

use std::io;

use dwell_collect::{CodeCounter, CodeCounts, NewCounters, ProcedureCounts, Span};
use dwell_probe::{
    counters::{
        attached::{Added, Executions, ProcedureExecutions},
        copy,
    },
    engine::Engine,
};
use dwell_profile::{Pid, VirtualAddress};

/// Counts by an engine, a process of its own that removes the counters if this one is killed.
pub struct EngineCounter(Engine);

impl EngineCounter {
    /// Starts the engine. Call it early: the engine is a copy of this process.
    pub fn start() -> io::Result<Self> {
        Engine::start().map(EngineCounter)
    }
}

impl CodeCounter for EngineCounter {
    fn tracer(&self) -> Pid {
        self.0.process()
    }

    fn attach(&mut self, pid: Pid) -> io::Result<()> {
        self.0.attach_to_count(pid)
    }

    fn count(&mut self, samples: Vec<(VirtualAddress, u64)>) -> io::Result<NewCounters> {
        self.0.count(samples).map(converted)
    }

    fn executions(&mut self) -> io::Result<Option<CodeCounts>> {
        let of =
            |counted: ProcedureExecutions| ProcedureCounts { entry: counted.entry, blocks: counted.blocks };
        let counts = |Executions { cpu_ns, procedures }| CodeCounts {
            cpu_ns,
            procedures: procedures.into_iter().map(of).collect(),
        };
        Ok(self.0.executions()?.map(counts))
    }

    fn rest(&mut self) -> io::Result<NewCounters> {
        self.0.rest().map(converted)
    }

    fn remove(&mut self) -> io::Result<()> {
        self.0.remove()
    }
}

fn converted(added: Added) -> NewCounters {
    let Added { procedures, counters, refused, spans, anchors, stopped_ns } = added;
    let of = |span: &copy::Span| Span { start: span.start, end: span.end, stands_for: span.stands_for };
    NewCounters { procedures, counters, refused, spans: spans.iter().map(of).collect(), anchors, stopped_ns }
}
