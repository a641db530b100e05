//! `Payload`: one message of any type. The module `platform::erased` stores the value, and small values need no
//! allocation.
//!
//! This module does not depend on mailboxes or pids.

use std::any::TypeId;
use std::fmt;

use crate::platform::erased::{Erased, cast, same};

/// One message of any type. A value of at most 16 bytes with an alignment of at most 8 is stored inline. Any other
/// value is boxed.
///
/// A `Payload` takes 24 bytes (20 on some 32-bit targets), and an `Option<Payload>` has the same size. When a payload
/// is dropped, the payload drops its value, unless `downcast` took the value out.
///
/// Payloads do not nest: if the argument of `Payload::new` is a payload, `Payload::new` returns that payload.
/// Therefore, a payload that passes through generic code still contains the value that the sender passed to
/// `Payload::new`. For the same reason, `is::<Payload>()` returns true for every payload, and `downcast::<Payload>()`
/// returns the payload unchanged.
///
/// A `Payload` is `Sync` even if its value is not `Sync`, because no method returns a reference to the value.
pub struct Payload(Erased);

impl Payload {
    /// Creates a payload that contains `value`.
    pub fn new<T: Send + 'static>(value: T) -> Self {
        cast(value).unwrap_or_else(|value| Self(Erased::new(value)))
    }

    /// Returns whether the value is a `T`.
    #[inline]
    pub fn is<T: 'static>(&self) -> bool {
        same::<T, Payload>() || self.0.is::<T>()
    }

    /// Takes the value out of the payload.
    ///
    /// # Errors
    ///
    /// If the value is not a `T`, returns the payload unchanged.
    pub fn downcast<T: 'static>(self) -> Result<T, Payload> {
        cast(self).or_else(|this: Self| this.0.downcast().map_err(Self))
    }

    /// If the option contains a payload with a `T`, takes the payload out of the option, and returns the `T`. If the
    /// option contains no payload with a `T`, leaves the option unchanged.
    #[inline]
    pub(crate) fn take<T: 'static>(this: &mut Option<Self>) -> Option<T> {
        this.take_if(|payload| payload.is::<T>())?.downcast().ok()
    }

    /// Returns the name of the value's type, for diagnostics. Two types may have the same name.
    pub fn type_name(&self) -> &'static str {
        self.0.type_name()
    }

    /// Returns the function that returns the name of the value's type.
    pub(crate) fn type_name_fn(&self) -> fn() -> &'static str {
        self.0.type_name_fn()
    }

    /// Returns the id of the value's type.
    #[inline]
    pub(crate) fn type_id(&self) -> TypeId {
        self.0.type_id()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({})", self.type_name())
    }
}

const _: () = {
    // The size of a `Payload` is the size of one pointer plus 16 bytes. On some 32-bit targets, the `u64`s of the
    // storage have an alignment of 4, and the size is 20 bytes.
    assert!(size_of::<Payload>() <= 24 && size_of::<Option<Payload>>() == size_of::<Payload>());
    assert!(size_of::<Payload>() == 24 || size_of::<usize>() < 8);
};

#[cfg(test)]
mod tests {
    use std::any::type_name;
    use std::num::Wrapping;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::platform::random::Rng;
    use crate::platform::sync::Arc;
    use crate::platform::sync::atomic::AtomicUsize;
    use crate::platform::sync::atomic::Ordering::Relaxed;

    /// A value that counts its drops. `N` is the size of the value in words, without the counter.
    struct RefCounted<const N: usize>(Arc<AtomicUsize>, [u64; N]);

    impl<const N: usize> Drop for RefCounted<N> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[derive(Debug, PartialEq, Clone, Copy)]
    #[repr(align(16))]
    struct Wide(u64);

    #[derive(Debug, PartialEq, Clone, Copy)]
    struct Zero;

