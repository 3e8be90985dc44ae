//! Prints the TypeScript types of the answers that reach JavaScript, which `core/node/types.mjs` puts into `index.d.ts`.
//!
//! Enters: nothing. Leaves: one exported type for each answer and each of its parts. Never here: a type of its own.

use std::collections::BTreeMap;

use dwell_query::answer::{
    Callers, Diff, DiffFactors, EpochList, FileChanges, FileCosts, FileFunctions, Flame, HottestPaths,
    Inclusive, LineDetail, Listing, Stats, Summary, Top,
};
use ts_rs::{Config, TS, TypeVisitor};

/// Collects the declarations of types and of the types that they refer to, by name.
struct Declarations {
    config: Config,
    by_name: BTreeMap<String, String>,
}

impl TypeVisitor for Declarations {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // Types of the language have no declaration, hence no file.
        if T::output_path().is_none() || self.by_name.contains_key(&T::ident(&self.config)) {
            return;
        }
        let declaration = format!("{}export {}", T::docs().unwrap_or_default(), T::decl(&self.config));
        self.by_name.insert(T::ident(&self.config), declaration);
        T::visit_dependencies(self);
    }
}

fn main() {
    // JSON's numbers are doubles in JavaScript: exact up to 2^53.
    let config = Config::new().with_large_int("number");
    let mut all = Declarations { config, by_name: BTreeMap::new() };
    all.visit::<Callers>();
    all.visit::<Diff>();
    all.visit::<DiffFactors>();
    all.visit::<EpochList>();
    all.visit::<FileChanges>();
    all.visit::<FileCosts>();
    all.visit::<FileFunctions>();
    all.visit::<HottestPaths>();
    all.visit::<Flame>();
    all.visit::<Inclusive>();
    all.visit::<LineDetail>();
    all.visit::<Listing>();
    all.visit::<Stats>();
    all.visit::<Summary>();
    all.visit::<Top>();
    all.by_name.values().for_each(|declaration| println!("{declaration}\n"));
}
