//! References to processes: counted in the process itself, so that it is one allocation with its task, and a reference is
//! one word where the type of its messages is known; and the right to run it, of which there is [one](Ready). A file with
//! unsafe code, which is `Arc`'s, if that could hold a value together with others of which it is the beginning; the
//! [cell](crate::cell) is made of it, and says what it bought.
//!
//! The counts are those of `Arc`: strong ones, and weak ones, of which all strong ones together have one.

#![allow(unsafe_code)]

mod ready;
mod run_state;

pub(crate) use ready::{Owed, Ready, Schedule, Stepped, Task};
pub(crate) use run_state::RunState;

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{NonNull, drop_in_place};

use crate::memory;
use crate::sync::tally::{AtomicU32, Ordering, fence};

/// Beyond this many somebody leaks references, and the count would wrap.
const MOST: u32 = u32::MAX / 2;

/// With what each counted value begins.
#[derive(Debug)]
pub(crate) struct Life {
    strong: AtomicU32,
    weak: AtomicU32,
    kind: &'static Kind,
}

/// What has to be known of a value whose type is not.
pub(crate) struct Kind {
    /// Drops the value in its place.
    clear: unsafe fn(NonNull<Life>),
    layout: Layout,
    task: Task,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// A value that is counted.
///
/// # Safety
/// It is `repr(C)`, and its first field is a [`Life`], or `Rooted` itself: a pointer to it is one to its life.
pub(crate) unsafe trait Rooted {}

/// A value that has nothing to do with its life.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Counted<T> {
    life: Life,
    value: T,
}

// SAFETY: `repr(C)`, and its first field is its life.
unsafe impl<T> Rooted for Counted<T> {}

impl<T> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Ref<Counted<T>> {
    pub(crate) fn counted(value: T) -> Self {
        Self::new(|life| Counted { life, value })
    }
}

/// A counted reference, to what is [`Rooted`]: none is made to anything else.
pub(crate) struct Ref<T: ?Sized> {
    at: NonNull<T>,
}

/// References to one value that were counted beforehand: each is taken without a locked operation.
pub(crate) struct Stock<T> {
    one: Ref<T>,
    left: Clones<T>,
}

impl<T> Stock<Counted<T>> {
    /// So many references, to a new value.
    pub(crate) fn new(value: T, count: u32) -> Self {
        // SAFETY: that is the kind of a `Counted<T>`.
        let one = unsafe { Ref::with(Ref::<Counted<T>>::PLAIN, 1 + count, |life| Counted { life, value }) };
        Self { left: Clones { at: one.at, left: count }, one }
    }
}

impl<T> Stock<T> {
    /// One of them, while there are some.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Ref<T>> {
        self.left.next()
    }

    /// What they refer to.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        &self.one
    }
}

impl<T> fmt::Debug for Stock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stock").field("left", &self.left.left).finish_non_exhaustive()
    }
}

/// References that are counted and not given out yet.
pub(crate) struct Clones<T: ?Sized> {
    at: NonNull<T>,
    left: u32,
}

impl<T: ?Sized> Iterator for Clones<T> {
    type Item = Ref<T>;

    #[inline]
    fn next(&mut self) -> Option<Ref<T>> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: it was counted beforehand.
        Some(unsafe { Ref::from_at(self.at) })
    }
}

impl<T: ?Sized> Drop for Clones<T> {
    #[inline]
    fn drop(&mut self) {
        if self.left != 0 {
            // SAFETY: these counts were not given out.
            unsafe { Life::release_many(self.at.cast(), self.left) };
        }
    }
}

/// Something with a count that it does not have: it is used for a while, and not dropped.
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

/// One that does not keep the value.
pub(crate) struct Weak<T: ?Sized>(NonNull<T>);

// SAFETY: as of `Arc`, which gives out `&T` on any thread, and drops `T` on any.
unsafe impl<T: ?Sized + Send + Sync> Send for Ref<T> {}
// SAFETY: the same.
unsafe impl<T: ?Sized + Send + Sync> Sync for Ref<T> {}
// SAFETY: the same.
unsafe impl<T: ?Sized + Send + Sync> Send for Clones<T> {}
// SAFETY: the same.
unsafe impl<T: ?Sized + Send + Sync> Sync for Clones<T> {}
// SAFETY: the same.
unsafe impl<T: ?Sized + Send + Sync> Send for Weak<T> {}
// SAFETY: the same.
unsafe impl<T: ?Sized + Send + Sync> Sync for Weak<T> {}

impl Life {
    fn new(kind: &'static Kind, strong: u32) -> Self {
        Self { strong: AtomicU32::new(strong), weak: AtomicU32::new(1), kind }
    }

