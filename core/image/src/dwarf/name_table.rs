//! Names of the functions of a unit.

use std::sync::OnceLock;

use crate::demangle::demangle;

/// Names of functions. Each one is stored once and demangled on first use.
#[derive(Default)]
pub(crate) struct NameTable {
    names: Vec<(Box<str>, OnceLock<Box<str>>)>,
}

impl NameTable {
    pub(crate) fn add(&mut self, name: &str) -> u32 {
        self.names.push((name.into(), OnceLock::new()));
        (self.names.len() - 1) as u32
    }

    /// Returns the number of bytes of the names. Demangling adds about as much again.
    pub(crate) fn memory_bytes(&self) -> usize {
        let names = self.names.iter().map(|(name, _)| 2 * name.len()).sum::<usize>();
        names + self.names.capacity() * size_of::<(Box<str>, OnceLock<Box<str>>)>()
    }

    pub(crate) fn linkage(&self, index: u32) -> &str {
        &self.names[index as usize].0
    }

    pub(crate) fn demangled(&self, index: u32) -> &str {
        let (name, demangled) = &self.names[index as usize];
        demangled.get_or_init(|| demangle(name).into())
    }
}
