//! The analysis, feature by feature.

mod asm;
mod classes;
mod counted_in_code;
mod culprits;
mod evidence;
mod evidence_in_order;
mod graph;
mod hostile;
mod jump_tables;
mod models;
mod paper;
mod pipeline;
mod properties;
mod schedules;
mod show;
mod truth;
