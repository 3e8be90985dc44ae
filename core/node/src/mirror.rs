//! From answers to the shapes that JavaScript sees: [`mirror!`] declares a shape, and converts it field by field.
//!
//! JavaScript's numbers are doubles: counts and addresses beyond 2^53 lose their low bits.

use std::collections::BTreeMap;

use dwell_query::answer;

/// A part of an answer, converted to what JavaScript sees of it.
pub trait Mirror<J> {
    /// Converts it.
    fn mirror(self) -> J;
}

/// Declares shapes that JavaScript sees, each with the name and the fields of a type of `dwell_query::answer`, or some of its
/// fields. A missing value is `null`.
macro_rules! mirror {
    () => {};
    ($(#[$attribute:meta])* pub struct $name:ident { $($body:tt)* } $($rest:tt)*) => {
        $(#[$attribute])*
        #[napi(object, use_nullable = true)]
        pub struct $name { $($body)* }
        $crate::mirror::mirror!(@convert $name { $($body)* });
        $crate::mirror::mirror!($($rest)*);
    };
    (@convert $name:ident { $($(#[$attribute:meta])* pub $field:ident: $type:ty,)* }) => {
        impl $crate::mirror::Mirror<$name> for dwell_query::answer::$name {
            fn mirror(self) -> $name {
                $name { $($field: $crate::mirror::Mirror::mirror(self.$field),)* }
            }
        }
    };
}
pub(crate) use mirror;

macro_rules! convert {
    ($($from:ty => $to:ty: |$value:ident| $converted:expr;)*) => {
        $(impl Mirror<$to> for $from {
            fn mirror(self) -> $to {
                let $value = self;
                $converted
            }
        })*
    };
}

convert! {
    f64 => f64: |n| n;
    bool => bool: |b| b;
    u32 => u32: |n| n;
    u64 => f64: |n| n as f64;
    // Rows: more than anyone counts are as many as fit.
    usize => u32: |n| u32::try_from(n).unwrap_or(u32::MAX);
    String => String: |text| text;
    &'static str => String: |text| text.to_owned();
    char => String: |letter| letter.into();
    answer::SourceState => String: |state| match state {
        answer::SourceState::Fresh => "fresh",
        answer::SourceState::Mapped => "mapped",
        answer::SourceState::Stale => "stale",
        answer::SourceState::Unchecked => "unchecked",
    }.to_owned();
}

impl<A: Mirror<J>, J> Mirror<Option<J>> for Option<A> {
    fn mirror(self) -> Option<J> {
        self.map(Mirror::mirror)
    }
}

impl<A: Mirror<J>, J> Mirror<Vec<J>> for Vec<A> {
    fn mirror(self) -> Vec<J> {
        self.into_iter().map(Mirror::mirror).collect()
    }
}

/// JavaScript's keys are text.
impl<K: ToString + Ord, A: Mirror<J>, J> Mirror<BTreeMap<String, J>> for BTreeMap<K, A> {
    fn mirror(self) -> BTreeMap<String, J> {
        self.into_iter().map(|(key, item)| (key.to_string(), item.mirror())).collect()
    }
}
