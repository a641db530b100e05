//! Counted references to processes, and the [right to run](RunnableProcess) a process. The process itself stores its
//! reference counts. Therefore, a process and its task are one allocation. A reference has the size of one pointer if
//! its type contains the message type of the process.
//!
//! This file contains unsafe code, because this file implements a kind of `Arc` whose references may point to a prefix
//! of the allocated value. The [cell](crate::task::cell) of a process uses these references. As in `Arc`, a value has a
//! strong and a weak reference count. In this file, if a reference owns a *count*, the reference owns one unit of the
//! strong or of the weak reference count. All strong references together own one weak count.

#![allow(unsafe_code)]

pub(crate) mod budget;
pub(crate) mod current;
pub(crate) mod deferred;
pub(crate) mod handler_call;
pub(crate) mod inline_command;
pub(crate) mod kept_timer;
pub(crate) mod priority;
pub(crate) mod reply_slot;
pub(crate) mod run_state;
pub(crate) mod runnable;
pub(crate) mod skipped_turn;
pub(crate) mod upgrade_request;
pub(crate) mod wake_source;
pub(crate) mod yield_check;

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{NonNull, drop_in_place};

use crate::platform::alloc as memory;
use crate::platform::sync::counts::{AtomicU32, Ordering, fence};
use crate::platform::sync::planted;
pub(crate) use crate::process::state::run_state::RunState;
pub(crate) use crate::process::state::runnable::{Joiner, PendingSchedule, RunnableProcess, Schedule, Stepped, Task};

/// Maximum value of a reference count. Only a program that leaks references can exceed this maximum. Such a program
/// is aborted before the reference count wraps.
const MOST: u32 = u32::MAX / 2;

/// The header of each reference-counted value. The header contains the reference counts of the value, and a pointer
/// to the functions for the type of the value.
///
/// Weak references read the header while the last strong reference drops the value. Therefore, the drop must not form a
/// unique borrow of the header: see [`HeaderFirst::clear`].
///
/// The alignment of the header is 8 on every target. `Head` contains an `AtomicU64` and must follow the header without
/// padding, even on targets where a pointer has four bytes.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Header {
    strong: AtomicU32,
    weak: AtomicU32,
    kind: &'static VTable,
}

/// Table of functions for the type of a value. With this table, a caller that does not know the type can use the value.
pub(crate) struct VTable {
    /// The function [`HeaderFirst::clear`] for the type of the value.
    clear: unsafe fn(NonNull<Header>),
    /// Layout of the allocation. The allocation may be larger than the value.
    layout: Layout,
    task: Task,
    /// Function that returns the name of the type of the process's code. The field is `None` if the value is not a
    /// process.
    type_name: Option<fn() -> &'static str>,
}

impl fmt::Debug for VTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VTable").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// A reference-counted value.
///
/// # Safety
/// The type is `repr(C)`, and its first field is either a [`Header`] or another `HeaderFirst`. Therefore, a pointer to
/// the value is also a pointer to the header of the value. [`clear`](Self::clear) drops every field except the header,
/// and accesses no byte of the header.
pub(crate) unsafe trait HeaderFirst {
    /// Drops the fields other than the header. Each field is dropped through a pointer to that field alone, because
    /// other threads may read the header at the same time. If the destructor of one field panics, the remaining fields
    /// are still dropped, as in compiler-generated drops.
    ///
    /// # Safety
    /// `this` points to a value. No reference can reach a field of this value, except a reference to the header. The
    /// fields are not used after this call.
    unsafe fn clear(this: NonNull<Self>)
    where
        Self: Sized;
}

/// Guard for a field. When the guard is dropped, the guard drops the field, even during unwinding.
pub(crate) struct Clear<T>(NonNull<T>);

impl<T> Clear<T> {
    /// # Safety
    /// `field` points to a value that no other code accesses from now on. No other `Clear` is created for this value.
    #[inline]
    pub(crate) unsafe fn new(field: *mut T) -> Self {
        // SAFETY: by contract `field` points to a value, so the pointer is not null.
        Self(unsafe { NonNull::new_unchecked(field) })
    }
}

impl<T> Drop for Clear<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: by the contract of `new` the pointer refers to a value, no other code accesses this value, and no
        // other `Clear` exists for it.
        unsafe { drop_in_place(self.0.as_ptr()) };
    }
}

/// A reference-counted value of any type, behind a header. The value is not a process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RefCounted<T> {
    header: Header,
    value: T,
}