    /// Whether there are so many references, for one that has as many: then nobody else has any, but by a weak one.
    #[inline]
    pub(crate) fn is_alone_with(&self, counts: u32) -> bool {
        // Acquire pairs with the release of the others' last ones.
        self.strong.load(Ordering::Acquire) == counts
    }

    #[inline]
    pub(crate) fn retain(&self) {
        self.retain_many(1);
    }

    #[inline]
    fn retain_many(&self, counts: u32) {
        // Relaxed, as with `Arc`: whoever clones has a reference already.
        if self.strong.fetch_add(counts, Ordering::Relaxed) > MOST {
            std::process::abort();
        }
    }

    /// # Safety
    /// `this` is alive, and the caller has one of its strong counts, which is given up.
    #[inline]
    pub(crate) unsafe fn release(this: NonNull<Self>) {
        // SAFETY: says the caller.
        unsafe { Self::release_many(this, 1) };
    }

    /// # Safety
    /// `this` is alive, and the caller has so many of its strong counts, which are given up.
    #[inline]
    pub(crate) unsafe fn release_many(this: NonNull<Self>, counts: u32) {
        // SAFETY: alive, says the caller.
        let life = unsafe { this.as_ref() };
        if life.strong.fetch_sub(counts, Ordering::Release) == counts {
            // SAFETY: the last ones.
            unsafe { Self::clear(this) };
        }
    }

    /// # Safety
    /// There is no strong reference any more, and was one until now.
    #[cold]
    #[inline(never)]
    unsafe fn clear(this: NonNull<Self>) {
        /// The weak count of the strong references, given up also if the value's drop panics.
        struct Rest(NonNull<Life>);
        impl Drop for Rest {
            fn drop(&mut self) {
                // SAFETY: that count.
                unsafe { Life::release_weak(self.0) };
            }
        }
        // What others did with the value was released with their counts.
        fence(Ordering::Acquire);
        // SAFETY: the memory stays until the rest is given up.
        let clear = unsafe { this.as_ref() }.kind.clear;
        let _rest = Rest(this);
        // SAFETY: it is of that kind, and nobody refers to it.
        unsafe { clear(this) };
    }

    /// # Safety
    /// The caller has one of the weak counts, which is given up.
    #[inline]
    unsafe fn release_weak(this: NonNull<Self>) {
        // SAFETY: the memory is there as long as somebody has a weak count. Dropping the value has not touched the life, whose
        // fields have no drop.
        let life = unsafe { this.as_ref() };
        let layout = life.kind.layout;
        if life.weak.load(Ordering::Acquire) == 1 || life.weak.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: it was taken for that, in `with`; and the last one is alone with it.
            unsafe { memory::give_back(this.cast(), layout) };
        }
    }
}

impl<T: Rooted> Ref<T> {
    const PLAIN: &'static Kind = &Self::kind(Task::NONE);

    /// The kind of a `T` that is this task.
    pub(crate) const fn kind(task: Task) -> Kind {
        Kind { clear: Self::clear, layout: Layout::new::<T>(), task }
    }

    /// # Safety
    /// `this` is a `T` that is to be dropped.
    unsafe fn clear(this: NonNull<Life>) {
        // SAFETY: says the caller.
        unsafe { drop_in_place(this.cast::<T>().as_ptr()) };
    }

    /// Counts a value, which is no task. The life that it is given goes into its place in it.
    pub(crate) fn new(make: impl FnOnce(Life) -> T) -> Self {
        // SAFETY: that is the kind of a `T`.
        unsafe { Self::with(Self::PLAIN, 1, make) }
    }

    /// The same, with two references to it.
    pub(crate) fn pair(make: impl FnOnce(Life) -> T) -> (Self, Self) {
        // SAFETY: that is the kind of a `T`.
        let one = unsafe { Self::with(Self::PLAIN, 2, make) };
        // SAFETY: the other count.
        (unsafe { Self::from_at(one.at) }, one)
    }

    /// Counts a value, `strong` times: of these one is returned, the others are the caller's.
    ///
    /// # Safety
    /// `kind` is that of a `T`.
    #[inline]
    pub(crate) unsafe fn with(kind: &'static Kind, strong: u32, make: impl FnOnce(Life) -> T) -> Self {
        // SAFETY: it has a size, for it has a count.
        let at = unsafe { memory::take(Layout::new::<T>()) }.cast::<T>();
        // For `Stepped::wake`.
        let _ = at.as_ptr().expose_provenance();
        let value = make(Life::new(kind, strong));
        // SAFETY: there is room for a `T`. If `make` panics that is leaked.
        unsafe { at.write(value) };
        // SAFETY: one of its counts.
        unsafe { Self::from_at(at) }
    }
}

impl<T: ?Sized> Ref<T> {
    /// # Safety
    /// One of the counts of this value is the caller's, and is handed over.
    #[inline]
    pub(crate) unsafe fn from_at(at: NonNull<T>) -> Self {
        Self { at }
    }

