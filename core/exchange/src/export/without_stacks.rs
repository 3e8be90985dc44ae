//! The samples that have no call stack, where those that have one are exported apart.

use std::collections::BTreeMap;

use dwell_query::answer::{Places, Stacks};

/// Returns the places without the samples that have a call stack. A sample with a stack is also a sample of its place, so it would
/// be counted twice. If a stack's innermost address is not among the places, another place of its binary gives way, or any.
pub fn without_stacks(places: &Places, stacks: &Stacks) -> Places {
    let mut rest = places.clone();
    let Some(event) = places.events.iter().position(|event| event.name == stacks.event.name) else {
        return rest;
    };
    let mut at_address: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for node in &stacks.nodes {
        let image = stacks.functions[node.function as usize].build_id.clone();
        *at_address.entry((image, node.address)).or_default() += node.samples;
    }
    take(&mut rest, event, &mut at_address, &|image, address| (image.to_owned(), address));
    let mut in_image: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for ((image, _), samples) in at_address {
        *in_image.entry((image, 0)).or_default() += samples;
    }
    take(&mut rest, event, &mut in_image, &|image, _| (image.to_owned(), 0));
    let mut anywhere = BTreeMap::from([((String::new(), 0), in_image.into_values().sum())]);
    take(&mut rest, event, &mut anywhere, &|_, _| (String::new(), 0));
    rest
}

/// Takes samples of an event off the places, as many of each key as there are, and leaves those for which there are none.
fn take(
    places: &mut Places,
    event: usize,
    from: &mut BTreeMap<(String, u64), u64>,
    key_of: &dyn Fn(&str, u64) -> (String, u64),
) {
    for procedure in &mut places.procedures {
        for instruction in &mut procedure.instructions {
            let Some(left) = from.get_mut(&key_of(&procedure.build_id, instruction.address)) else {
                continue;
            };
            let taken = (*left).min(instruction.samples[event]);
            instruction.samples[event] -= taken;
            *left -= taken;
        }
    }
}
