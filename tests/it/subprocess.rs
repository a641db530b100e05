//! Runs a test a second time in a separate operating system process. Some faults terminate or block a whole program, so
//! each test of such a fault runs in its own process.
//!
//! A test calls [`role`] first. In the child, `role` returns the argument, and the test causes the fault. In the
//! parent, `role` returns `None`. Then the parent calls [`again`] with its own test function, and checks the output and
//! the exit status of the child.

#![allow(dead_code)] // Several test binaries include this file, and each test binary uses only a part of this file.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const ROLE: &str = "PROCESSION_SUBPROCESS";

/// Returns the argument that the parent gave to [`again`], or `None` in the parent.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Exit status and output of a child.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Exit status, or `None` if the child did not exit in time and was killed.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Asserts that the child passed its test.
    #[track_caller]
    pub(crate) fn passed(&self) -> &Self {
        assert!(self.status.is_some_and(|status| status.success()), "the child did not pass: {self:#?}");
        self
    }

    /// Asserts that the child exited within its time limit, with a failure status or by a signal.
    #[track_caller]
    pub(crate) fn died(&self) -> &Self {
        assert!(self.status.is_some_and(|status| !status.success()), "the child did not die in time: {self:#?}");
        self
    }

    /// Returns the signal that terminated the child.
    #[cfg(unix)]
    pub(crate) fn signal(&self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.status?)
    }
}

/// Runs the test function `test` of this binary in a child process. In the child, [`role`] returns `argument`. The time
/// limit is `seconds`, multiplied by the factor `TEST_PATIENCE`. The child is killed if it has not exited within this
/// time limit.
#[track_caller]
pub(crate) fn again<F: Fn()>(test: F, argument: &str, seconds: u64) -> Ran {
    again_with(test, argument, seconds, |_| {})
}

/// Like [`again`], but calls `prepare` to configure the command of the child.
#[track_caller]
pub(crate) fn again_with<F: Fn()>(_: F, argument: &str, seconds: u64, prepare: impl FnOnce(&mut Command)) -> Ran {
    // The name of a function's type is the path of the function. This path begins with the name of the binary.
    let (_, test) = std::any::type_name::<F>().split_once("::").expect("a test function");
    let mut command = Command::new(std::env::current_exe().expect("the path of this binary"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(ROLE, argument).env("RUST_BACKTRACE", "0");
    prepare(&mut command);
    let ran = run(&mut command, seconds);
    assert!(ran.stdout.contains("running 1 test"), "the child did not run {test}: {ran:#?}");
    ran
}

/// Runs a command. The time limit is `seconds`, multiplied by the factor `TEST_PATIENCE`. If the command has not exited
/// within this time limit, the command is killed.
pub(crate) fn run(command: &mut Command, seconds: u64) -> Ran {
    let patience = std::env::var("TEST_PATIENCE").map_or(1, |times| times.parse().expect("a number"));
    let deadline = Instant::now() + Duration::from_secs(seconds) * patience;
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child process");
    let stdout = gather(child.stdout.take().expect("piped"));
    let stderr = gather(child.stderr.take().expect("piped"));
    let status = wait(&mut child, deadline);
    // A grandchild that is still running keeps the pipes open. Therefore the read of the output has a time limit too.
    let rest = |from: mpsc::Receiver<Vec<u8>>| {
        let mut all = Vec::new();
        while let Ok(part) =
            from.recv_timeout(deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1)))
        {
            all.extend(part);
        }
        String::from_utf8_lossy(&all).into_owned()
    };
    Ran { status, stdout: rest(stdout), stderr: rest(stderr) }
}

/// Returns the exit status of the child, or `None` if the child was killed at the deadline.
fn wait(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("the state of the child") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("the child can be killed");
    child.wait().expect("a killed child ends");
    None
}

/// Reads the output of a child on another thread. Without a reader, the child would block when its pipe is full.
fn gather(mut from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (to, parts) = mpsc::channel();
    thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut part) {
            let _ = to.send(part[..length].to_vec());
        }
    });
    parts
}

/// The helper reports four kinds of children correctly: a child that passes, fails, aborts, or hangs.
#[test]
fn the_helper_reports_every_way_in_which_a_child_exits() {
    match role().as_deref() {
        None => {}
        Some("passes") => return println!("here"),
        Some("fails") => panic!("on purpose"),
        Some("aborts") => std::process::abort(),
        Some(_) => loop {
            thread::park();
        },
    }
    let ran = |role, seconds| again(the_helper_reports_every_way_in_which_a_child_exits, role, seconds);
    assert!(ran("passes", 60).passed().stdout.contains("here"));
    assert!(ran("fails", 60).died().stderr.contains("on purpose"));
    #[cfg(unix)]
    assert_eq!(ran("aborts", 60).died().signal(), Some(6));
    assert!(ran("hangs", 1).status.is_none());
}
