//! The general registers of x86-64, by number.

use iced_x86::Register;

/// A general register: its number in instructions, 0 (`rax`) to 15 (`r15`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct General(pub u8);

impl General {
    pub const RAX: General = General(0);
    pub const RCX: General = General(1);
    pub const RSP: General = General(4);
    pub const RBP: General = General(5);
    pub const RSI: General = General(6);
    pub const RDI: General = General(7);
    pub const R11: General = General(11);
    pub const R15: General = General(15);

    /// Returns the general register that `register` is, or is a part of; `None` if it is another kind of register.
    pub fn of(register: Register) -> Option<General> {
        let full = register.full_register();
        let number = (full as u32).checked_sub(Register::RAX as u32)?;
        (number < 16).then_some(General(number as u8))
    }

    /// Returns the whole register for the decoder's library.
    pub fn full(self) -> Register {
        const ALL: [Register; 16] = [
            Register::RAX,
            Register::RCX,
            Register::RDX,
            Register::RBX,
            Register::RSP,
            Register::RBP,
            Register::RSI,
            Register::RDI,
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        ALL[usize::from(self.0)]
    }

    /// Returns the part of the register that has the size of `like`, in bytes from its lowest one.
    pub fn sized(self, like: Register) -> Register {
        let number = u32::from(self.0);
        let first = match like.size() {
            1 => {
                // Numbers 4 to 7 without a prefix are ah to bh, so the low bytes of rsp to rdi come after them.
                let low =
                    if number < 4 { Register::AL as u32 + number } else { Register::SPL as u32 + number - 4 };
                return Register::try_from(low as usize).unwrap_or(Register::None);
            }
            2 => Register::AX as u32,
            4 => Register::EAX as u32,
            _ => return self.full(),
        };
        Register::try_from((first + number) as usize).unwrap_or(Register::None)
    }
}

/// A set of general registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterSet(pub u16);

impl RegisterSet {
    /// Every register.
    pub const ALL: RegisterSet = RegisterSet(u16::MAX);

    /// Returns the set of one register.
    pub fn one(register: General) -> RegisterSet {
        RegisterSet(1 << register.0)
    }

    pub fn contains(self, register: General) -> bool {
        self.0 & 1 << register.0 != 0
    }

    pub fn insert(&mut self, register: General) {
        self.0 |= 1 << register.0;
    }

    pub fn union(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 | other.0)
    }

    /// Returns the registers that are not in `other`.
    pub fn without(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 & !other.0)
    }

    pub fn is_subset_of(self, other: RegisterSet) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Iterates over the registers in ascending order.
    pub fn iter(self) -> impl Iterator<Item = General> {
        (0..16).map(General).filter(move |register| self.contains(*register))
    }
}

impl FromIterator<General> for RegisterSet {
    fn from_iter<I: IntoIterator<Item = General>>(registers: I) -> Self {
        let mut set = RegisterSet::default();
        registers.into_iter().for_each(|register| set.insert(register));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_registers_have_the_size_of_their_model() {
        assert_eq!(General(4).sized(Register::BL), Register::SPL);
        assert_eq!(General(3).sized(Register::R15L), Register::BL);
        assert_eq!(General(9).sized(Register::AL), Register::R9L);
        assert_eq!(General(9).sized(Register::EAX), Register::R9D);
        assert_eq!(General(9).sized(Register::AX), Register::R9W);
        assert_eq!(General(9).sized(Register::RAX), Register::R9);
        assert_eq!(General::of(Register::AH), Some(General::RAX));
        assert_eq!(General::of(Register::XMM0), None);
        assert_eq!(General::of(Register::RIP), None);
    }
}
