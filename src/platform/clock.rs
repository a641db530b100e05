//! The clock of a runtime, and the instants that the clock returns. The clock is either real or virtual.
//!
//! This file is the only file that reads a system clock. All other files receive an `Instant` or call a `Clock`.
//! Therefore, a simulation controls the time.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use crate::platform::sync::Arc;
#[cfg(target_os = "linux")]
use crate::platform::sync::OnceLock;
use crate::platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
use crate::platform::this_thread::THIS_THREAD;

/// A moment on the clock of a runtime, stored as the number of nanoseconds since the runtime was created. The clock is
/// either real or virtual.
///
/// The sum `Instant + Duration` is a later instant, and the difference `Instant - Duration` is an earlier instant. The
/// difference `Instant - Instant` is the `Duration` between the two instants. All operations saturate. The difference
/// `Instant - Instant` is zero if the first instant is earlier than the second instant. The result of subtracting a
/// `Duration` is never before the start. A sum is never later than the largest instant. The largest instant is about 584
/// years after the start, and means *never*. If a duration is subtracted from the largest instant, the result is the
/// largest instant. Do not compare instants of different runtimes: the result has no meaning.
///
/// With the feature `serde`, an instant implements `Serialize`. The serialized value is the number of nanoseconds since
/// the start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    /// The largest instant. This instant means *never*, and no clock reaches this instant.
    pub(crate) const FAR: Self = Self(u64::MAX);

    /// Returns the instant that is `ns` nanoseconds after the start.
    pub(crate) const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the number of nanoseconds since the start.
    pub(crate) const fn ns(self) -> u64 {
        self.0
    }

    /// Returns the time from the creation of the runtime to this instant.
    pub fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the time from `earlier` to this instant. If `earlier` is later than this instant, returns zero.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(whole_ns(time)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        if self == Self::FAR { self } else { Self(self.0.saturating_sub(whole_ns(time))) }
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, time: Duration) {
        *self = *self - time;
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Instant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FAR => f.write_str("Instant(never)"),
            Self(ns) => write!(f, "Instant({:?})", Duration::from_nanos(ns)),
        }
    }
}

/// The type `Instant` of the standard library, for conversions.
pub(crate) type StdInstant = std::time::Instant;

/// Source of a runtime's time. Clones share the same time.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// The system's monotonic clock. The time is counted from the creation of this value.
    Real(Origin),
    /// A virtual clock. The time of a virtual clock changes only when `advance` is called.
    Virtual(Arc<VirtualTime>),
}

/// Returns how often the calling thread has called [`Clock::now`].
#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
pub(crate) fn readings() -> u64 {
    THIS_THREAD.with(|this| this.clock_readings.get())
}

/// The time of a virtual clock.
#[derive(Debug)]
pub(crate) struct VirtualTime {
    ns: AtomicU64,
    /// True if the owner of the clock no longer advances the clock.
    has_stopped: AtomicBool,
}

impl Clock {
    pub(crate) fn real() -> Self {
        Self::Real(Origin::now())
    }

    /// Creates a virtual clock at the time 0. The time of the clock changes only when `advance` is called.
    pub(crate) fn virtual_() -> Self {
        Self::Virtual(Arc::new(VirtualTime { ns: AtomicU64::new(0), has_stopped: AtomicBool::new(false) }))
    }

