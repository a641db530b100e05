//! Lists the first entries of a table of names, for inspection. The table is read in pieces, so that the lock of a
//! shard is held only briefly.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::host::registry::names::Text;
use crate::observe::Listing;
use crate::platform::sync::Mutex;

/// Maximum number of entries that are read under one lock operation.
const PIECE: usize = 256;

/// Lists the first `limit` entries whose names begin with `prefix`, in the order of the names. This function also
/// counts all entries whose names begin with `prefix`.
///
/// The function stores at most `limit` rows. The function holds the lock of a shard only while it reads one piece of
/// the shard. Under this lock, the function clones at most one name for each entry of the piece, clones the name of the
/// last entry once more, and calls the closure `row`. `row` must take no lock and must not clone a reference to a
/// process: the drop of a last reference would run user code.
pub(super) fn list<'a, V: 'a, R>(
    shards: impl Iterator<Item = &'a Mutex<BTreeMap<Text, V>>>,
    prefix: &str,
    limit: usize,
    row: impl Fn(&Text, &V) -> R,
) -> Listing<R> {
    let mut first = First { limit, rows: BTreeMap::new() };
    let mut count = 0;
    for shard in shards {
        let mut last = None;
        loop {
            let (read, end) = first.read_piece(shard, prefix, last.as_deref(), &row);
            count += read;
            if end.is_none() {
                break;
            }
            last = end;
        }
    }
    Listing { rows: first.rows.into_values().collect(), count }
}

/// Of the entries that were read so far, the first `limit` entries in the order of the names.
struct First<R> {
    limit: usize,
    rows: BTreeMap<Text, R>,
}

impl<R> First<R> {
    /// Reads the entries after the name `last`. Returns the number of these entries. If the shard may contain more
    /// entries, this function also returns the name of the last entry that was read.
    fn read_piece<V>(
        &mut self,
        shard: &Mutex<BTreeMap<Text, V>>,
        prefix: &str,
        last: Option<&str>,
        row: impl Fn(&Text, &V) -> R,
    ) -> (usize, Option<Text>) {
        let from = last.map_or(Bound::Included(prefix), Bound::Excluded);
        let shard = shard.lock();
        let selected = shard.range::<str, _>((from, Bound::Unbounded)).take_while(|(name, _)| name.starts_with(prefix));
        let (mut count, mut end) = (0, None);
        for (name, value) in selected.take(PIECE) {
            if self.has_room(name) {
                self.rows.insert(name.clone(), row(name, value));
            }
            if self.rows.len() > self.limit {
                self.rows.pop_last();
            }
            (count, end) = (count + 1, Some(name));
        }
        (count, end.filter(|_| count == PIECE).cloned())
    }

    fn has_room(&self, name: &Text) -> bool {
        self.rows.len() < self.limit || self.rows.last_key_value().is_some_and(|(last, _)| name < last)
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    /// Puts the numbers below `count` into three shards.
    fn shards(count: usize) -> Vec<Mutex<BTreeMap<Text, usize>>> {
        let name = |number| Text::from(format!("n{number:05}"));
        let mut maps: Vec<BTreeMap<Text, usize>> = vec![BTreeMap::new(); 3];
        (0..count).for_each(|number| _ = maps[number % 3].insert(name(number), number));
        maps.into_iter().map(Mutex::new).collect()
    }

    #[test]
    fn the_first_rows_of_all_shards_are_listed_in_order_and_all_entries_are_counted() {
        // Each shard has several pieces. Two shards end with a whole piece.
        let shards = shards(3 * 2 * PIECE + 1);
        let listed = |prefix: &str, limit| {
            let Listing { rows, count } = list(shards.iter(), prefix, limit, |_, number| *number);
            (rows, count)
        };
        assert_eq!(listed("", 5), (vec![0, 1, 2, 3, 4], 3 * 2 * PIECE + 1));
        assert_eq!(listed("n001", 3), (vec![100, 101, 102], 100));
        assert_eq!(listed("n0153", usize::MAX), ((1530..=1536).collect(), 7));
        assert_eq!(listed("n0", 0), (vec![], 3 * 2 * PIECE + 1));
        assert_eq!((listed("m", 9), listed("n00001x", 9), listed("o", 9)), ((vec![], 0), (vec![], 0), (vec![], 0)));
    }

    /// The listing creates a row for a name only if fewer than `limit` rows are stored, or if the name sorts before a
    /// stored name.
    #[test]
    fn the_number_of_stored_rows_is_bounded() {
        let shards = shards(3 * PIECE);
        let made = std::cell::Cell::new(0);
        let listing = list(shards.iter(), "", 2, |_, _| made.set(made.get() + 1));
        assert_eq!((listing.rows.len(), listing.count), (2, 3 * PIECE));
        assert!(made.get() <= 3 * 2, "{}", made.get());
    }
}