// SAFETY: the type is `repr(C)`, its first field is its header, and `clear` drops the only other field through a
// pointer to that field.
unsafe impl<T> HeaderFirst for RefCounted<T> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        // SAFETY: by contract `this` points to a whole `RefCounted`, so the fields of the `RefCounted` are in bounds.
        let value = unsafe { &raw mut (*this.as_ptr()).value };
        // SAFETY: by contract no reference reaches this field any more, and the field is not used after this call.
        // Therefore, no other `Clear` is created for this field.
        drop(unsafe { Clear::new(value) });
    }
}

impl<T> Deref for RefCounted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Ref<RefCounted<T>> {
    pub(crate) fn counted(value: T) -> Self {
        Self::new(|header| RefCounted { header, value })
    }
}

/// Counted reference. Each value that a `Ref` points to was created as a value of a [`HeaderFirst`] type.
pub(crate) struct Ref<T: ?Sized> {
    at: NonNull<T>,
}

/// A stock of references to one value. The strong count of the value already includes the references of the stock, so
/// [`take`](Self::take) needs no atomic read-modify-write operation.
pub(crate) struct CountedRefs<T> {
    one: Ref<T>,
    left: Clones<T>,
}

impl<T> CountedRefs<RefCounted<T>> {
    /// Creates a value and a stock of `count` references to the value. The strong count of the value includes these
    /// references from the beginning.
    pub(crate) fn new(value: T, count: u32) -> Self {
        // SAFETY: `PLAIN` is the kind of a `RefCounted<T>`, and `1 + count` is at least 1. The reference `one` owns
        // one strong count, and the `Clones` owns the other strong counts.
        let one = unsafe { Ref::with(Ref::<RefCounted<T>>::PLAIN, 1 + count, |header| RefCounted { header, value }) };
        Self { left: Clones { at: one.at, left: count }, one }
    }
}

impl<T> CountedRefs<T> {
    /// Takes one reference out of the stock. Returns `None` if the stock is empty.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Ref<T>> {
        self.left.next()
    }

    /// Returns the value that the references point to.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        &self.one
    }
}

impl<T> fmt::Debug for CountedRefs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedRefs").field("left", &self.left.left).finish_non_exhaustive()
    }
}

/// An iterator over references to one value. The strong count of the value already includes the references that the
/// iterator has not returned yet.
pub(crate) struct Clones<T: ?Sized> {
    at: NonNull<T>,
    left: u32,
}

impl<T: ?Sized> Iterator for Clones<T> {
    type Item = Ref<T>;

    #[inline]
    fn next(&mut self) -> Option<Ref<T>> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: the iterator owns one strong count for each reference that the iterator has not returned yet, and
        // `left` counts these references. The subtraction has removed one reference from `left`. The returned reference
        // takes over the strong count of this reference.
        Some(unsafe { Ref::from_at(self.at) })
    }
}

impl<T: ?Sized> Drop for Clones<T> {
    #[inline]
    fn drop(&mut self) {
        if self.left != 0 {
            // SAFETY: the iterator owns `left` strong counts, which keep the value alive. These strong counts are
            // released here and not used again.
            unsafe { Header::release_many(self.at.cast(), self.left) };
        }
    }
}

/// A reference that owns no unit of a reference count. A borrowed reference may be used only during the lifetime
/// `'a`, and is never dropped.
pub(crate) struct Borrowed<'a, T>(ManuallyDrop<T>, PhantomData<&'a ()>);

impl<T> Borrowed<'_, T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value), PhantomData)
    }
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Weak reference. A weak reference keeps the memory of the value allocated, but does not keep the value alive.
pub(crate) struct Weak<T: ?Sized>(NonNull<T>);

