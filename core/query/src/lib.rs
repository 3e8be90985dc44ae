//! The façade: joins profiles, images and the analysis into plain answers, and caches what is dear.
//!
//! Enters: a database's folder and questions. Leaves: the types of [`answer`], which serialize to the documented
//! JSON. Never here: colours, widths, protocols, collection.

pub mod answer;
