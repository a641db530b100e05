//! `Payload`: one value of any type. It stores small values without an allocation.
//!
//! This file has unsafe code. `Box<dyn Any>` allocates for every message, and the messaging benches show that
//! allocation as the largest part of a send. This module does not depend on mailboxes or pids.

#![allow(unsafe_code)]

use std::any::{TypeId, type_name};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::{fmt, ptr};

use crate::platform::alloc::Kept;

/// One message of any type. A value of at most 16 bytes with an alignment of at most 8 is stored inline. Any other
/// value is boxed.
///
/// A `Payload` takes 24 bytes (20 on some 32-bit targets), and so does an `Option<Payload>`. It drops its value once,
/// unless `downcast` took the value out.
///
/// Payloads do not nest: `Payload::new` of a payload returns that payload. Therefore, a payload that passes through
/// generic code still contains the value of its sender. For the same reason, each payload counts as a `Payload`:
/// `is::<Payload>()` is true, and `downcast::<Payload>()` returns the payload unchanged.
///
/// It is `Sync` even if its value is not, because no method returns a reference to the value.
pub struct Payload {
    /// The type of the value. `new` writes it together with `storage`, and neither changes afterwards.
    vtable: &'static VTable,
    /// The value itself, or the pointer to its box: `vtable` tells which.
    storage: Storage,
}

/// 16 bytes for any value. `MaybeUninit` preserves padding and the provenance of pointers when it is moved.
type Storage = MaybeUninit<[u64; 2]>;

/// The operations on a value whose static type is unknown.
struct VTable {
    // These are functions because `TypeId::of` and `type_name` are not `const` in the oldest supported Rust version.
    type_id: fn() -> TypeId,
    type_name: fn() -> &'static str,
    /// Drops the value in a storage, and frees its box. `None` if there is nothing to do.
    ///
    /// The caller passes the storage of a payload with this vtable, calls it once, and does not read the storage
    /// afterwards.
    drop: Option<unsafe fn(&mut Storage)>,
}

impl Payload {
    /// Creates a payload that contains `value`.
    pub fn new<T: Send + 'static>(value: T) -> Self {
        let value = ManuallyDrop::new(value);
        // The compiler evaluates this branch: both ids are constants of `T`.
        if same::<T, Payload>() {
            // SAFETY: `ptr::read` needs a valid, aligned pointer to an initialized `Payload`. `T` and `Payload` are the
            // same type, because their ids are equal, so the pointer to `value` is one. `value` is a `ManuallyDrop`
            // that is not used again, so the payload is moved, not duplicated.
            return unsafe { ptr::read((&raw const value).cast::<Payload>()) };
        }
        let mut storage = Storage::uninit();
        if inline::<T>() {
            // SAFETY: `write` needs a pointer that is valid and aligned for a `T`. `inline` says that `T` fits the
            // storage in size and alignment. The storage was uninitialized, so the write overwrites no value that needs
            // a drop.
            unsafe { storage.as_mut_ptr().cast::<T>().write(ManuallyDrop::into_inner(value)) };
        } else {
            let kept = Kept::new(ManuallyDrop::into_inner(value)).into_raw();
            // SAFETY: `write` needs a pointer that is valid and aligned for a `NonNull<T>`. `T` is `Sized`, so that is
            // one word, and it fits the storage. The storage was uninitialized, so the write overwrites no value that
            // needs a drop.
            unsafe { storage.as_mut_ptr().cast::<NonNull<T>>().write(kept) };
        }
        Self { vtable: VTable::of::<T>(), storage }
    }

    /// Whether the value is a `T`.
    #[inline]
    pub fn is<T: 'static>(&self) -> bool {
        // Equal vtables contain equal `type_id` functions, so this case needs no call. The reverse is false: the vtable
        // of one type may exist twice.
        same::<T, Payload>() || ptr::eq(self.vtable, VTable::of::<T>()) || self.type_id() == TypeId::of::<T>()
    }

    /// Takes the value out.
    ///
    /// # Errors
    ///
    /// Returns the payload itself, unchanged, if its value is not a `T`.
    pub fn downcast<T: 'static>(self) -> Result<T, Payload> {
        if !self.is::<T>() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: `read` requires that the value is a `T`, which `is` checked. It requires that the payload is not
        // dropped or used again: `this` is a `ManuallyDrop` that ends here.
        Ok(unsafe { this.read() })
    }

    /// Takes the value out of an option in place, if it is a `T`: see [`downcast`](Self::downcast). Otherwise it
    /// changes nothing.
    #[inline]
    pub(crate) fn take<T: 'static>(this: &mut Option<Self>) -> Option<T> {
        let payload = this.as_ref().filter(|payload| payload.is::<T>())?;
        // SAFETY: `read` requires that the value is a `T`, which `is` checked. It requires that the payload is not
        // dropped or used again: the next line forgets it.
        let value = unsafe { payload.read() };
        std::mem::forget(this.take());
        Some(value)
    }

    /// Moves the value out.
    ///
    /// # Safety
    /// The value is a `T`, and the payload is never dropped or used again. The value may have been written on another
    /// thread: it is `Send`, and the transfer of the payload to this thread made that write visible.
    #[inline]
    unsafe fn read<T: 'static>(&self) -> T {
        if same::<T, Payload>() {
            // SAFETY: `ptr::read` needs a valid, aligned pointer to an initialized `T`. `T` and `Payload` are the same
            // type, because their ids are equal, so the pointer to `self` is one. The payload is not used again, by
            // contract.
            return unsafe { ptr::read(ptr::from_ref(self).cast::<T>()) };
        }
        if inline::<T>() {
            // SAFETY: the value is a `T`, by contract. `new` wrote it to this address, because `inline::<T>()` had the
            // same result there.
            unsafe { self.storage.as_ptr().cast::<T>().read() }
        } else {
            // SAFETY: the value is a `T`, by contract. `new` wrote the pointer to its box to this address, because
            // `inline::<T>()` had the same result there. The payload is not used again, so the box keeps one owner.
            let kept = unsafe { self.storage.as_ptr().cast::<NonNull<T>>().read() };
            // SAFETY: `new` got the pointer from `Kept::<T>::into_raw`. The payload is not used again, so no second
            // `Kept` is made from it.
            unsafe { Kept::from_raw(kept) }.into_inner()
        }
    }

    /// Returns the name of the value's type, for diagnostics: it is not unique.
    pub fn type_name(&self) -> &'static str {
        (self.vtable.type_name)()
    }

    /// Returns the id of the value's type.
    #[inline]
    pub(crate) fn type_id(&self) -> TypeId {
        (self.vtable.type_id)()
    }
}

