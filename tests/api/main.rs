//! Twenty small programs, written as a user of the crate would write them. The programs protect the API: if a change of
//! the API breaks one of these programs, the change also breaks programs of users. The test also runs each program that
//! always ends with the same result.
#![allow(
    dead_code,
    unused,
    unreachable_pub,
    unused_qualifications,
    missing_docs,
    clippy::all,
    clippy::disallowed_types
)]

mod p01_hello;
mod p02_counter;
mod p03_raw;
mod p04_init;
mod p05_inflight;
mod p06_handlers;
mod p07_borrow;
mod p08_links;
mod p09_supervisor;
mod p10_bounded;
mod p11_names;
#[cfg(feature = "tokio")]
mod p12_tokio;
mod p13_executors;
mod p14_local;
mod p15_timers;
mod p16_sim;
mod p17_scope;
mod p18_stream;
mod p19_errors;
mod p20_auto;

/// Runs the program. Fails if the program returns an error.
macro_rules! programs {
    ($($(#[$attribute:meta])* $module:ident;)*) => {
        $(#[test]
        $(#[$attribute])*
        fn $module() {
            use std::process::Termination;
            let report = crate::$module::main().report();
            assert_eq!(format!("{report:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
        })*
    };
}

/// Runs the programs that always end with the same result. The other programs are only compiled. The programs p03 and
/// p14 wait for processes that do not exit. The program p16 sleeps for an hour of real time. The program p09 calls a
/// process that may crash before the process answers, so the result of p09 depends on the schedule.
mod runs {
    programs! {
        p01_hello;
        p02_counter;
        p04_init;
        p05_inflight;
        p06_handlers;
        p07_borrow;
        p08_links;
        p10_bounded;
        p11_names;
        #[cfg(feature = "tokio")]
        p12_tokio;
        p13_executors;
        p15_timers;
        p17_scope;
        p18_stream;
        p19_errors;
        p20_auto;
    }
}
