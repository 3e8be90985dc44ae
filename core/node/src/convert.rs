//! From answers to the shapes that JavaScript sees: field by field, nothing decided here.

use std::collections::BTreeMap;

use dwell_query::answer;

use crate::types::*;

/// Numbers are doubles in JavaScript; counts and addresses beyond 2^53 lose their low bits.
pub fn number(n: u64) -> f64 {
    n as f64
}

fn counts(counts: answer::EventCounts) -> BTreeMap<String, f64> {
    counts.into_iter().map(|(event, n)| (event, number(n))).collect()
}

/// Each of them converted.
pub fn all<A, B: From<A>>(items: Vec<A>) -> Vec<B> {
    items.into_iter().map(B::from).collect()
}

fn by_event<A, B: From<A>>(items: BTreeMap<String, A>) -> BTreeMap<String, B> {
    items.into_iter().map(|(event, item)| (event, B::from(item))).collect()
}

/// How many rows: more than anyone counts are as many as fit.
pub fn rows(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// JavaScript's keys are text.
fn by_number(lines: BTreeMap<u32, String>) -> BTreeMap<String, String> {
    lines.into_iter().map(|(number, text)| (number.to_string(), text)).collect()
}

impl From<answer::EpochList> for EpochList {
    fn from(a: answer::EpochList) -> Self {
        EpochList { epochs: all(a.epochs), warnings: a.warnings }
    }
}

impl From<answer::EpochSummary> for EpochSummary {
    fn from(a: answer::EpochSummary) -> Self {
        EpochSummary {
            id: a.id,
            name: a.name,
            start: a.start,
            end: a.end,
            host: a.host,
            cpu: a.cpu,
            backend: a.backend,
            scope: a.scope,
            events: by_event(a.events),
            notes: a.notes,
        }
    }
}

impl From<answer::EventSummary> for EventSummary {
    fn from(a: answer::EventSummary) -> Self {
        EventSummary {
            period: number(a.period),
            unit: a.unit,
            samples: number(a.samples),
            lost: number(a.lost),
            throttled: number(a.throttled),
            unknown: number(a.unknown),
            running_share: a.running_share,
        }
    }
}

impl From<answer::Top> for Top {
    fn from(a: answer::Top) -> Self {
        Top {
            epochs: a.epochs,
            total: counts(a.total),
            rows: all(a.rows),
            omitted_rows: rows(a.omitted_rows),
            notes: a.notes,
        }
    }
}

impl From<answer::TopRow> for TopRow {
    fn from(a: answer::TopRow) -> Self {
        TopRow {
            id: a.id,
            procedure: a.procedure,
            demangled: a.demangled,
            image: a.image,
            build_id: a.build_id,
            file: a.file,
            line: a.line,
            app: a.app,
            instance: a.instance,
            samples: counts(a.samples),
            share: a.share,
            cumulative_share: a.cumulative_share,
            cycles: a.cycles,
            scale: a.scale,
            cpi: a.cpi,
            cpi_min: a.cpi_min,
            cpi_max: a.cpi_max,
            split: a.split.map(|s| CycleSplit {
                execution: s.execution,
                r#static: s.r#static,
                dynamic: s.dynamic,
            }),
        }
    }
}

impl From<answer::Listing> for Listing {
    fn from(a: answer::Listing) -> Self {
        Listing {
            schema: a.schema,
            image: ListingImage { path: a.image.path, build_id: a.image.build_id, arch: a.image.arch },
            procedure: a.procedure.into(),
            epoch: a.epoch,
            machine_model: a.machine_model,
            period: by_event(a.period),
            time_event: a.time_event,
            period_cycles: a.period_cycles,
            scale: ListingScale { kind: a.scale.kind, evidence: a.scale.evidence },
            blocks: all(a.blocks),
            instructions: all(a.instructions),
            source_lines: a.source_lines.into_iter().map(|(file, lines)| (file, by_number(lines))).collect(),
            notes: a.notes,
        }
    }
}

impl From<answer::ListingProcedure> for ListingProcedure {
    fn from(a: answer::ListingProcedure) -> Self {
        ListingProcedure {
            name: a.name,
            demangled: a.demangled,
            address: number(a.address),
            size: number(a.size),
            samples: counts(a.samples),
            share: a.share,
        }
    }
}

impl From<answer::Period> for Period {
    fn from(a: answer::Period) -> Self {
        Period { value: number(a.value), unit: a.unit }
    }
}

impl From<answer::ListingBlock> for ListingBlock {
    fn from(a: answer::ListingBlock) -> Self {
        ListingBlock {
            address: number(a.address),
            frequency: a.frequency,
            executions: a.executions,
            executions_min: a.executions_min,
            executions_max: a.executions_max,
            executions_relative: a.executions_relative,
            per_entry: a.per_entry.map(Into::into),
            confidence: a.confidence,
            cpi: a.cpi,
            cpi_min: a.cpi_min,
            cpi_max: a.cpi_max,
            best_case_cpi: a.best_case_cpi,
            successors: all(a.successors),
        }
    }
}

impl From<answer::ListingSuccessor> for ListingSuccessor {
    fn from(a: answer::ListingSuccessor) -> Self {
        ListingSuccessor {
            to: number(a.to),
            frequency: a.frequency,
            executions: a.executions,
            executions_relative: a.executions_relative,
        }
    }
}

impl From<answer::ListingPerEntry> for PerEntry {
    fn from(a: answer::ListingPerEntry) -> Self {
        PerEntry { executions: a.executions, of: a.of }
    }
}

impl From<answer::ListingInstruction> for ListingInstruction {
    fn from(a: answer::ListingInstruction) -> Self {
        ListingInstruction {
            address: number(a.address),
            text: a.text,
            file: a.file,
            line: a.line,
            samples: counts(a.samples),
            head_samples: a.head_samples,
            executions: a.executions,
            executions_min: a.executions_min,
            executions_max: a.executions_max,
            executions_relative: a.executions_relative,
            cpi: a.cpi,
            cpi_min: a.cpi_min,
            cpi_max: a.cpi_max,
            issue_cycles_min: a.issue_cycles_min,
            gain_cycles: a.gain_cycles,
            confidence: a.confidence,
            stalls: all(a.stalls),
            kernel: a.kernel.map(Into::into),
            operands: all(a.operands),
        }
    }
}

impl From<answer::ListingOperand> for ListingOperand {
    fn from(a: answer::ListingOperand) -> Self {
        ListingOperand { text: a.text, writers: a.writers.into_iter().map(number).collect() }
    }
}

impl From<answer::ListingKernel> for ListingKernel {
    fn from(a: answer::ListingKernel) -> Self {
        ListingKernel {
            cause: a.cause,
            label: a.label.to_owned(),
            letter: a.letter.into(),
            samples: number(a.samples),
            cycles: a.cycles,
        }
    }
}

impl From<answer::ListingStall> for ListingStall {
    fn from(a: answer::ListingStall) -> Self {
        ListingStall {
            kind: a.kind,
            cause: a.cause,
            label: a.label.to_owned(),
            letter: a.letter.into(),
            cycles_min: a.cycles_min,
            cycles_max: a.cycles_max,
            share_min: a.share_min,
            share_max: a.share_max,
            culprit_address: a.culprit_address.map(number),
            levels: a.levels,
            sources: all(a.sources),
        }
    }
}

impl From<answer::ListingSource> for ListingSource {
    fn from(a: answer::ListingSource) -> Self {
        ListingSource { level: a.level, part: a.part }
    }
}

impl From<answer::FileCosts> for FileCosts {
    fn from(a: answer::FileCosts) -> Self {
        FileCosts {
            epochs: a.epochs,
            source: source_state(a.source).to_owned(),
            lines: all(a.lines),
            procedures: all(a.procedures),
            stale: all(a.stale),
            programs: all(a.programs),
            notes: a.notes,
        }
    }
}

impl From<answer::StaleLine> for StaleLine {
    fn from(a: answer::StaleLine) -> Self {
        StaleLine { line: a.line, share: a.share }
    }
}

impl From<answer::Program> for Program {
    fn from(a: answer::Program) -> Self {
        Program { path: a.path, rebuilt: a.rebuilt }
    }
}

fn source_state(state: answer::SourceState) -> &'static str {
    match state {
        answer::SourceState::Fresh => "fresh",
        answer::SourceState::Mapped => "mapped",
        answer::SourceState::Stale => "stale",
        answer::SourceState::Unchecked => "unchecked",
    }
}

