//! The flame graph of the page: its data, and the script that draws it.
//!
//! Input: the answer of the query. Output: JSON in columns, in which no name can end the element that holds it.

use dwell_query::answer::{Flame, FlameFunction};
use serde_json::{Value, json};

use super::Listed;
use crate::{
    callers::incomplete_lines,
    text::{grouped, percent},
};

/// Number of frames that are kept apart.
pub const FRAMES_MAX: usize = 200_000;

/// The section of the page with the flame graph.
pub struct FlameSection {
    /// A sentence that says which samples the graph contains.
    pub samples: String,
    /// Data of the graph, for the script.
    pub data: String,
    /// The script that draws it, in the folder `flame-graph`.
    pub script: &'static str,
    pub style: &'static str,
    pub notes: Vec<String>,
}

impl FlameSection {
    pub fn new(flame: &Flame, listed: &[Listed], known: &[String]) -> FlameSection {
        let events = flame.events.iter().map(|event| {
            format!("{} of {} samples of {}", grouped(event.samples), grouped(event.all_samples), event.name)
        });
        let mut notes: Vec<String> = flame.notes.iter().filter(|n| !known.contains(n)).cloned().collect();
        let samples = flame.events.iter().map(|event| event.samples).sum();
        notes.extend(incomplete_lines(&flame.incomplete, samples));
        if flame.merged > 0 {
            let merged = grouped(flame.merged as u64);
            notes.push(format!(
                "{merged} small frames are not kept apart: each caller has one for all of its own"
            ));
        }
        FlameSection {
            samples: format!(
                "{} have a call stack. Functions with {} of the time are analysed",
                events.collect::<Vec<_>>().join(", "),
                percent(flame.analysed_share, 1)
            ),
            data: json_for_script(&data(flame, listed)),
            script: include_str!("../../../../flame-graph/flameGraph.mjs"),
            style: include_str!("../../../../flame-graph/flameGraph.css"),
            notes,
        }
    }
}

/// Writes JSON that may stand in a `script` element: a name with `</script>` must not end it.
fn json_for_script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

fn data(flame: &Flame, listed: &[Listed]) -> Value {
    let own: Vec<u64> = flame.nodes.iter().map(|node| node.own).collect();
    let parents: Vec<i64> = flame.nodes.iter().map(|node| node.parent.map_or(-1, i64::from)).collect();
    let code = |node: &dwell_query::answer::FlameNode| match node.function {
        Some(function) => 2 * i64::from(function) + i64::from(node.inlined),
        None => -node.merged.cast_signed(),
    };
    let codes: Vec<i64> = flame.nodes.iter().map(code).collect();
    let functions: Vec<Value> = flame.functions.iter().map(|each| function(each, listed)).collect();
    let seconds = match (&flame.events[..], flame.unit.as_str()) {
        (_, "ns") => 1e-9,
        // Samples with a stack stand for those without one too.
        ([event], "samples") if event.unit == "ns" => {
            1e-9 * event.period as f64 * event.all_samples as f64 / event.samples.max(1) as f64
        }
        _ => 0.0,
    };
    json!({ "unit": flame.unit, "seconds": seconds, "functions": functions, "parents": parents, "codes": codes, "own": own })
}

fn function(each: &FlameFunction, listed: &[Listed]) -> Value {
    let section = each.id.as_ref().and_then(|id| listed.iter().position(|listed| listed.id == *id));
    let analysis = each.analysis.as_ref().map(|a| {
        let cause = |c: &dwell_query::answer::FlameCause| {
            json!({ "kind": c.kind, "cause": c.cause, "label": c.label, "shareMin": c.share_min, "shareMax": c.share_max })
        };
        let causes: Vec<Value> = a.causes.iter().map(cause).collect();
        json!({ "cpi": a.cpi, "cpiMin": a.cpi_min, "cpiMax": a.cpi_max, "execution": a.execution, "executionMin": a.execution_min,
            "executionMax": a.execution_max, "causes": causes })
    });
    json!({ "kind": each.kind, "name": each.name, "image": each.image, "own": each.own, "file": each.file, "line": each.line,
        "section": section, "analysis": analysis })
}