    fn round_trip<T: Send + PartialEq + Clone + fmt::Debug + 'static>(value: T) {
        let payload = Payload::new(value.clone());
        assert!(payload.is::<T>() && !payload.is::<Wrapping<T>>());
        assert_eq!(payload.type_id(), TypeId::of::<T>());
        assert_eq!(payload.type_name(), type_name::<T>());
        assert_eq!(format!("{payload:?}"), format!("Payload({})", type_name::<T>()));
        let payload = payload.downcast::<Wrapping<T>>().expect_err("it is not wrapped");
        assert_eq!(payload.downcast::<T>().expect("it is a T"), value);
        drop(Payload::new(value));
    }

    #[test]
    fn values_of_every_size_are_returned_unchanged() {
        round_trip(());
        round_trip(Zero);
        round_trip(7_u8);
        round_trip([1_u8; 15]);
        round_trip([1_u8; 16]);
        round_trip([1_u8; 17]);
        round_trip(u128::MAX);
        round_trip((1_u64, 2_u8));
        round_trip("static");
        round_trip(String::from("boxed"));
        round_trip(Wide(3));
        round_trip([Wide(3); 9]);
        round_trip(vec![vec![1], vec![2, 3]]);
        round_trip(Some(Box::new(4)));
        round_trip([0_u64; 1000]);
    }

    fn drops<const N: usize>() {
        let count = Arc::new(AtomicUsize::new(0));
        let new = || Payload::new(RefCounted(Arc::clone(&count), [7; N]));
        let payload = new();
        assert_eq!(count.load(Relaxed), 0);
        drop(payload);
        assert_eq!(count.load(Relaxed), 1);
        let value = new().downcast::<RefCounted<N>>().expect("counted");
        assert_eq!((count.load(Relaxed), value.1), (1, [7; N]));
        drop(value);
        assert_eq!(count.load(Relaxed), 2);
        drop(new().downcast::<u8>().expect_err("no u8"));
        assert_eq!(count.load(Relaxed), 3);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn a_value_is_dropped_once() {
        drops::<0>();
        drops::<1>();
        drops::<2>();
        drops::<100>();
    }

    #[test]
    fn payloads_do_not_nest() {
        let count = Arc::new(AtomicUsize::new(0));
        let payload = Payload::new(Payload::new(Payload::new(RefCounted(Arc::clone(&count), [0; 1]))));
        assert_eq!(payload.type_id(), TypeId::of::<RefCounted<1>>());
        assert!(payload.is::<Payload>() && payload.is::<RefCounted<1>>());
        let payload = payload.downcast::<Payload>().expect("every payload is a `Payload`");
        assert_eq!(count.load(Relaxed), 0);
        drop(payload.downcast::<RefCounted<1>>().expect("flat"));
        assert_eq!(count.load(Relaxed), 1);
        assert_eq!(Payload::new(Payload::new(5_u8)).downcast::<u8>().expect("flat"), 5);
    }

    #[test]
    fn a_panic_in_the_drop_of_the_value_causes_no_second_drop() {
        struct Bomb<const N: usize>(RefCounted<0>, #[allow(dead_code)] [u64; N]);
        impl<const N: usize> Drop for Bomb<N> {
            fn drop(&mut self) {
                assert_eq!(self.0.0.load(Relaxed) % 2, 0);
                panic!("bomb");
            }
        }
        fn explode<const N: usize>() {
            let count = Arc::new(AtomicUsize::new(0));
            let payload = Payload::new(Bomb(RefCounted(Arc::clone(&count), []), [1; N]));
            assert!(catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err());
            assert_eq!((count.load(Relaxed), Arc::strong_count(&count)), (1, 1));
        }
        explode::<0>();
        explode::<1>();
        explode::<50>();
    }

    #[test]
    fn a_payload_can_be_sent_to_another_thread() {
        // A `Cell` is `Send` but not `Sync`. The payload of a `Cell` is both `Send` and `Sync`.
        let payload = Arc::new(Payload::new(std::cell::Cell::new(9)));
        let name = crate::platform::sync::thread::spawn({
            let payload = Arc::clone(&payload);
            move || payload.type_name()
        });
        assert_eq!(name.join().expect("no panic"), type_name::<std::cell::Cell<i32>>());
        let payload = Arc::into_inner(payload).expect("the thread has ended");
        let moved =
            crate::platform::sync::thread::spawn(move || payload.downcast::<std::cell::Cell<i32>>().map(|c| c.get()));
        assert_eq!(moved.join().expect("no panic").expect("a cell"), 9);
    }

    #[test]
    fn random_operations_drop_each_value_once() {
        let mut rng = Rng::seeded(24);
        let count = Arc::new(AtomicUsize::new(0));
        let (mut held, mut made) = (Vec::new(), 0);
        for turn in 0..if cfg!(miri) { 300 } else { 10_000 } {
            let shared = Arc::clone(&count);
            match rng.below(8) {
                0 => held.push(Payload::new(RefCounted(shared, [turn; 0]))),
                1 => held.push(Payload::new(RefCounted(shared, [turn; 1]))),
                2 => held.push(Payload::new(RefCounted(shared, [turn; 5]))),
                3 => held.push(Payload::new(Payload::new(RefCounted(shared, [turn; 1])))),
                _ if held.is_empty() => continue,
                kind => {
                    let at = rng.below(held.len());
                    let payload = held.swap_remove(at);
                    match kind {
                        4 => drop(payload),
                        5 => held.push(payload.downcast::<u64>().expect_err("there is none")),
                        6 => match payload.downcast::<RefCounted<1>>() {
                            Ok(value) => held.push(Payload::new(value)),
                            Err(payload) => held.push(payload),
                        },
                        _ => drop(payload.downcast::<RefCounted<5>>()),
                    }
                    continue;
                }
            }
            made += 1;
        }
        assert_eq!(count.load(Relaxed), made - held.len());
        drop(held);
        assert_eq!((count.load(Relaxed), Arc::strong_count(&count)), (made, 1));
    }
}