    /// Returns whether this clock and `other` advance together. Two clocks may advance together, and may still count
    /// from different moments.
    pub(crate) fn advances_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Real(_), Self::Real(_)) => true,
            (Self::Virtual(time), Self::Virtual(other)) => Arc::ptr_eq(time, other),
            _ => false,
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// Marks a virtual clock as stopped: the clock no longer advances.
    pub(crate) fn stop(&self) {
        if let Self::Virtual(time) = self {
            time.has_stopped.store(true, Ordering::SeqCst);
        }
    }

    /// Returns whether the clock is a virtual clock that still advances.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Self::Virtual(time) if !time.has_stopped.load(Ordering::SeqCst))
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        #[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
        THIS_THREAD.with(|this| this.clock_readings.update(|count| count + 1));
        match self {
            // Under shuttle, the time is constant. This instant is not 0, so that earlier instants exist.
            Self::Real(_) if cfg!(procession_shuttle) => Instant(1_000_000_000),
            Self::Real(origin) => Instant(origin.elapsed().min(LAST)),
            // Acquire pairs with the release in `advance`. Therefore, a thread that sees the new time also sees all
            // writes before `advance`.
            Self::Virtual(time) => Instant(time.ns.load(Ordering::Acquire)),
        }
    }

    /// Converts an instant of this clock to an instant of the standard library. Returns `None` for a virtual clock, for
    /// [`Instant::FAR`], and for a moment that the standard library cannot represent.
    pub(crate) fn to_std(&self, at: Instant) -> Option<StdInstant> {
        match self {
            Self::Real(origin) if at != Instant::FAR => origin.to_std(at.0),
            _ => None,
        }
    }

    /// Converts an instant of the standard library to an instant of this clock. The result saturates at both ends.
    /// Returns `None` for a virtual clock.
    pub(crate) fn instant_of_std(&self, at: StdInstant) -> Option<Instant> {
        match self {
            Self::Real(origin) => Some(Instant(origin.instant_of_std(at))),
            Self::Virtual(_) => None,
        }
    }

    /// Advances a virtual clock, and returns the new time.
    ///
    /// # Panics
    /// Panics if the clock is a real clock.
    pub(crate) fn advance(&self, time: Duration) -> Instant {
        let Self::Virtual(clock) = self else { panic!("only a virtual clock can be advanced") };
        let step = |ns: u64| ns.saturating_add(whole_ns(time)).min(LAST);
        let before = clock
            .ns
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |ns| Some(step(ns)))
            .expect("the closure never returns `None`");
        Instant(step(before))
    }
}

/// Creation time of a real clock. This time is a reading of the system's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin(System);

/// Time of `CLOCK_MONOTONIC` in nanoseconds. On Linux, the `Instant` of the standard library uses the same clock, but
/// stores a pair of seconds and nanoseconds. If this clock stored pairs of seconds and nanoseconds, each subtraction
/// would have to combine the parts of two pairs. These subtractions would take a tenth of the time of setting and
/// cancelling a timer.
#[cfg(target_os = "linux")]
type System = u64;

#[cfg(not(target_os = "linux"))]
type System = std::time::Instant;

#[cfg(target_os = "linux")]
impl Origin {
    #[inline]
    fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Self(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Returns the elapsed time in nanoseconds.
    #[inline]
    fn elapsed(self) -> u64 {
        Self::now().0.saturating_sub(self.0)
    }

    /// Returns one moment in two forms: as a time of the type `System`, and as an instant of the standard library. All
    /// conversions of a program use the same pair. Therefore, if an instant is converted to the other type and back,
    /// the result is the same instant.
    fn pair() -> (u64, StdInstant) {
        static PAIR: OnceLock<(u64, StdInstant)> = OnceLock::new();
        *PAIR.get_or_init(|| closest_pair(|| (Self::now().0, StdInstant::now(), Self::now().0)))
    }

    fn to_std(self, ns: u64) -> Option<StdInstant> {
        let (paired, std) = Self::pair();
        let at = self.0.checked_add(ns)?;
        match at.checked_sub(paired) {
            Some(later) => std.checked_add(Duration::from_nanos(later)),
            None => std.checked_sub(Duration::from_nanos(paired - at)),
        }
    }

    fn instant_of_std(self, at: StdInstant) -> u64 {
        let (paired, std) = Self::pair();
        let system = match at.checked_duration_since(std) {
            Some(later) => paired.saturating_add(whole_ns(later)),
            None => paired.saturating_sub(whole_ns(std.saturating_duration_since(at))),
        };
        system.saturating_sub(self.0)
    }
}

/// Number of readings that [`closest_pair`] takes. A preemption of the thread may disturb some of these readings, but
/// is unlikely to disturb all of them.
#[cfg(target_os = "linux")]
const PAIR_READINGS: usize = 16;

/// Reads both clocks several times, and returns the pair with the smallest error. `read` first reads the clock of type
/// `System`, then the clock of the standard library, and then the clock of type `System` again.
///
/// The pair contains the later of the two `System` readings. Therefore, a conversion from the standard library never
/// returns an instant that is too early. The instant may be too late, at most by the time between the readings. A
/// conversion to the standard library never returns an instant that is too late. The instant may be too early, at most
/// by the same time.
#[cfg(target_os = "linux")]
fn closest_pair(read: impl FnMut() -> (u64, StdInstant, u64)) -> (u64, StdInstant) {
    let readings = std::iter::repeat_with(read).take(PAIR_READINGS);
    let closest = readings.min_by_key(|(before, _, after)| after.saturating_sub(*before));
    let (_, std, after) = closest.expect("there is at least one reading");
    (after, std)
}

#[cfg(not(target_os = "linux"))]
impl Origin {
    fn now() -> Self {
        Self(std::time::Instant::now())
    }

