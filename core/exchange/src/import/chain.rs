//! Splits a call chain of perf into the addresses of the kernel and of the user's code.
//!
//! Enters: the words of `PERF_SAMPLE_CALLCHAIN`: addresses, innermost first, with a marker before each part. Leaves: the
//! addresses of both parts, and what a reader must know of the rest. Never here: what an address belongs to.
//!
//! The markers: `enum perf_callchain_context` in `include/uapi/linux/perf_event.h` of Linux. The first address of a part is that
//! of an instruction; the others are return addresses.

use dwell_profile::VirtualAddress;

use super::sample::Words;

/// Words from this one on are markers.
const MARKERS_FROM: u64 = -4095_i64 as u64;
const KERNEL: u64 = -128_i64 as u64;
const USER: u64 = -512_i64 as u64;
/// The user's part follows in a record of its own (Linux 6.19).
const USER_DEFERRED: u64 = -640_i64 as u64;

/// The parts of a call chain.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The addresses of the kernel.
    pub kernel: Vec<VirtualAddress>,
    /// The addresses of the user's code.
    pub user: Vec<VirtualAddress>,
    /// Whether there is a part of the user's, even if it is empty.
    pub has_user: bool,
    /// Whether the user's part is in another record.
    pub is_deferred: bool,
    /// Whether a part belongs to a guest or a hypervisor, or to something that we do not know.
    pub has_others: bool,
}

impl Chain {
    /// Replaces the contents by those of a chain. Addresses before the first marker belong to the kernel if they are in its
    /// half of the address space.
    pub fn read(&mut self, words: Words<'_>) {
        self.kernel.clear();
        self.user.clear();
        (self.has_user, self.is_deferred, self.has_others) = (false, false, false);
        let mut part = None;
        for word in words.iter() {
            if word >= MARKERS_FROM {
                self.has_user |= word == USER;
                self.is_deferred |= word == USER_DEFERRED;
                self.has_others |= ![KERNEL, USER, USER_DEFERRED].contains(&word);
                part = Some(word);
                continue;
            }
            let address = VirtualAddress(word);
            match part {
                Some(KERNEL) => self.kernel.push(address),
                Some(USER) => self.user.push(address),
                // A cookie that names the other record, or addresses of a guest.
                Some(_) => {}
                None if word >> 63 == 1 => self.kernel.push(address),
                None => {
                    self.has_user = true;
                    self.user.push(address);
                }
            }
        }
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        self.kernel.len() + self.user.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[u64]) -> Chain {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut chain = Chain::default();
        chain.read(Words::new(&bytes, true));
        chain
    }

    #[test]
    fn markers_separate_the_parts() {
        let chain = read(&[KERNEL, 1 << 63, 2 << 62 | 7, USER, 4, 5]);
        let kernel = [1 << 63, 2 << 62 | 7].map(VirtualAddress);
        assert_eq!((&chain.kernel[..], &chain.user[..]), (&kernel[..], &[4, 5].map(VirtualAddress)[..]));
        assert!(chain.has_user && !chain.is_deferred && !chain.has_others);
        assert_eq!(
            read(&[1 << 63, 9]),
            Chain {
                kernel: vec![kernel[0]],
                user: vec![VirtualAddress(9)],
                has_user: true,
                ..Chain::default()
            }
        );
        let guest = read(&[-2560_i64 as u64, 7, USER]);
        assert_eq!(guest, Chain { has_user: true, has_others: true, ..Chain::default() });
        let deferred = read(&[KERNEL, 1 << 63, USER_DEFERRED, 77]);
        assert_eq!(deferred, Chain { kernel: vec![kernel[0]], is_deferred: true, ..Chain::default() });
        assert_eq!(read(&[]), Chain::default());
    }
}
