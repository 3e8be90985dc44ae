//! The analysis, feature by feature.

mod asm;
mod culprits;
mod graph;
mod hostile;
mod jump_tables;
mod schedules;
mod show;
mod truth;
