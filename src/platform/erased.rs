//! `Erased`: one value of any type. It stores small values without an allocation.
//!
//! This file has unsafe code. `Box<dyn Any>` allocates for every message, and the messaging benches show that
//! allocation as the largest part of a send. The payload of a message is built on this type.

#![allow(unsafe_code)]

use std::any::{TypeId, type_name};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::ptr::NonNull;

use crate::platform::alloc::Kept;

/// One value of any type. A value of at most 16 bytes with an alignment of at most 8 is stored inline. Any other value
/// is boxed.
///
/// It drops its value once, unless `downcast` took the value out. It is `Sync` even if its value is not, because no
/// method returns a reference to the value.
pub(crate) struct Erased {
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
    /// The caller passes the storage of an `Erased` with this vtable, calls it once, and does not read the storage
    /// afterwards.
    drop: Option<unsafe fn(&mut Storage)>,
}

impl Erased {
    #[inline]
    pub(crate) fn new<T: Send + 'static>(value: T) -> Self {
        let mut storage = Storage::uninit();
        if inline::<T>() {
            // SAFETY: `write` needs a pointer that is valid and aligned for a `T`. `inline` says that `T` fits the
            // storage in size and alignment. The storage was uninitialized, so the write overwrites no value that needs
            // a drop.
            unsafe { storage.as_mut_ptr().cast::<T>().write(value) };
        } else {
            let kept = Kept::new(value).into_raw();
            // SAFETY: `write` needs a pointer that is valid and aligned for a `NonNull<T>`. `T` is `Sized`, so that is
            // one word, and it fits the storage. The storage was uninitialized, so the write overwrites no value that
            // needs a drop.
            unsafe { storage.as_mut_ptr().cast::<NonNull<T>>().write(kept) };
        }
        Self { vtable: VTable::of::<T>(), storage }
    }

    /// Whether the value is a `T`.
    #[inline]
    pub(crate) fn is<T: 'static>(&self) -> bool {
        // Equal vtables contain equal `type_id` functions, so this case needs no call. The reverse is false: the vtable
        // of one type may exist twice.
        ptr::eq(self.vtable, VTable::of::<T>()) || self.type_id() == TypeId::of::<T>()
    }

    /// Takes the value out.
    ///
    /// # Errors
    /// Returns `self`, unchanged, if the value is not a `T`.
    #[inline]
    pub(crate) fn downcast<T: 'static>(self) -> Result<T, Self> {
        if !self.is::<T>() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        if inline::<T>() {
            // SAFETY: `read` needs a valid, aligned pointer to a `T` that is not used again. The value is a `T`, as `is`
            // found. `new` wrote it to this address, because `inline::<T>()` had the same result there. `this` is not
            // dropped or used again. The value may have been written on another thread: it is `Send`, and the transfer
            // of `self` to this thread made that write visible.
            Ok(unsafe { this.storage.as_ptr().cast::<T>().read() })
        } else {
            // SAFETY: `read` needs a valid, aligned pointer to a `NonNull<T>`. The value is a `T`, as `is` found. `new`
            // wrote the pointer to its box to this address, because `inline::<T>()` had the same result there.
            let kept = unsafe { this.storage.as_ptr().cast::<NonNull<T>>().read() };
            // SAFETY: `new` got the pointer from `Kept::<T>::into_raw`. `this` is not dropped or used again, so no
            // second `Kept` is made from it.
            Ok(unsafe { Kept::from_raw(kept) }.into_inner())
        }
    }

    /// Returns the name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        (self.vtable.type_name)()
    }

    /// Returns the function that returns the name of the type.
    pub(crate) fn type_name_fn(&self) -> fn() -> &'static str {
        self.vtable.type_name
    }

    /// Returns the id of the value's type.
    #[inline]
    pub(crate) fn type_id(&self) -> TypeId {
        (self.vtable.type_id)()
    }
}

/// Returns `value` as a `B`, if `A` and `B` are the same type. The compiler evaluates the comparison.
///
/// # Errors
/// The value, if the types differ.
#[inline]
pub(crate) fn cast<A: 'static, B: 'static>(value: A) -> Result<B, A> {
    if !same::<A, B>() {
        return Err(value);
    }
    let value = ManuallyDrop::new(value);
    // SAFETY: `read` needs a valid, aligned pointer to an initialized `B`. `A` and `B` are the same type, because their
    // ids are equal, so the pointer to `value` is one. `value` is a `ManuallyDrop` that is not used again, so it is
    // moved, not duplicated.
    Ok(unsafe { (&raw const value).cast::<B>().read() })
}

/// Whether two types are the same.
#[inline]
pub(crate) fn same<A: 'static, B: 'static>() -> bool {
    TypeId::of::<A>() == TypeId::of::<B>()
}

impl Drop for Erased {
    #[inline]
    fn drop(&mut self) {
        if let Some(drop) = self.vtable.drop {
            // SAFETY: the function needs the storage of an `Erased` with this vtable: one `new` wrote both. The storage
            // still contains the value, because `downcast` prevents this drop. It runs once, and the storage is not
            // read afterwards. If the drop of the value panics, the two fields need no drop.
            unsafe { drop(&mut self.storage) };
        }
    }
}

// `Send` and `Sync` are auto-implemented, because the fields are bytes and functions. Both are sound: `new` accepts
// only `Send` values, and a `&Erased` gives no access to the value. This fails to compile if a field removes one of
// them.
const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Erased>();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Clone, Copy)]
    #[repr(align(16))]
    struct Wide(u64);

    #[test]
    fn sixteen_bytes_are_inline_and_a_wide_alignment_is_not() {
        assert!(inline::<()>() && inline::<[u8; 16]>() && inline::<(u64, u64)>() && inline::<&str>());
        assert!(!inline::<[u8; 17]>() && !inline::<Wide>() && !inline::<String>());
        #[repr(align(16))]
        struct WideZero;
        assert!(!inline::<WideZero>());
        drop(Erased::new(WideZero));
        assert_eq!(align_of_val(&Erased::new(Wide(1)).downcast::<Wide>().ok().expect("wide")), 16);
    }

    #[test]
    fn a_value_is_cast_to_its_own_type_only() {
        assert_eq!(cast::<String, String>("same".to_owned()), Ok("same".to_owned()));
        assert_eq!(cast::<String, Box<str>>("other".to_owned()), Err("other".to_owned()));
    }
}