    /// Returns the elapsed time in nanoseconds.
    fn elapsed(self) -> u64 {
        whole_ns(self.0.elapsed())
    }

    fn to_std(self, ns: u64) -> Option<StdInstant> {
        self.0.checked_add(Duration::from_nanos(ns))
    }

    fn instant_of_std(self, at: StdInstant) -> u64 {
        whole_ns(at.saturating_duration_since(self.0))
    }
}

/// The latest time that a clock returns. This time is before `Instant::FAR`, so a timer at `Instant::FAR` never becomes
/// due.
const LAST: u64 = u64::MAX - 1;

/// Returns the number of nanoseconds of a duration. The result saturates. If the result of `as_nanos` were converted
/// to 64 bits instead, a duration of more than 584 years would wrap.
fn whole_ns(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate_at_both_ends() {
        let at = Instant::from_ns;
        let ns = Duration::from_nanos;
        assert_eq!(at(5) + ns(3), at(8));
        assert_eq!(at(5) - at(3), ns(2));
        assert_eq!(at(3) - at(5), Duration::ZERO);
        assert_eq!(at(u64::MAX - 1) + ns(1), Instant::FAR);
        assert_eq!(at(1) + Duration::MAX, Instant::FAR);
        assert_eq!(Instant::FAR + ns(1), Instant::FAR);
        assert_eq!(Instant::FAR - at(0), ns(u64::MAX));
        let mut moved = at(1);
        moved += Duration::from_secs(1);
        assert_eq!(moved.ns(), 1_000_000_001);
        assert_eq!(format!("{:?} {:?}", at(1_500_000), Instant::FAR), "Instant(1.5ms) Instant(never)");
    }

    #[test]
    fn the_method_advance_changes_the_time_of_a_virtual_clock_and_of_its_clones() {
        let clock = Clock::virtual_();
        let same = clock.clone();
        assert_eq!(same.now().ns(), 0);
        assert_eq!(clock.advance(Duration::from_millis(2)).ns(), 2_000_000);
        assert_eq!(same.now().ns(), 2_000_000);
        assert_eq!(same.advance(Duration::MAX).ns(), LAST);
        assert_eq!(clock.advance(Duration::from_nanos(1)).ns(), LAST);
        assert!(clock.now() < Instant::FAR);
    }

    #[test]
    fn the_real_clock_starts_near_zero_and_never_goes_back() {
        let clock = Clock::real();
        let mut last = clock.now();
        assert!(last.ns() < 60_000_000_000);
        for _ in 0..1_000 {
            let now = clock.clone().now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn instants_convert_to_the_standard_library_and_back() {
        let clock = Clock::real();
        let before = StdInstant::now();
        let now = clock.now();
        for at in [Instant(0), now, now + Duration::from_secs(3_600)] {
            let std = clock.to_std(at).expect("a real clock");
            assert_eq!(clock.instant_of_std(std), Some(at));
            assert_eq!(std.checked_duration_since(clock.to_std(Instant(0)).unwrap()), Some(at - Instant(0)));
        }
        assert_eq!(clock.instant_of_std(clock.to_std(Instant(0)).unwrap() - Duration::from_nanos(1)), Some(Instant(0)));
        assert_eq!(clock.to_std(Instant::FAR), None);
        // A deadline of the standard library is converted to an instant of `clock`. When `clock` reaches this
        // instant, the deadline has also passed in the standard library.
        assert!(clock.instant_of_std(before).unwrap() <= now + Duration::from_millis(1));
        let late = clock.instant_of_std(StdInstant::now()).unwrap();
        while clock.now() < late {}
        let clock = Clock::virtual_();
        assert_eq!((clock.to_std(clock.now()), clock.instant_of_std(before)), (None, None));
    }

    /// A preemption between the readings of two clocks does not change the conversion.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_pair_of_clock_readings_has_the_smallest_error() {
        let start = StdInstant::now();
        let at = |ns| start + Duration::from_nanos(ns);
        let mut readings = 0;
        let pair = closest_pair(|| {
            readings += 1;
            let before = readings * 1_000_000;
            match readings {
                // The thread is preempted before the reading of the standard library's clock, or after this reading.
                1 => (before, at(before + 500_000), before + 500_020),
                3 => (before, at(before + 30), before + 50),
                _ => (before, at(before + 20), before + 900_000),
            }
        });
        assert_eq!(pair, (3_000_050, at(3_000_030)));
    }

    #[test]
    #[should_panic = "only a virtual clock"]
    fn the_real_clock_cannot_be_advanced() {
        Clock::real().advance(Duration::ZERO);
    }
}
