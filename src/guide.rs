//! (new folder)

pub mod lives;
pub mod scheduling;