    #[inline]
    pub(crate) fn at(&self) -> NonNull<T> {
        self.at
    }

    /// Where it is; the count becomes the caller's.
    #[inline]
    pub(crate) fn into_at(self) -> NonNull<T> {
        ManuallyDrop::new(self).at
    }

    #[inline]
    pub(crate) fn life(&self) -> &Life {
        // SAFETY: a pointer to what is `Rooted` is one to its life.
        unsafe { self.at.cast::<Life>().as_ref() }
    }

    pub(crate) fn downgrade(this: &Self) -> Weak<T> {
        if this.life().weak.fetch_add(1, Ordering::Relaxed) > MOST {
            std::process::abort();
        }
        Weak(this.at)
    }

    /// Which one it is, while it lives.
    #[inline]
    pub(crate) fn identity(&self) -> usize {
        self.at.cast::<Life>().as_ptr() as usize
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// So many more, counted at once.
    pub(crate) fn clones(&self, count: u32) -> Clones<T> {
        self.life().retain_many(count);
        Clones { at: self.at, left: count }
    }

    /// How many strong references there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.life().strong.load(Ordering::Relaxed) as usize
    }
}

impl<T: ?Sized> Clone for Ref<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.life().retain();
        Self { at: self.at }
    }
}

impl<T: ?Sized> Drop for Ref<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it had a count, and has none from here on.
        unsafe { Life::release(self.at.cast()) };
    }
}

impl<T: ?Sized> Deref for Ref<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: alive, for it is counted.
        unsafe { self.at.as_ref() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Weak<T> {
    /// A strong reference, if there still is one.
    pub(crate) fn upgrade(&self) -> Option<Ref<T>> {
        // SAFETY: the memory is there as long as there are weak references.
        let strong = unsafe { &self.0.cast::<Life>().as_ref().strong };
        let more = |count| (count != 0 && count <= MOST).then(|| count + 1);
        // Acquire, as with `Arc`: what was done before a reference was handed to others is seen.
        strong.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok()?;
        // SAFETY: counted just now.
        Some(unsafe { Ref::from_at(self.0) })
    }
}

impl<T: ?Sized> Drop for Weak<T> {
    fn drop(&mut self) {
        // SAFETY: it had a weak count, and has none from here on.
        unsafe { Life::release_weak(self.0.cast()) };
    }
}

impl<T: ?Sized> fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Weak")
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn the_last_one_drops_it() {
        let told = Arc::new(());
        let one = Ref::counted(Arc::clone(&told));
        let (other, weak) = (one.clone(), Ref::downgrade(&one));
        assert!(one.is_same(&other) && one.count() == 2);
        drop(one);
        assert!(weak.upgrade().is_some_and(|again| again.is_same(&other)));
        assert_eq!((other.count(), Arc::strong_count(&told)), (1, 2));
        drop(other);
        assert_eq!(Arc::strong_count(&told), 1);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn a_stock_gives_out_as_many_as_it_has_and_keeps_none() {
        let told = Arc::new(());
        let mut stock = Stock::new(Arc::clone(&told), 3);
        let (one, other) = (stock.take().expect("one of three"), stock.take().expect("another"));
        assert!(one.is_same(&other) && Arc::ptr_eq(stock.get(), &told));
        assert_eq!(one.count(), 4);
        drop(one);
        drop(stock);
        assert_eq!((other.count(), Arc::strong_count(&told)), (1, 2));
        drop(other);
        assert_eq!(Arc::strong_count(&told), 1);
        let mut stock = Stock::new(Arc::clone(&told), 1);
        assert!(stock.take().is_some() && stock.take().is_none());
        drop(stock);
        assert_eq!(Arc::strong_count(&told), 1);
    }

    #[test]
    fn a_drop_that_panics_happens_once() {
        struct Panics(#[expect(dead_code, reason = "dropped")] Arc<()>);
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let told = Arc::new(());
        let one = Ref::counted(Panics(Arc::clone(&told)));
        let weak = Ref::downgrade(&one);
        assert!(crate::process::panic::catch(|| drop(one)).is_err());
        assert!(weak.upgrade().is_none() && Arc::strong_count(&told) == 1);
    }

    #[test]
    fn counts_add_up_on_many_threads() {
        let told = Arc::new(());
        for _ in 0..200 {
            let one = Ref::counted((7_u64, Arc::clone(&told)));
            let weak = Ref::downgrade(&one);
            thread::scope(|threads| {
                for _ in 0..2 {
                    let (own, weak) = (one.clone(), &weak);
                    threads.spawn(move || {
                        for _ in 0..50 {
                            assert_eq!(own.clone().0, 7);
                            drop(Ref::downgrade(&own));
                        }
                        drop(own);
                        // There, or not: never half.
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
