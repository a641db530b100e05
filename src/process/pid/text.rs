//! Parses the text form of a pid. If the current thread runs a simulation, a text with the node 0 and without an
//! incarnation is a pid of that simulation.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::process::exit::Exit;
use crate::process::pid::Pid;
use crate::process::state::current::Current;

impl FromStr for Pid {
    type Err = ParsePidError;

    /// Parses exactly the text that `Display` writes. Spaces, signs, leading zeros and uppercase digits are errors.
    ///
    /// # Errors
    /// Returns an error that says which part of the text is wrong.
    fn from_str(text: &str) -> Result<Self, ParsePidError> {
        use Wrong::*;
        let inner = text.strip_prefix('<').and_then(|t| t.strip_suffix('>')).ok_or(ParsePidError(Brackets))?;
        let mut parts = inner.split('.');
        let (Some(node), Some(index), Some(generation), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ParsePidError(Parts));
        };
        let (node, incarnation) = match node.split_once('-') {
            None => (node, 0),
            Some((node, hex)) => match number(hex, 16) {
                None | Some(0) => return Err(ParsePidError(Incarnation)),
                Some(incarnation) => (node, incarnation),
            },
        };
        let node = number(node, 10).ok_or(ParsePidError(Node))?;
        let index = number(index, 10).ok_or(ParsePidError(Index))?;
        let generation = number(generation, 10).ok_or(ParsePidError(Generation))?;
        Self::from_parts(node, incarnation, index, generation)
    }
}

impl Pid {
    /// Creates the pid whose text contains these numbers. For a text without an incarnation, for example the text of
    /// a simulated pid, `incarnation` is 0.
    pub(super) fn from_parts(node: u32, incarnation: u32, index: u32, generation: u32) -> Result<Self, ParsePidError> {
        let incarnation = match (node, incarnation) {
            // If `node` is 0, and `incarnation` is even and not 0, then `incarnation` is the number of a simulation. A
            // pid of a simulation is printed without an incarnation, so no valid text contains the number of a
            // simulation.
            (0, 2..) if incarnation.is_multiple_of(2) => return Err(ParsePidError(Wrong::Incarnation)),
            (0, 0) => Current::try_with(|current| current.simulation.get()).unwrap_or(0),
            _ => incarnation,
        };
        match generation {
            0 => Err(ParsePidError(Wrong::Generation)),
            _ => Ok(Self::new(node, incarnation, index, generation)),
        }
    }
}

/// Parses a number in the form that `Display` writes. `from_str_radix` alone would accept `+1`, `007` and `FF`.
fn number(digits: &str, radix: u32) -> Option<u32> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    let shortest = digits == "0" || !digits.starts_with('0');
    if plain && shortest { u32::from_str_radix(digits, radix).ok() } else { None }
}

/// Error that parsing returns if the text is not a pid. The error message says which part of the text is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsePidError(Wrong);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Brackets,
    Parts,
    Node,
    Incarnation,
    Index,
    Generation,
}

impl fmt::Display for ParsePidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Wrong::Brackets => "not a pid: it must stand between `<` and `>`",
            Wrong::Parts => "not a pid: it must have three parts, `<node.index.generation>`",
            Wrong::Node => "not a pid: the node must be a decimal number of 32 bits",
            Wrong::Incarnation => {
                "not a pid: the incarnation must be a hexadecimal number of 32 bits, not 0, and odd if the node is 0"
            }
            Wrong::Index => "not a pid: the index must be a decimal number of 32 bits",
            Wrong::Generation => "not a pid: the generation must be a decimal number of 32 bits, and not 0",
        })
    }
}

impl Error for ParsePidError {}

impl From<ParsePidError> for Exit {
    fn from(error: ParsePidError) -> Self {
        Self::failed(error)
    }
}

/// Guard for the pids of one simulation. Until the guard is dropped, the text of a simulated pid parses to a pid of
/// this simulation. Guards must be dropped in the reverse order of their creation.
#[derive(Debug)]
#[must_use]
pub(crate) struct Simulated {
    outer: u32,
}

