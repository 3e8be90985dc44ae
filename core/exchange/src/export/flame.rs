//! Flame graphs as SVG, drawn by inferno (the picture is Brendan Gregg's, "The Flame Graph", CACM 2016).
//!
//! Colours tell kinds of code apart: the kernel, inlined functions, C++, the rest.

use std::collections::BTreeMap;

use dwell_query::answer::Stacks;
use inferno::flamegraph::{Direction, Options, Palette, color::MultiPalette};

use super::folded;
use crate::ExchangeError;

/// Suffix of the names of kernel functions, by which they are coloured.
pub(super) const KERNEL_MARK: &str = "_[k]";

/// Draws the call stacks. With `inverted`, the innermost frames are at the root.
pub fn flame_graph(stacks: &Stacks, inverted: bool) -> Result<Vec<u8>, ExchangeError> {
    let mut options = options(&stacks.epochs, inverted);
    options.subtitle = Some(format!(
        "{} samples of {} with a call stack, of {} samples",
        stacks.samples(),
        stacks.event.name,
        stacks.all_samples
    ));
    let several = stacks.apps.len() > 1;
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (node, path) in stacks.sampled() {
        let app = several.then(|| folded::plain(&stacks.apps[node.app as usize]));
        let frames = path.into_iter().map(|frame| annotated(stacks, frame));
        let line: Vec<String> = app.into_iter().chain(frames).collect();
        *lines.entry(line.join(";")).or_default() += node.samples;
    }
    draw(&mut options, lines)
}

/// Returns how all flame graphs of some epochs are drawn.
pub(super) fn options<'a>(epochs: &[String], inverted: bool) -> Options<'a> {
    let mut options = Options::default();
    options.title = format!("Dwell: {}", epochs.join(" + "));
    options.count_name = "samples".to_owned();
    options.colors = Palette::Multi(MultiPalette::Java);
    // The root is at the top, where a browser opens the page.
    options.direction = Direction::Inverted;
    options.reverse_stack_order = inverted;
    options.deterministic = true;
    options.hash = true;
    options
}

/// Draws folded stacks.
pub(super) fn draw(
    options: &mut Options<'_>,
    lines: BTreeMap<String, u64>,
) -> Result<Vec<u8>, ExchangeError> {
    let lines: Vec<String> = lines.into_iter().map(|(line, samples)| format!("{line} {samples}")).collect();
    let mut svg = Vec::new();
    inferno::flamegraph::from_lines(options, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| ExchangeError::Draw(error.to_string()))?;
    Ok(svg)
}

/// Returns a frame's name with the suffix by which it is coloured.
fn annotated(stacks: &Stacks, frame: u32) -> String {
    let name = folded::plain(&stacks.function(frame).name);
    match (stacks.function(frame).kernel, stacks.nodes[frame as usize].inlined) {
        (true, _) => name + KERNEL_MARK,
        (_, true) => name + "_[i]",
        _ => name,
    }
}
