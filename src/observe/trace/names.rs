//! Labels of processes. A record contains only the number of a label, because a record has a fixed size.

use std::collections::BTreeMap;

/// If the table has at least this number of labels, the label of a new process contains only the type of the process.
/// Without this limit, a program with a new name for each process would need unbounded memory. The number of types in a
/// program is bounded.
const MOST: usize = 1 << 16;

/// Label of the processes whose type is not known.
const OTHERS: &str = "process";

/// A table of labels, which only grows.
#[derive(Debug)]
pub(super) struct Names {
    numbers: BTreeMap<String, u32>,
    /// The text and the type name of each label.
    labels: Vec<(String, &'static str)>,
    /// The type name and the number of the most recent label without a name and without an entry point. This field
    /// saves a search, because processes of one type are often spawned one after the other.
    recent: Option<(&'static str, u32)>,
    /// Total length of the texts in `labels`, in bytes. Without this field, the code would have to add the lengths of
    /// all labels while it holds the lock of the table.
    text_bytes: usize,
}

impl Names {
    pub(super) fn new() -> Self {
        let labels = vec![(OTHERS.to_owned(), "")];
        Self { numbers: BTreeMap::new(), labels, recent: None, text_bytes: OTHERS.len() }
    }

    /// Number of bytes of the table, without the unused places of its tree.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.labels.capacity() * size_of::<(String, &str)>();
        // The tree contains a second copy of each text.
        rows + self.numbers.len() * size_of::<(String, u32)>() + 2 * self.text_bytes
    }

    /// Returns the number of the label for a process with this name, type and entry point. The text `entry`
    /// is empty if the process has no entry point. If the table is full, the label may contain only the type.
    pub(super) fn number(&mut self, name: Option<&str>, type_name: &'static str, entry: &str) -> u32 {
        match (name, entry) {
            (None, "") => match self.recent {
                Some((recent, number)) if std::ptr::eq(recent, type_name) => number,
                _ => {
                    let number = self.intern(type_name, type_name);
                    self.recent = Some((type_name, number));
                    number
                }
            },
            (None, _) => self.intern(&format!("{type_name}::{entry}"), type_name),
            (Some(name), "") => self.intern(&format!("{name} ({type_name})"), type_name),
            (Some(name), _) => self.intern(&format!("{name} ({type_name}::{entry})"), type_name),
        }
    }

    /// Returns the label with this number.
    pub(super) fn text(&self, number: u32) -> &str {
        self.labels.get(number as usize).map_or(OTHERS, |(text, _)| text)
    }

    /// Returns the type name of the label with this number. The type name is empty for the label 0.
    pub(super) fn type_name(&self, number: u32) -> &'static str {
        self.labels.get(number as usize).map_or("", |(_, type_name)| type_name)
    }

    fn intern(&mut self, label: &str, type_name: &'static str) -> u32 {
        if let Some(number) = self.numbers.get(label) {
            return *number;
        }
        if self.labels.len() >= MOST && label != type_name {
            return self.intern(type_name, type_name);
        }
        let number = self.labels.len() as u32;
        self.labels.push((label.to_owned(), type_name));
        self.text_bytes += label.len();
        self.numbers.insert(label.to_owned(), number);
        number
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_label_contains_the_name_and_the_type_and_the_entry_point_of_the_process() {
        let mut names = Names::new();
        let mut label = |name, type_name, entry| {
            let number = names.number(name, type_name, entry);
            assert_eq!(names.number(name, type_name, entry), number);
            assert_eq!(names.type_name(number), type_name);
            names.text(number).to_owned()
        };
        assert_eq!(label(None, "app::Cache", ""), "app::Cache");
        assert_eq!(label(None, "app::Cache", "warm"), "app::Cache::warm");
        assert_eq!(label(Some("c"), "app::Cache", ""), "c (app::Cache)");
        assert_eq!(label(Some("c"), "app::Cache", "warm"), "c (app::Cache::warm)");
    }

    #[test]
    fn the_number_of_labels_is_bounded_and_each_type_has_a_label() {
        let mut names = Names::new();
        for number in 0..MOST + 10 {
            names.number(Some(&number.to_string()), "T", "");
        }
        for (name, entry) in [(Some("one more"), ""), (Some("one more"), "entry"), (None, "entry"), (None, "")] {
            for type_name in ["T", "U"] {
                let number = names.number(name, type_name, entry);
                assert_eq!((names.text(number), names.type_name(number)), (type_name, type_name));
            }
        }
        assert_eq!(names.labels.len(), MOST + 2);
        assert_eq!((names.text(0), names.text(u32::MAX)), ("process", "process"));
    }
}