impl Simulated {
    /// Creates the guard for the simulation with this incarnation.
    pub(crate) fn enter(incarnation: u32) -> Self {
        Self { outer: Current::with(|current| current.simulation.replace(incarnation)) }
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        Current::with(|current| current.simulation.set(self.outer));
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{Hash, Hasher};

    use super::*;

    #[test]
    fn a_pid_is_printed_and_parsed_without_a_change() {
        let max = u32::MAX;
        for (pid, text) in [
            (Pid::new(0, 0, 0, 1), "<0.0.1>"),
            (Pid::new(1, 0, 7, 2), "<1.7.2>"),
            (Pid::new(1, 0x9f3c, 7, 2), "<1-9f3c.7.2>"),
            (Pid::new(0, 11, 0, 10), "<0-b.0.10>"),
            (Pid::new(2, 10, 0, 10), "<2-a.0.10>"),
            (Pid::new(max, max, max, max), "<4294967295-ffffffff.4294967295.4294967295>"),
            (Pid::new(max, 0, 0, max), "<4294967295.0.4294967295>"),
        ] {
            assert_eq!(pid.to_string(), text);
            assert_eq!(format!("{pid:?}"), text);
            assert_eq!(text.parse(), Ok(pid));
        }
        assert_eq!(format!("{:>9}|{:<9}|", Pid::new(1, 0, 7, 2), Pid::new(1, 0, 7, 3)), "  <1.7.2>|<1.7.3>  |");
    }

    #[test]
    fn the_text_of_every_pid_parses_to_the_same_pid() {
        let edges = [0, 1, 2, 9, 10, 15, 16, 255, 256, 65_535, 1 << 31, u32::MAX - 1, u32::MAX];
        for node in edges {
            for incarnation in edges.into_iter().filter(|n| node != 0 || *n == 0 || n % 2 == 1) {
                for index in edges {
                    for generation in edges.into_iter().skip(1) {
                        let pid = Pid::new(node, incarnation, index, generation);
                        assert_eq!(
                            (pid.node(), pid.incarnation(), pid.index(), pid.generation()),
                            (node, incarnation, index, generation)
                        );
                        assert_eq!(pid.to_string().parse(), Ok(pid));
                    }
                }
            }
        }
    }

    #[test]
    fn the_error_of_a_wrong_pid_text_names_the_wrong_part() {
        for (text, wrong) in [
            ("", Wrong::Brackets),
            ("<", Wrong::Brackets),
            ("1.2.3", Wrong::Brackets),
            ("<1.2.3", Wrong::Brackets),
            (" <1.2.3>", Wrong::Brackets),
            ("<1.2.3>\n", Wrong::Brackets),
            ("<>", Wrong::Parts),
            ("<1.2>", Wrong::Parts),
            ("<1.2.3.4>", Wrong::Parts),
            ("<.2.3>", Wrong::Node),
            ("<+1.2.3>", Wrong::Node),
            ("<01.2.3>", Wrong::Node),
            ("< 1.2.3>", Wrong::Node),
            ("<4294967296.2.3>", Wrong::Node),
            ("<-f.2.3>", Wrong::Node),
            ("<1-.2.3>", Wrong::Incarnation),
            ("<1-0.2.3>", Wrong::Incarnation),
            ("<1-0a.2.3>", Wrong::Incarnation),
            ("<0-a.2.3>", Wrong::Incarnation),
            ("<1-F.2.3>", Wrong::Incarnation),
            ("<1-+f.2.3>", Wrong::Incarnation),
            ("<1-f-f.2.3>", Wrong::Incarnation),
            ("<1-100000000.2.3>", Wrong::Incarnation),
            ("<1..3>", Wrong::Index),
            ("<1.a.3>", Wrong::Index),
            ("<1.-1.3>", Wrong::Index),
            ("<1.4294967296.3>", Wrong::Index),
            ("<1.2.>", Wrong::Generation),
            ("<1.2.0>", Wrong::Generation),
            ("<1.2.00>", Wrong::Generation),
            ("<1.2.٣>", Wrong::Generation),
            ("<1.2.4294967296>", Wrong::Generation),
        ] {
            assert_eq!(text.parse::<Pid>(), Err(ParsePidError(wrong)), "{text:?}");
        }
    }

    #[test]
    fn pids_of_two_simulations_have_the_same_text_and_are_different() {
        fn hash(pid: Pid) -> u64 {
            let mut hasher = std::hash::DefaultHasher::new();
            pid.hash(&mut hasher);
            hasher.finish()
        }
        let (one, other) = (Pid::new(0, 2, 7, 1), Pid::new(0, 4, 7, 1));
        assert_ne!(one, other);
        assert_eq!((one.to_string(), one.incarnation()), ("<0.7.1>".into(), 0));
        assert_eq!((other.to_string(), hash(other)), (one.to_string(), hash(one)));
        let parsed = || "<0.7.1>".parse();
        let outer = Simulated::enter(2);
        let inner = Simulated::enter(4);
        assert_eq!(parsed(), Ok(other));
        drop(inner);
        assert_eq!(parsed(), Ok(one));
        drop(outer);
        assert_eq!(parsed(), Ok(Pid::new(0, 0, 7, 1)));
    }
}
