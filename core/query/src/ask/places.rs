//! Samples by instruction, for exports.
//!
//! Input: epochs. Output: procedures with their instructions, samples, executions and inlined calls. This module knows no
//! file formats of other tools. Cost: the analysis of each procedure that matters, on all processors.

use dwell_image::{Image, ImageAddress};
use dwell_profile::{ImageOffset, ImagePlace, NamedFrame, path_to_text};

use crate::{
    Cancel, Query, QueryError,
    analyse::{
        costs::{LINES_SHARE_MIN, ProcedureCosts},
        listing::is_told,
        procedures::{ProcedureSamples, begin_of},
    },
    answer::{InstructionPlace, PlaceEvent, PlaceFrame, Places, ProcedurePlaces},
    load::{filter::wants, samples::ImageSamples, selection::Selection},
    parallel::in_parallel,
    query::View,
};

impl Query {
    /// Returns all samples by instruction, for images whose path, file name or id contains `image`.
    pub fn places(
        &self,
        epochs: &[String],
        image: &Option<String>,
        cancel: &Cancel,
    ) -> Result<Places, QueryError> {
        let view = self.view(epochs)?;
        let selection = &view.selection;
        let all = self.procedures(&view, cancel)?;
        let wanted: Vec<&ProcedureSamples> =
            all.iter().filter(|p| wants(image, &selection.images[p.image].record)).collect();
        let sampled: Vec<usize> =
            (0..selection.events.len()).filter(|&e| !selection.events[e].is_derived()).collect();
        let procedures = in_parallel(&wanted, |p| {
            cancel.check().ok()?;
            Some(self.procedure_places(&view, p, &sampled))
        });
        cancel.check()?;
        let sampled_ns: u64 = selection.epochs.iter().map(|e| e.sampled_ns()).sum();
        Ok(Places {
            epochs: selection.epochs.iter().map(|e| e.id.to_string()).collect(),
            events: sampled.iter().map(|&e| event(selection, e)).collect(),
            period_cycles: selection.period_cycles(),
            start_ns: i64::try_from(selection.epochs[0].start.as_nanosecond()).unwrap_or(0),
            duration_ns: i64::try_from(sampled_ns).unwrap_or(0),
            procedures,
            notes: selection.notes.clone(),
        })
    }

    fn procedure_places(&self, view: &View, p: &ProcedureSamples, events: &[usize]) -> ProcedurePlaces {
        let record = &view.selection.images[p.image].record;
        let found = self.store.find(record);
        let image = found.image.as_deref().ok();
        let matters = view.selection.share(&p.counts) >= LINES_SHARE_MIN;
        let costs = matters.then(|| self.costs_once(view, p)).flatten().filter(|costs| costs.image.is_some());
        let instructions = match &costs {
            Some(costs) => of_costs(&view.selection, costs, events),
            None => where_they_landed(view, p, image, events),
        };
        let first =
            p.points.first().map(|&point| view.selection.images[p.image].points.offset(point as usize));
        let named = first.filter(|_| image.is_none()).and_then(|offset| record.places.at(offset));
        // If only the profile names the places, the procedure need not begin at the first place that was sampled.
        let begins = named.is_none_or(|place| place.start.is_some() && !record.places.numbered);
        let place = p.address.and_then(|a| match image {
            Some(image) => image.procedure_line(a),
            None => begin_of(record, first?),
        });
        let first = instructions.first().map(|i| ImageAddress(i.address));
        let over = first.and_then(|a| Some(a.0.wrapping_sub(image?.offset_of(a)?.0)));
        ProcedurePlaces {
            procedure: p.name.clone(),
            demangled: p.demangled.clone(),
            image: path_to_text(&record.path).into_owned(),
            build_id: record.id.to_string(),
            address: p.address.filter(|_| begins).map_or(0, |a| a.0),
            image_base: image.and_then(|i| i.address_of(ImageOffset(0))).map_or(0, |a| a.0),
            address_over_offset: over.unwrap_or(0),
            file: place.as_ref().map(|(f, _)| f.to_string()),
            line: place.map(|(_, l)| l),
            instructions,
        }
    }
}

fn event(selection: &Selection, index: usize) -> PlaceEvent {
    let event = &selection.events[index];
    let record = selection.epochs.iter().rev().find_map(|e| e.events.get(event));
    PlaceEvent {
        name: event.name().to_owned(),
        period: record.map_or(1, |r| r.period),
        unit: record.map_or("events", |r| r.unit.name()).to_owned(),
    }
}

fn of_costs(selection: &Selection, costs: &ProcedureCosts, events: &[usize]) -> Vec<InstructionPlace> {
    let period = selection.period_cycles();
    let place = |i: usize| {
        let cost = &costs.analysis.instructions[i];
        let samples = only(&costs.samples[i], events);
        let is_told = is_told(cost.frequency_interval);
        let executions = cost.frequency.zip(period).map(|(f, p)| f * p).filter(|_| is_told);
        let is_seen = samples.iter().any(|n| *n > 0) || cost.head_samples > 0.0 || cost.frequency > Some(0.0);
        let place = |frames| InstructionPlace {
            address: costs.instructions[i].address.0,
            samples,
            head_samples: cost.head_samples,
            executions,
            frames,
        };
        let image = costs.image.as_ref().filter(|_| is_seen)?;
        Some(place(frames(image, costs.instructions[i].address)))
    };
    (0..costs.instructions.len()).filter_map(place).collect()
}

fn where_they_landed(
    view: &View,
    p: &ProcedureSamples,
    image: Option<&Image>,
    events: &[usize],
) -> Vec<InstructionPlace> {
    let ImageSamples { points, record, .. } = &view.selection.images[p.image];
    let place = |&index: &u32| {
        let offset = points.offset(index as usize);
        let address = image.and_then(|i| i.address_of(offset));
        let samples = only(points.counts(index as usize), events);
        InstructionPlace {
            address: match address {
                Some(address) => address.0,
                None if record.places.numbered => 0,
                None => offset.0,
            },
            head_samples: samples.first().copied().unwrap_or(0) as f64,
            samples,
            executions: None,
            frames: match image.zip(address) {
                Some((image, address)) => frames(image, address),
                None => record.places.at(offset).map_or_else(Vec::new, named_frames),
            },
        }
    };
    let places = p.points.iter().map(place);
    places.filter(|p| p.samples.iter().any(|n| *n > 0)).collect()
}

fn named_frames(place: &ImagePlace) -> Vec<PlaceFrame> {
    let frame = |f: &NamedFrame| PlaceFrame {
        function: Some(f.function.to_string()),
        file: f.file.as_ref().map(|f| f.to_string()),
        line: f.line,
    };
    place.frames.iter().map(frame).collect()
}

fn only(counts: &[u64], events: &[usize]) -> Vec<u64> {
    events.iter().map(|&e| counts.get(e).copied().unwrap_or(0)).collect()
}

fn frames(image: &Image, address: ImageAddress) -> Vec<PlaceFrame> {
    let frame = |f: dwell_image::Frame| PlaceFrame {
        function: f.function,
        file: f.file.map(|f| f.to_string()),
        line: f.line.filter(|l| *l > 0),
    };
    image.frames(address).into_iter().map(frame).collect()
}
