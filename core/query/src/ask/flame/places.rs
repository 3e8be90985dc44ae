//! Where the functions of a flame graph are: source file and line, and the id by which other requests name them.
//!
//! Input: named call stacks. Output: places of functions. Cost: one look-up for each function.

use dwell_image::{Image, ImageAddress};
use dwell_profile::ImageRecord;
use rustc_hash::FxHashMap;

use super::{Named, View};
use crate::{
    Cancel, Query, QueryError,
    answer::{FlameFunction, FlameKind, StackFunction, StackNode, Stacks},
};

/// Fills in file, line and id of functions. `names` has the functions in the same order.
pub fn find(
    query: &Query,
    view: &View,
    all: &[Stacks],
    names: &[Named],
    functions: &mut [FlameFunction],
    cancel: &Cancel,
) -> Result<(), QueryError> {
    let records: FxHashMap<String, &ImageRecord> =
        view.selection.images.iter().map(|image| (image.record.id.to_string(), &image.record)).collect();
    let mut ids: FxHashMap<(&str, &str), &str> = FxHashMap::default();
    for procedure in query.procedures(view, cancel)? {
        let image = view.selection.images[procedure.image].record.id.as_str();
        // The procedure with the most samples comes first.
        ids.entry((image, procedure.demangled.as_str())).or_insert(&procedure.id);
    }
    // A frame that is not inlined finds more than one that is.
    let mut frames: FxHashMap<&StackFunction, &StackNode> = FxHashMap::default();
    for stacks in all {
        for node in &stacks.nodes {
            let known = frames.entry(&stacks.functions[node.function as usize]).or_insert(node);
            if known.inlined && !node.inlined {
                *known = node;
            }
        }
    }
    for ((kind, name), function) in names.iter().zip(functions) {
        cancel.check()?;
        let Some(node) = frames.get(name).filter(|_| *kind == FlameKind::Function) else { continue };
        function.id = ids.get(&(name.build_id.as_str(), name.name.as_str())).map(|id| (*id).to_owned());
        let found = records.get(&name.build_id).map(|record| query.store.find(record));
        let Some(image) = found.as_ref().and_then(|found| found.image.as_ref().ok()) else { continue };
        if let Some((file, line)) = begin(image, name, node) {
            (function.file, function.line) = (Some(file), line);
        }
    }
    Ok(())
}

/// Returns file and line where a function begins, given one of its frames.
fn begin(image: &Image, function: &StackFunction, node: &StackNode) -> Option<(String, Option<u32>)> {
    let address = ImageAddress(node.address);
    if !node.inlined {
        let (file, line) = image.procedure_line(image.procedure_at(address)?.address)?;
        return Some((file.to_string(), Some(line)));
    }
    let frames = image.frames(address);
    let at = frames.iter().position(|frame| frame.function.as_ref() == Some(&function.name))?;
    // The same inlined calls, with the lines of their declarations.
    let declared =
        image.compiled_frames(address).get(at).map(|frame| frame.start_line).filter(|line| *line > 0);
    Some((frames[at].file.as_ref()?.to_string(), declared.or(frames[at].line)))
}