impl Drop for Payload {
    #[inline]
    fn drop(&mut self) {
        if let Some(drop) = self.vtable.drop {
            // SAFETY: the function needs the storage of a payload with this vtable: one `new` wrote both. The storage
            // still contains the value, because `downcast` and `take` prevent this drop. It runs once, and the storage
            // is not read afterwards. If the drop of the value panics, the two fields need no drop.
            unsafe { drop(&mut self.storage) };
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({})", self.type_name())
    }
}

// `Send` and `Sync` are auto-implemented, because the fields are bytes and functions. Both are sound: `new` accepts
// only `Send` values, and a `&Payload` gives no access to the value. This fails to compile if a field removes one of
// them.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Payload>();
    // One pointer and 16 bytes. On some 32-bit targets, the `u64`s of the storage have an alignment of 4, and the size
    // is 20 bytes.
    assert!(size_of::<Payload>() <= 24 && size_of::<Option<Payload>>() == size_of::<Payload>());
    assert!(size_of::<Payload>() == 24 || size_of::<usize>() < 8);
};

impl VTable {
    #[inline]
    const fn of<T: 'static>() -> &'static Self {
        &const {
            VTable {
                type_id: TypeId::of::<T>,
                type_name: type_name::<T>,
                drop: match (inline::<T>(), std::mem::needs_drop::<T>()) {
                    (true, false) => None,
                    (true, true) => Some(drop_inline::<T>),
                    (false, _) => Some(drop_boxed::<T>),
                },
            }
        }
    }
}

/// Drops an inline value.
///
/// # Safety
///
/// `inline::<T>()` is true, the storage contains a `T`, and the storage is not read afterwards.
unsafe fn drop_inline<T>(storage: &mut Storage) {
    // SAFETY: `drop_in_place` needs a valid, aligned pointer to a `T` that is not used afterwards. The storage contains
    // a `T`, and is not read afterwards, also if this panics: both by contract. The `&mut` reference is unique, so no
    // other thread accesses the value meanwhile.
    unsafe { storage.as_mut_ptr().cast::<T>().drop_in_place() };
}

/// Drops a boxed value, and frees its box.
///
/// # Safety
///
/// `inline::<T>()` is false, the storage contains the pointer of a `Kept<T>`, and the storage is not read afterwards.
unsafe fn drop_boxed<T>(storage: &mut Storage) {
    // SAFETY: `read` needs a valid, aligned pointer to a `NonNull<T>`. The storage contains one at this address, by
    // contract.
    let kept = unsafe { storage.as_mut_ptr().cast::<NonNull<T>>().read() };
    // SAFETY: the pointer came from `Kept::<T>::into_raw`. The storage is not read again, so this is the only `Kept`
    // that is made from it. A panic in the drop of the value still frees the memory: `Kept` guarantees that.
    drop(unsafe { Kept::from_raw(kept) });
}

/// Whether a `T` is stored without a box.
const fn inline<T>() -> bool {
    size_of::<T>() <= size_of::<Storage>() && align_of::<T>() <= align_of::<Storage>()
}

#[inline]
fn same<A: 'static, B: 'static>() -> bool {
    TypeId::of::<A>() == TypeId::of::<B>()
}

#[cfg(test)]
mod tests {
    use std::num::Wrapping;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::platform::random::Rng;
    use crate::platform::sync::Arc;
    use crate::platform::sync::atomic::AtomicUsize;
    use crate::platform::sync::atomic::Ordering::Relaxed;

    /// Counts its drops. `N` is its size in words, in addition to the counter.
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

    #[test]
    fn sixteen_bytes_are_inline_and_a_wide_alignment_is_not() {
        assert!(inline::<()>() && inline::<[u8; 16]>() && inline::<(u64, u64)>() && inline::<&str>());
        assert!(!inline::<[u8; 17]>() && !inline::<Wide>() && !inline::<String>());
        #[repr(align(16))]
        struct WideZero;
        assert!(!inline::<WideZero>());
        drop(Payload::new(WideZero));
        assert_eq!(align_of_val(&Payload::new(Wide(1)).downcast::<Wide>().expect("wide")), 16);
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
        let payload = payload.downcast::<Payload>().expect("every payload is one");
        assert_eq!(count.load(Relaxed), 0);
        drop(payload.downcast::<RefCounted<1>>().expect("flat"));
        assert_eq!(count.load(Relaxed), 1);
        assert_eq!(Payload::new(Payload::new(5_u8)).downcast::<u8>().expect("flat"), 5);
    }

    #[test]
    fn a_panic_in_the_values_drop_drops_nothing_twice() {
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
    fn payloads_cross_threads() {
        // A `Cell` is `Send` and not `Sync`; its payload is both.
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
    fn random_moves_balance() {
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
