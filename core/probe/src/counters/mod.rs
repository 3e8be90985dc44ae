//! Executions of basic blocks, counted by the program itself (`record --count`).
//!
//! Enters: procedures of a running process and where their samples are. Leaves: how often each block was executed. A jump in
//! a block leads to code that increments the thread's counter and continues the block, so counting needs no payload.
//!
//! Not every block is counted: [`flow_graph`] chooses those from which all others follow, and computes those others.
//! [`place`] finds where in a block a counter fits, [`flags`] whether it may change the flags there, and [`copy`] is what
//! runs. [`procedure`] puts that together and [`attached`]
//! does it in a process. Never here: when to count.

pub mod attached;
pub mod copy;
pub mod flags;
pub mod flow_graph;
pub mod place;
pub mod procedure;