impl From<answer::LineCost> for LineCost {
    fn from(a: answer::LineCost) -> Self {
        LineCost {
            line: a.line,
            samples: counts(a.samples),
            share: a.share,
            cycles: a.cycles,
            seconds: a.seconds,
            scale: a.scale,
            executions: a.executions,
            executions_min: a.executions_min,
            executions_max: a.executions_max,
            per_entry: a.per_entry.map(Into::into),
            cpi: a.cpi,
            cpi_min: a.cpi_min,
            cpi_max: a.cpi_max,
            best_case_cpi: a.best_case_cpi,
            confidence: a.confidence,
            culprits: all(a.culprits),
            ties: all(a.ties),
            procedures: a.procedures,
        }
    }
}

impl From<answer::LineCulprit> for LineCulprit {
    fn from(a: answer::LineCulprit) -> Self {
        LineCulprit {
            kind: a.kind,
            cause: a.cause,
            label: a.label.to_owned(),
            cycles_min: a.cycles_min,
            cycles_max: a.cycles_max,
            share_max: a.share_max,
            file: a.file,
            line: a.line,
        }
    }
}

impl From<answer::LineTie> for LineTie {
    fn from(a: answer::LineTie) -> Self {
        LineTie {
            text: a.text,
            culprits: a.culprits.into_iter().map(rows).collect(),
            share_max: a.share_max,
            cycles_min: a.cycles_min,
            cycles_max: a.cycles_max,
        }
    }
}

impl From<answer::ProcedureCost> for ProcedureCost {
    fn from(a: answer::ProcedureCost) -> Self {
        ProcedureCost {
            id: a.id,
            demangled: a.demangled,
            line: a.line,
            samples: counts(a.samples),
            share: a.share,
            cycles: a.cycles,
            seconds: a.seconds,
            scale: a.scale,
            cpi: a.cpi,
            cpi_min: a.cpi_min,
            cpi_max: a.cpi_max,
            best_case_cpi: a.best_case_cpi,
        }
    }
}
