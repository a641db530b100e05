//! The names of one process, in the order of their registration. Most processes have no name or one name, so a short
//! list is a vector. A process may also register many names and unregister them one by one. Therefore a long list
//! finds a name without a search through the whole list.

use std::collections::BTreeMap;

use crate::host::registry::names::Text;

/// Maximum number of names in a vector. Unit tests and models use a small number.
const SHORT: usize = if cfg!(any(test, procession_loom)) { 3 } else { 32 };

/// The names of one process.
#[derive(Debug)]
pub(crate) enum OwnNames {
    Short(Vec<Text>),
    Long(Box<Numbered>),
}

/// A long list of names. Each name has a number. A later name has a higher number.
#[derive(Debug, Default)]
pub(crate) struct Numbered {
    names: BTreeMap<u64, Text>,
    numbers: BTreeMap<Text, u64>,
    next: u64,
}

impl Default for OwnNames {
    fn default() -> Self {
        Self::Short(Vec::new())
    }
}

impl OwnNames {
    /// Adds a name that is not in the list.
    pub(crate) fn push(&mut self, name: Text) {
        match self {
            Self::Short(names) if names.len() < SHORT => names.push(name),
            Self::Short(names) => {
                let mut long = Box::<Numbered>::default();
                names.drain(..).chain([name]).for_each(|name| long.push(name));
                *self = Self::Long(long);
            }
            Self::Long(long) => long.push(name),
        }
    }

    /// Removes a name. Returns false if the name is not in the list.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        match self {
            Self::Short(names) => {
                let Some(place) = names.iter().position(|owned| owned == name) else { return false };
                // This removal keeps the order of the list.
                names.remove(place);
                true
            }
            Self::Long(long) => {
                let Some(number) = long.numbers.remove(name) else { return false };
                long.names.remove(&number);
                true
            }
        }
    }

    /// Returns the oldest name.
    pub(crate) fn first(&self) -> Option<&Text> {
        match self {
            Self::Short(names) => names.first(),
            Self::Long(long) => long.names.first_key_value().map(|(_, name)| name),
        }
    }

    /// Returns the names. The oldest name comes first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Text> {
        let (short, long) = match self {
            Self::Short(names) => (Some(names.iter()), None),
            Self::Long(long) => (None, Some(long.names.values())),
        };
        short.into_iter().flatten().chain(long.into_iter().flatten())
    }
}

impl Numbered {
    fn push(&mut self, name: Text) {
        self.names.insert(self.next, name.clone());
        self.numbers.insert(name, self.next);
        self.next += 1;
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::random::Rng;

    /// The control block of a process contains the list. Therefore a list without names must be as small as a vector.
    #[test]
    fn a_list_is_as_small_as_a_vector() {
        assert_eq!(size_of::<OwnNames>(), size_of::<Vec<Text>>());
    }

    #[test]
    fn short_and_long_lists_keep_the_names_in_the_order_of_their_registration() {
        let mut chance = Rng::seeded(1);
        for longest in [2, 3, 4, 20] {
            let (mut names, mut expected) = (OwnNames::default(), Vec::<Text>::new());
            for round in 0..2_000 {
                if expected.len() < longest && chance.below(2) == 0 {
                    let name = Text::from(format!("name {round}"));
                    names.push(name.clone());
                    expected.push(name);
                } else if !expected.is_empty() {
                    let name = expected.remove(chance.below(expected.len()));
                    assert!(names.remove(&name) && !names.remove(&name));
                }
                assert_eq!(names.first(), expected.first());
                assert!(names.iter().eq(&expected), "{names:?} is not {expected:?}");
            }
            assert_eq!(matches!(names, OwnNames::Long(_)), longest > SHORT);
        }
    }
}