// SAFETY: a `Ref` gives out `&T` on the thread that the `Ref` is sent to, and `T: Sync` allows this. The `Ref` may drop
// the value on that thread, and `T: Send` allows this. The counts are atomic.
unsafe impl<T: ?Sized + Send + Sync> Send for Ref<T> {}
// SAFETY: a shared `Ref` gives out `&T` and clones of the `Ref` on other threads. `T: Sync` allows the use of `&T`. A
// clone may drop the value on the other thread. `T: Send` and `T: Sync` together allow the use of a clone.
unsafe impl<T: ?Sized + Send + Sync> Sync for Ref<T> {}
// SAFETY: a `Clones` owns zero or more `Ref`s, and each `Ref` may be sent under these bounds.
unsafe impl<T: ?Sized + Send + Sync> Send for Clones<T> {}
// SAFETY: no method takes `&Clones` and returns a `Ref` or a `&T`. Therefore, a thread that has only a `&Clones`
// accesses neither the reference counts nor the value.
unsafe impl<T: ?Sized + Send + Sync> Sync for Clones<T> {}
// SAFETY: a `Weak` can become a `Ref` on the thread that the `Weak` is sent to, and a `Ref` may be sent under these
// bounds.
unsafe impl<T: ?Sized + Send + Sync> Send for Weak<T> {}
// SAFETY: a shared `Weak` can be upgraded to a `Ref` on another thread, and a `Ref` may be sent under these bounds.
unsafe impl<T: ?Sized + Send + Sync> Sync for Weak<T> {}

impl Header {
    fn new(kind: &'static VTable, strong: u32) -> Self {
        Self { strong: AtomicU32::new(strong), weak: AtomicU32::new(1), kind }
    }

    /// Returns the name of the type of the process's code. Returns `None` if the value is not a process.
    fn type_name(&self) -> Option<&'static str> {
        self.kind.type_name.map(|name| name())
    }

    /// Returns whether exactly `counts` strong references exist. The caller owns `counts` strong references. If this
    /// function returns true, the caller owns all strong references. While the caller owns all strong references, only
    /// an upgrade of a weak reference can create another strong reference.
    #[inline]
    pub(crate) fn is_alone_with(&self, counts: u32) -> bool {
        // Acquire pairs with the decrements in `release_many`, which have release ordering. Therefore, all accesses
        // through references that were dropped happen before this load returns `counts`.
        self.strong.load(Ordering::Acquire) == counts
    }

    #[inline]
    pub(crate) fn retain(&self) {
        self.retain_many(1);
    }

    #[inline]
    fn retain_many(&self, counts: u32) {
        // In a call that does not abort, the previous strong count and `counts` are both at most `MOST`, which is half
        // of the range of a `u32`. Therefore, the sum of these two numbers does not wrap. Relaxed is sufficient, as in
        // `Arc`: the caller owns a reference, so the strong count cannot reach zero during the call.
        if counts > MOST || self.strong.fetch_add(counts, Ordering::Relaxed) > MOST {
            too_many();
        }
    }

    /// # Safety
    /// `this` is alive, and has the provenance of the whole allocation. The caller owns one of the strong counts of
    /// `this`, and this call releases that count.
    #[inline]
    pub(crate) unsafe fn release(this: NonNull<Self>) {
        // SAFETY: by contract `this` is alive, and the caller owns the count that is released.
        unsafe { Self::release_many(this, 1) };
    }

    /// # Safety
    /// `this` is alive, and has the provenance of the whole allocation. The caller owns `counts` strong references to
    /// `this`, and this call releases them.
    #[inline]
    pub(crate) unsafe fn release_many(this: NonNull<Self>, counts: u32) {
        // SAFETY: the value is alive until the decrement below releases the caller's counts. The reference is not used
        // after that decrement, because another thread may then free the memory.
        let header = unsafe { this.as_ref() };
        // Release pairs with the acquire fence in `clear`. Therefore, the caller's accesses to the value happen before
        // the value is dropped. With a weaker ordering, the value could be dropped before these accesses.
        let order = if planted!("counts_release_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        if header.strong.fetch_sub(counts, order) == counts {
            // SAFETY: the caller's counts were the last strong counts. An upgrade never raises the strong count from
            // zero. Therefore, the strong count reaches zero only once, and `clear` is called once. The weak count
            // that all strong references own together is not released yet, so the memory is still allocated.
            unsafe { Self::clear(this) };
        }
    }

    /// # Safety
    /// `this` has the provenance of the whole allocation. The caller has just released the last strong count. The
    /// caller calls this function once.
    #[cold]
    #[inline(never)]
    unsafe fn clear(this: NonNull<Self>) {
        /// Owner of the one weak count that all strong references share. `Rest` releases this weak count even if the
        /// destructor of the value panics.
        struct Rest(NonNull<Header>);
        impl Drop for Rest {
            fn drop(&mut self) {
                // SAFETY: all strong references together own one weak count, and no strong reference is left. The
                // function `clear` is called once, so this weak count is released once.
                unsafe { Header::release_weak(self.0) };
            }
        }
        // Acquire pairs with the decrements in `release_many`, which have release ordering. Therefore, all accesses
        // through other strong references happen before the value is dropped.
        fence(Ordering::Acquire);
        // SAFETY: the memory stays allocated until `Rest` releases the weak count of the strong references. No code
        // writes `kind` after the creation of the header, so this read conflicts with no other access.
        let clear = unsafe { this.as_ref() }.kind.clear;
        let _rest = Rest(this);
        // SAFETY: the table `kind` belongs to the type of the value. Therefore, `clear` is the function for this type,
        // and `this` is the header of a value of this type. No strong reference is left, and none can be created. A
        // weak reference reaches only the header. Therefore, no reference reaches another field. This function is
        // called once, so the fields are not used after this call.
        unsafe { clear(this) };
    }

    /// # Safety
    /// `this` has the provenance of the whole allocation. The caller owns one of the weak counts, and this call
    /// releases that count.
    #[inline]
    unsafe fn release_weak(this: NonNull<Self>) {
        // SAFETY: the memory stays allocated as long as a weak count exists, and the caller owns a weak count until
        // the decrement below. The header is valid in that memory, because `HeaderFirst::clear` does not access the
        // header and the header has no destructor. If this decrement is not the last decrement, the reference is not
        // used after the decrement, because another thread may then free the memory.
        let header = unsafe { this.as_ref() };
        let layout = header.kind.layout;
        // Acquire pairs with the decrements of the other weak counts, which have release ordering. The owners of these
        // counts access the header before the owners decrement the counts. With a weaker ordering, the memory could be
        // freed before these accesses. If this weak count is the only weak count, no other thread accesses the header
        // any more, so no decrement is needed.
        let order = if planted!("counts_free_unordered") { Ordering::Relaxed } else { Ordering::Acquire };
        if header.weak.load(order) == 1 || header.weak.fetch_sub(1, Ordering::AcqRel) == 1 {
            #[cfg(procession_loom)]
            if header.strong.freed() | header.weak.freed() {
                // In a model that explores the reference counts, the memory is kept, so that the model can report a
                // later access to the memory.
                return;
            }
            // SAFETY: `with` allocated the memory with the layout in the vtable, and `layout` is this layout. No
            // count is left, so no reference points to the memory, and this call is the only owner of the memory.
            unsafe { memory::give_back(this.cast(), layout) };
        }
    }
}

