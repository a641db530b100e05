//! A set of byte strings. A random member can be removed from the set.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{Bytes, hash, smaller_capacity};

/// Value of a key of the type `set`.
#[derive(Debug)]
pub(crate) struct Set {
    hasher: FixedState,
    members: HashTable<Bytes>,
}

impl Set {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { hasher, members: HashTable::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.members.iter()
    }

    pub(crate) fn contains(&self, member: &[u8]) -> bool {
        self.members.find(hash(&self.hasher, member), |present| **present == *member).is_some()
    }

    /// Adds a member. Returns false if the set already had this member.
    pub(crate) fn insert(&mut self, member: &[u8]) -> bool {
        let place = self.members.entry(
            hash(&self.hasher, member),
            |present| **present == *member,
            |present| hash(&self.hasher, present),
        );
        match place {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(member.into());
                true
            }
        }
    }

    /// Removes a member. Returns false if the set did not have this member.
    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let found = self.members.find_entry(hash(&self.hasher, member), |present| **present == *member);
        found.map(|entry| drop(entry.remove())).is_ok()
    }

    /// Removes a random member and returns this member. Each member has the same probability.
    ///
    /// The function tries random places of the table until the function finds a member. Unless the table is small, the
    /// table has at most eight times as many places as members. So the average number of attempts is bounded.
    pub(crate) fn pop(&mut self, random: &mut Random) -> Option<Bytes> {
        while !self.members.is_empty() {
            // The number of places is a power of two, so the remainder has no bias.
            let place = random.number() % self.members.num_buckets() as u64;
            if let Ok(entry) = self.members.get_bucket_entry(place as usize) {
                let (member, _) = entry.remove();
                self.shrink();
                return Some(member);
            }
        }
        None
    }

    /// Returns memory to the system if the set uses only a small part of its memory.
    pub(super) fn shrink(&mut self) {
        if let Some(capacity) = smaller_capacity(self.members.len(), self.members.num_buckets()) {
            self.members.shrink_to(capacity, |member| hash(&self.hasher, member));
        }
    }

    /// Returns the number of members for which the set has memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.members.capacity()
    }
}

/// A generator of random numbers. The algorithm is SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(count: u32) -> Set {
        let mut set = Set::new(FixedState::with_seed(7));
        for n in 0..count {
            assert!(set.insert(&n.to_be_bytes()));
        }
        set
    }

    #[test]
    fn each_member_is_removed_with_the_same_probability() {
        let mut random = Random::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            let first = set(10).pop(&mut random).expect("a member");
            counts[usize::from(first[3])] += 1;
        }
        // The standard deviation is 30.
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_removal_of_random_members_removes_each_member_once_and_shrinks_the_set() {
        const COUNT: u32 = 10_000;
        let (mut random, mut set) = (Random::new(1), set(COUNT));
        let mut removed: Vec<_> = (10..COUNT).map(|_| set.pop(&mut random).expect("a member")).collect();
        assert!(set.len() == 10 && set.capacity() <= 100, "{}", set.capacity());
        assert!(removed.iter().all(|member| !set.contains(member)));
        removed.extend(std::iter::from_fn(|| set.pop(&mut random)));
        removed.sort_unstable();
        assert!(removed.into_iter().eq((0..COUNT).map(|n| Bytes::from(n.to_be_bytes()))));
    }
}
