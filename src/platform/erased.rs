//! `Erased`: one value of any type. Small values are stored without an allocation.
//!
//! This file has unsafe code, because `Box<dyn Any>` allocates memory for every message. In the messaging benches, this
//! allocation would be the largest part of the cost of a send. The type `Payload` consists of one `Erased`.

#![allow(unsafe_code)]

use std::any::{TypeId, type_name};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::ptr::NonNull;

use crate::platform::alloc::Kept;

/// One value of any type. A value of at most 16 bytes with an alignment of at most 8 is stored inline. Any other value
/// is boxed.
///
/// An `Erased` drops its value exactly once, unless `downcast` took the value out. An `Erased` is `Sync` even if its
/// value is not `Sync`, because no method returns a reference to the value.
pub(crate) struct Erased {
    /// The operations of the value's type. `new` writes this field together with `storage`, and neither field changes
    /// afterwards.
    vtable: &'static VTable,
    /// Either the value itself or the pointer to the box of the value. The type of the value determines which of the
    /// two is stored.
    storage: Storage,
}

/// Storage of 16 bytes for any value. A move of a `MaybeUninit` preserves padding and the provenance of pointers.
type Storage = MaybeUninit<[u64; 2]>;

/// The operations on a value whose static type is unknown.
struct VTable {
    // These fields are functions, because `TypeId::of` and `type_name` are not `const` in the oldest supported Rust
    // version.
    type_id: fn() -> TypeId,
    type_name: fn() -> &'static str,
    /// Function that drops the value in a storage, and frees the box of the value. The field is `None` if the value has
    /// neither a destructor nor a box.
    ///
    /// The caller must pass the storage of an `Erased` with this vtable, must call this function only once, and must
    /// not read the storage afterwards.
    drop: Option<unsafe fn(&mut Storage)>,
}

impl Erased {
    #[inline]
    pub(crate) fn new<T: Send + 'static>(value: T) -> Self {
        let mut storage = Storage::uninit();
        if inline::<T>() {
            // SAFETY: `write` needs a pointer that is valid and aligned for a `T`. `inline::<T>()` is true, so a `T`
            // fits into the storage in size and alignment. The storage was uninitialized, so the write overwrites no
            // value that needs a drop.
            unsafe { storage.as_mut_ptr().cast::<T>().write(value) };
        } else {
            let kept = Kept::new(value).into_raw();
            // SAFETY: `write` needs a pointer that is valid and aligned for a `NonNull<T>`. `T` is `Sized`, so the
            // pointer is one word and fits the storage. The storage was uninitialized, so the write overwrites no value
            // that needs a drop.
            unsafe { storage.as_mut_ptr().cast::<NonNull<T>>().write(kept) };
        }
        Self { vtable: VTable::of::<T>(), storage }
    }

    /// Returns whether the value is a `T`.
    #[inline]
    pub(crate) fn is<T: 'static>(&self) -> bool {
        // If both pointers refer to the same vtable, the types are the same, and no call is needed. If the pointers
        // differ, the types may still be the same, because the vtable of one type may exist twice.
        ptr::eq(self.vtable, VTable::of::<T>()) || self.type_id() == TypeId::of::<T>()
    }

    /// Takes the value out.
    ///
    /// # Errors
    /// If the value is not a `T`, returns `self` unchanged.
    #[inline]
    pub(crate) fn downcast<T: 'static>(self) -> Result<T, Self> {
        if !self.is::<T>() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        if inline::<T>() {
            // SAFETY: `read` needs a valid, aligned pointer to a `T`, and the `T` must not be used again in its old
            // place. The check with `is` has shown that the value is a `T`. `inline::<T>()` was also true in `new`, so
            // `new` wrote the value to this address. `this` is not dropped or used again. The value is `Send`, so
            // another thread may have written the value. In this case, the transfer of `self` to this thread made that
            // write visible.
            Ok(unsafe { this.storage.as_ptr().cast::<T>().read() })
        } else {
            // SAFETY: `read` needs a valid, aligned pointer to a `NonNull<T>`. The check with `is` has
            // shown that the value is a `T`.
            // `inline::<T>()` was also false in `new`. Therefore, `new` stored the value in a box, and wrote the
            // pointer of the box to this address.
            let kept = unsafe { this.storage.as_ptr().cast::<NonNull<T>>().read() };
            // SAFETY: `from_raw` needs a pointer from `Kept::<T>::into_raw`, and `new` got the pointer from
            // `into_raw`. `this` is not dropped or used again, so no second `Kept` is created from the pointer.
            Ok(unsafe { Kept::from_raw(kept) }.into_inner())
        }
    }

    /// Returns the name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        (self.vtable.type_name)()
    }

    /// Returns the function that returns the name of the value's type.
    pub(crate) fn type_name_fn(&self) -> fn() -> &'static str {
        self.vtable.type_name
    }

    /// Returns the id of the value's type.
    #[inline]
    pub(crate) fn type_id(&self) -> TypeId {
        (self.vtable.type_id)()
    }
}