/// Aborts the program, because a reference count is about to wrap. If a reference count wrapped, a value that is in
/// use would be freed.
#[cold]
#[inline(never)]
fn too_many() -> ! {
    // The message is written without an allocation. An error of the write is ignored.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), b"procession: too many references to one process\n");
    std::process::abort()
}

impl<T: HeaderFirst> Ref<T> {
    const PLAIN: &'static VTable = &Self::kind(Layout::new::<T>(), Task::NONE, None);

    /// Creates a table of functions. `T` is the type of the value that the last reference drops. `layout` is the layout
    /// of the allocation, which begins with the `T`. The table also contains the functions in `task`, and the
    /// function that returns the type name of a process's code.
    pub(crate) const fn kind(layout: Layout, task: Task, type_name: Option<fn() -> &'static str>) -> VTable {
        assert!(layout.size() >= size_of::<T>() && layout.align() >= align_of::<T>());
        VTable { clear: Self::clear, layout, task, type_name }
    }

    /// # Safety
    /// `this` is the header of a `T`. The other requirements are the requirements of [`HeaderFirst::clear`].
    unsafe fn clear(this: NonNull<Header>) {
        // SAFETY: by contract the header is the beginning of a `T`. `T::clear` has no requirements beyond the
        // requirements of this function.
        unsafe { T::clear(this.cast()) };
    }

    /// Creates a counted value that is not a task. The closure `make` receives the header, and must store the header as
    /// the first field.
    pub(crate) fn new(make: impl FnOnce(Header) -> T) -> Self {
        // SAFETY: `PLAIN` is the kind of a `T`, and the initial strong count is 1. The returned reference owns the
        // only strong count.
        unsafe { Self::with(Self::PLAIN, 1, make) }
    }

