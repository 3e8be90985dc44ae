//! Request `listing`: one procedure, instruction by instruction.

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

    fn why_none(&self, view: &View, procedure: &ProcedureSamples) -> String {
        match &self.store.find(&view.selection.images[procedure.image].record).image {
            Err(why) => why.clone(),
            Ok(_) => "no symbol covers these samples".to_owned(),
        }
    }
}