/// If `A` and `B` are the same type, returns `value` as a `B`. The compiler evaluates the comparison of the types.
///
/// # Errors
/// If the types differ, returns `value` unchanged.
#[inline]
pub(crate) fn cast<A: 'static, B: 'static>(value: A) -> Result<B, A> {
    if !same::<A, B>() {
        return Err(value);
    }
    let value = ManuallyDrop::new(value);
    // SAFETY: `read` needs a valid, aligned pointer to an initialized `B`. `A` and `B` are the same type, because their
    // ids are equal, so `value` contains an initialized `B`. `value` is a `ManuallyDrop` that is not used again, so the
    // value is moved, not duplicated.
    Ok(unsafe { (&raw const value).cast::<B>().read() })
}

/// Returns whether two types are the same type.
#[inline]
pub(crate) fn same<A: 'static, B: 'static>() -> bool {
    TypeId::of::<A>() == TypeId::of::<B>()
}

impl Drop for Erased {
    #[inline]
    fn drop(&mut self) {
        if let Some(drop) = self.vtable.drop {
            // SAFETY: the function `drop` requires the storage of an `Erased` that has the same vtable. `new` wrote the
            // storage and the vtable of this `Erased` together, so the requirement is met. The storage still contains
            // the value: `downcast` moves the value out, but also prevents this drop. The function runs once, and the
            // storage is not read afterwards. If the drop of the value panics, nothing is left to drop, because the two
            // fields of an `Erased` have no destructor.
            unsafe { drop(&mut self.storage) };
        }
    }
}

// `Send` and `Sync` are implemented automatically, because the fields are bytes and functions. `Send` is sound, because
// `new` accepts only `Send` values. `Sync` is sound, because a `&Erased` gives no access to the value. If a new field
// removes one of the two traits, this constant does not compile.
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
    // SAFETY: `drop_in_place` needs a valid, aligned pointer to a `T` that is not used afterwards. By contract the
    // storage contains a `T`, and is not read afterwards, even after a panic. The `&mut` reference is unique, so no
    // other thread accesses the value during the drop.
    unsafe { storage.as_mut_ptr().cast::<T>().drop_in_place() };
}

/// Drops a boxed value, and frees the box of the value.
///
/// # Safety
///
/// `inline::<T>()` is false, the storage contains a pointer from `Kept::<T>::into_raw`, and the storage is not read
/// afterwards.
unsafe fn drop_boxed<T>(storage: &mut Storage) {
    // SAFETY: `read` needs a valid, aligned pointer to a `NonNull<T>`. By contract the storage begins with a pointer
    // from `Kept::<T>::into_raw`. The type of this pointer is `NonNull<T>`.
    let kept = unsafe { storage.as_mut_ptr().cast::<NonNull<T>>().read() };
    // SAFETY: `from_raw` needs a pointer from `Kept::<T>::into_raw`, and by contract the pointer came from
    // `into_raw`. The storage is not read again, so no second `Kept` is created from the pointer. If the drop of the
    // value panics, `Kept` still frees the memory.
    drop(unsafe { Kept::from_raw(kept) });
}

/// Returns whether a `T` is stored without a box.
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
    fn a_value_of_sixteen_bytes_is_inline_and_a_value_with_a_wide_alignment_is_boxed() {
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