    /// Does the same as [`new`](Self::new), but returns two references to the value.
    pub(crate) fn pair(make: impl FnOnce(Header) -> T) -> (Self, Self) {
        // SAFETY: `PLAIN` is the kind of a `T`, and the initial strong count is 2. Each of the two references that
        // are created here owns one of the two strong counts.
        let one = unsafe { Self::with(Self::PLAIN, 2, make) };
        // SAFETY: the function `with` returned the pointer `one.at`. The reference `one` owns the first of the two
        // strong counts. No reference owns the second strong count yet, and the new reference takes over this strong
        // count.
        (unsafe { Self::from_at(one.at) }, one)
    }

    /// Creates a value with the initial strong count `strong`. If the layout in `kind` is larger than a `T`, the memory
    /// behind the `T` is uninitialized. The returned reference owns one strong count, and the caller owns the remaining
    /// strong counts.
    ///
    /// # Safety
    /// `kind` was created by [`kind`](Self::kind) for the same `T`, and `strong` is at least 1. The functions in `kind`
    /// belong to the type whose layout `kind` contains.
    #[inline(always)]
    pub(crate) unsafe fn with(kind: &'static VTable, strong: u32, make: impl FnOnce(Header) -> T) -> Self {
        // SAFETY: a `T` is `HeaderFirst`, so a `T` contains a header, and the size of `T` is not zero. The size in the
        // layout is not smaller.
        let at = unsafe { memory::take(kind.layout) }.cast::<T>();
        // `Stepped::wake` and `Stepped::deliver` need the exposed provenance: these two functions recover the pointer
        // to the whole allocation from a reference to its first part.
        let _ = at.as_ptr().expose_provenance();
        let value = make(Header::new(kind, strong));
        // SAFETY: the memory was allocated with a layout that is at least as large and as aligned as a `T`, and nothing
        // else refers to the memory. If `make` panics, the memory is leaked.
        unsafe { at.write(value) };
        // SAFETY: the pointer `at` points to the new value, and has the provenance of the whole allocation. The strong
        // count in the header of the value is `strong`, and none of these strong counts has an owner yet. The result
        // takes over one of these strong counts.
        unsafe { Self::from_at(at) }
    }
}

impl<T: ?Sized> Ref<T> {
    /// # Safety
    /// `at` points to a value that [`with`](Ref::with) created. `at` has the provenance of the whole allocation. In
    /// addition, one of two conditions holds. The first condition: the caller owns one of the value's strong counts and
    /// passes this strong count to the result. The second condition: the caller never drops the returned reference. The
    /// caller also owns another reference to the same value until the returned reference is no longer used.
    #[inline]
    pub(crate) unsafe fn from_at(at: NonNull<T>) -> Self {
        Self { at }
    }

    #[inline]
    pub(crate) fn at(&self) -> NonNull<T> {
        self.at
    }

    /// Converts this reference into the pointer that the reference contains. The caller then owns the strong count that
    /// this reference owned.
    #[inline]
    pub(crate) fn into_at(self) -> NonNull<T> {
        ManuallyDrop::new(self).at
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: each value that a `Ref` points to was created as a value of a `HeaderFirst` type, and such a value
        // begins with its header. Either this reference or another reference owns a strong count as long as this
        // reference is used (`from_at`). Therefore, the value is alive.
        unsafe { self.at.cast::<Header>().as_ref() }
    }

    /// Returns the name of the type of the process's code. Returns `None` if the value is not a process.
    pub(crate) fn type_name(&self) -> Option<&'static str> {
        self.header().type_name()
    }

    /// Returns the size of the allocation that contains the value, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.header().kind.layout.size()
    }

    pub(crate) fn downgrade(this: &Self) -> Weak<T> {
        if this.header().weak.fetch_add(1, Ordering::Relaxed) > MOST {
            too_many();
        }
        Weak(this.at)
    }

    /// Returns the address of the value. The address identifies the value as long as the value is alive.
    #[inline]
    pub(crate) fn identity(&self) -> usize {
        self.at.cast::<Header>().as_ptr() as usize
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Creates `count` references with one atomic operation.
    pub(crate) fn clones(&self, count: u32) -> Clones<T> {
        self.header().retain_many(count);
        Clones { at: self.at, left: count }
    }

    /// Returns the number of strong references.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.header().strong.load(Ordering::Relaxed) as usize
    }
}

impl<T: ?Sized> Clone for Ref<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.header().retain();
        Self { at: self.at }
    }
}

impl<T: ?Sized> Drop for Ref<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a reference that owns no strong count is never dropped: see `from_at`. Therefore, this reference
        // owns a strong count, which keeps the value alive. The reference is dropped once and not used afterwards.
        unsafe { Header::release(self.at.cast()) };
    }
}

