//! Request `listing`: one procedure, instruction by instruction.

use dwell_profile::Epoch;

use crate::{
    Cancel, Query, QueryError, SampleFilter,
    analyse::{listing, procedure_names, procedures::ProcedureSamples},
    answer::Listing,
    query::View,
};

impl Query {
    /// Returns one procedure, instruction by instruction; `name` is `NAME` or `IMAGE:NAME`.
    pub fn listing(&self, epochs: &[String], name: &str, cancel: &Cancel) -> Result<Listing, QueryError> {
        self.listing_of(epochs, &SampleFilter::default(), name, cancel)
    }

    /// Does the same as [`Query::listing`] for the samples that `filter` takes.
    pub fn listing_of(
        &self,
        epochs: &[String],
        filter: &SampleFilter,
        name: &str,
        cancel: &Cancel,
    ) -> Result<Listing, QueryError> {
        let view = self.view_of(epochs, filter)?;
        let sampled = self.procedures(&view, cancel)?;
        let procedure = procedure_names::by_name(&view.selection, &self.store, sampled, name)?;
        cancel.check()?;
        // Of one application alone, bursts have times.
        if view.selection.bursts.has_times_of_several
            && let Some(app) = view.selection.programs.sole(procedure.image)
        {
            let of_app = SampleFilter { app: Some(app.to_owned()), ..filter.clone() };
            return self.listing_of(epochs, &of_app, name, cancel);
        }
        let Some(costs) = self.costs_or_places(&view, &procedure) else {
            return Err(QueryError::NoInstructions {
                name: name.to_owned(),
                why: self.why_none(&view, &procedure),
            });
        };
        let mut listing = listing::listing(&view.selection, &procedure, &costs);
        let record = &view.selection.images[procedure.image].record;
        listing::add_source_lines(&mut listing, |file| self.text_as_built(&view, procedure.image, file));
        listing.notes.extend(self.store.find(record).lines_note());
        Ok(listing)
    }

    /// Returns why an analysis that a job stored is not used, if there is one.
    fn why_not_stored(&self, view: &View, procedure: &ProcedureSamples) -> Option<String> {
        if let Err(why) = self.stored_costs(view, procedure) {
            return Some(why);
        }
        let epochs = &view.selection.epochs;
        let is_stored =
            |epoch: &Epoch| self.database.stored_analyses(&epoch.id).is_ok_and(|all| !all.is_empty());
        let why = "analyses are stored of single recordings and roll-ups: name one with --epoch";
        (epochs.len() > 1 && epochs.iter().any(is_stored)).then(|| why.to_owned())
    }

    fn why_none(&self, view: &View, procedure: &ProcedureSamples) -> String {
        match &self.store.find(&view.selection.images[procedure.image].record).image {
            Err(why) => match self.why_not_stored(view, procedure) {
                Some(stored) => format!("{why}; {stored}"),
                None => why.clone(),
            },
            Ok(_) => "no symbol covers these samples".to_owned(),
        }
    }
}