impl<T: ?Sized> Deref for Ref<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: either this reference or another reference owns a strong count as long as this reference is used
        // (`from_at`). Therefore, the value is alive as long as this reference is borrowed.
        unsafe { self.at.as_ref() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Weak<T> {
    /// Returns a strong reference, if the value is still alive.
    pub(crate) fn upgrade(&self) -> Option<Ref<T>> {
        // SAFETY: the memory stays allocated as long as a weak count exists, and this reference owns a weak count. The
        // header stays valid while the value is dropped, and after the value was dropped: see `HeaderFirst::clear`.
        let strong = unsafe { &self.0.cast::<Header>().as_ref().strong };
        let more = |count| {
            if count > MOST {
                too_many();
            }
            (count != 0 || planted!("counts_upgrade_from_zero")).then(|| count + 1)
        };
        // Acquire pairs with the decrements in `release_many`, which have release ordering, as in `Arc`. Therefore,
        // accesses through references that were already dropped happen before this upgrade returns.
        strong.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok()?;
        // SAFETY: `self.0` is the pointer of the reference from which `downgrade` made this weak reference. The
        // strong count was not zero, so the value was alive. The increment above added one strong count, and the new
        // reference takes over this strong count.
        Some(unsafe { Ref::from_at(self.0) })
    }
}

impl<T: ?Sized> Drop for Weak<T> {
    fn drop(&mut self) {
        // SAFETY: this reference owns a weak count. The reference is dropped once and not used afterwards.
        unsafe { Header::release_weak(self.0.cast()) };
    }
}

impl<T: ?Sized> fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Weak")
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::mem::forget;
    use std::process::Command;

    use super::*;
    use crate::platform::sync::{Arc, thread};

    #[test]
    fn the_last_reference_drops_the_value() {
        let told = Arc::new(());
        let one = Ref::counted(Arc::clone(&told));
        let (other, weak) = (one.clone(), Ref::downgrade(&one));
        assert!(one.is_same(&other) && one.count() == 2);
        assert!(!one.is_same(&Ref::counted(Arc::clone(&told))), "two values are not the same");
        drop(one);
        assert!(weak.upgrade().is_some_and(|again| again.is_same(&other)));
        assert_eq!((other.count(), Arc::strong_count(&told)), (1, 2));
        drop(other);
        assert_eq!(Arc::strong_count(&told), 1);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn counted_refs_give_out_references_and_release_the_remaining_references() {
        let told = Arc::new(());
        let mut stock = CountedRefs::new(Arc::clone(&told), 3);
        let (one, other) = (stock.take().expect("one of three"), stock.take().expect("another"));
        assert!(one.is_same(&other) && Arc::ptr_eq(stock.get(), &told));
        assert_eq!(one.count(), 4);
        drop(one);
        drop(stock);
        assert_eq!((other.count(), Arc::strong_count(&told)), (1, 2));
        drop(other);
        assert_eq!(Arc::strong_count(&told), 1);
        let mut stock = CountedRefs::new(Arc::clone(&told), 1);
        assert!(stock.take().is_some() && stock.take().is_none());
        drop(stock);
        assert_eq!(Arc::strong_count(&told), 1);
    }

    #[test]
    fn a_reference_returns_the_type_and_the_size_of_its_value() {
        static NAMED: VTable = Ref::<RefCounted<u64>>::kind(
            Layout::new::<RefCounted<u64>>(),
            Task::NONE,
            Some(std::any::type_name::<u64>),
        );
        // SAFETY: `NAMED` was created for the type of the value. The result owns the only strong count.
        let named = unsafe { Ref::with(&NAMED, 1, |header| RefCounted { header, value: 7_u64 }) };
        assert_eq!((named.type_name(), Ref::counted(7_u64).type_name()), (Some("u64"), None));
        assert_eq!(named.bytes(), size_of::<RefCounted<u64>>());
        // SAFETY: `new` requires the header of a task and the right to run this task. This value is not a task.
        // However, the result of `new` is never run and never dropped, so no function of a task is called. `type_name`
        // reads only the header, and `named` keeps the header alive.
        let ready = ManuallyDrop::new(unsafe { RunnableProcess::new(NonNull::from(named.header())) });
        assert_eq!(ready.type_name(), "u64");
    }

    /// Tests the overflow of a reference count. Each reference count starts near its limit. Each operation runs in
    /// its own operating-system process.
    #[test]
    #[cfg_attr(miri, ignore = "Miri starts no other programs")]
    fn a_count_that_would_overflow_aborts_the_program() {
        const OPERATION: &str = "PROCESSION_OVERFLOWS";
        if let Ok(operation) = std::env::var(OPERATION) {
            return overflow(&operation);
        }
        let test = "process::state::tests::a_count_that_would_overflow_aborts_the_program";
        for operation in ["clone", "clones", "clones at once", "downgrade", "upgrade", "wake"] {
            let mut program = Command::new(std::env::current_exe().expect("the program has a path"));
            let output = program.args(["--exact", test, "--nocapture"]).env(OPERATION, operation).output();
            let output = output.expect("the program starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("at the limit"), "{operation} does not reach the limit: {said}");
            assert!(said.contains("too many references"), "{operation} does not say why it aborts: {said}");
            assert!(!said.contains("beyond the limit"), "{operation} goes on beyond the limit: {said}");
            assert!(!output.status.success(), "{operation} ends normally");
        }
    }

    /// Runs the operation twice. At the limit the operation succeeds, and beyond the limit the operation aborts the
    /// program.
    fn overflow(operation: &str) {
        let near = |strong| {
            // SAFETY: `PLAIN` is the kind of the value, and `strong` is at least 1. The remaining strong counts have
            // no owner, so these strong counts are never released.
            unsafe { Ref::with(Ref::<RefCounted<u64>>::PLAIN, strong, |header| RefCounted { header, value: 7 }) }
        };
        let twice = |more: &dyn Fn()| {
            more();
            eprintln!("at the limit");
            more();
            eprintln!("beyond the limit");
        };
        let one = near(if operation == "clones at once" { 1 } else { MOST });
        match operation {
            "clone" => twice(&|| forget(one.clone())),
            "clones" => twice(&|| forget(one.clones(1))),
            "clones at once" => {
                eprintln!("at the limit");
                forget(one.clones(MOST + 1));
                eprintln!("beyond the limit");
            }
            "downgrade" => {
                one.header().weak.store(MOST, Ordering::Relaxed);
                twice(&|| forget(Ref::downgrade(&one)));
            }
            "upgrade" => {
                let weak = Ref::downgrade(&one);
                twice(&|| forget(weak.upgrade()));
            }
            "wake" => {
                let at = NonNull::from(one.header());
                // SAFETY: `new` requires the header of a task and the right to run this task. This value is not a task,
                // but the result of `new` is neither run nor dropped, so no function of a task is called. `waker` and
                // the clone of the waker access only the header, and `one` keeps the header alive.
                let ready = ManuallyDrop::new(unsafe { RunnableProcess::new(at) });
                twice(&|| forget((*ready.waker()).clone()));
            }
            other => unreachable!("{other} is not tested"),
        }
    }

    #[test]
    fn a_value_whose_drop_panics_is_dropped_once() {
        struct Panics(#[expect(dead_code, reason = "dropped")] Arc<()>);
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let told = Arc::new(());
        let one = Ref::counted(Panics(Arc::clone(&told)));
        let weak = Ref::downgrade(&one);
        assert!(crate::process::catch::catch(|| drop(one)).is_err());
        assert!(weak.upgrade().is_none() && Arc::strong_count(&told) == 1);
    }

    #[test]
    fn reference_counts_stay_correct_on_many_threads() {
        let told = Arc::new(());
        let (rounds, clones) = if cfg!(miri) { (4, 4) } else { (200, 50) };
        for _ in 0..rounds {
            let one = Ref::counted((7_u64, Arc::clone(&told)));
            let weak = Ref::downgrade(&one);
            thread::scope(|threads| {
                for _ in 0..2 {
                    let (own, weak) = (one.clone(), &weak);
                    threads.spawn(move || {
                        for _ in 0..clones {
                            assert_eq!(own.clone().0, 7);
                            drop(Ref::downgrade(&own));
                        }
                        drop(own);
                        // An upgrade either returns the whole value, or fails because the value was dropped.
                        assert!(weak.upgrade().is_none_or(|again| again.0 == 7));
                    });
                }
                threads.spawn(move || drop(one));
            });
            assert!(weak.upgrade().is_none());
        }
        assert_eq!(Arc::strong_count(&told), 1);
    }
}
