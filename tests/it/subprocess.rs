//! Runs a test again in an operating system process of its own, for faults that end or hang a whole program.
//!
//! A test calls [`role`] first. In the child that returns the argument, and the test does what it is about. In the parent
//! it returns nothing, and the test calls [`again`] with its own name and checks what the child printed and how it ended.

#![allow(dead_code)] // Test binaries that include this file use different parts of it.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const ROLE: &str = "PROCESSION_SUBPROCESS";

/// The argument that the parent gave to [`again`], if this is the child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// How a child ended, and all that it printed.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Nothing if the child did not end in time and was killed.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The child passed its test.
    #[track_caller]
    pub(crate) fn passed(&self) -> &Self {
        assert!(self.status.is_some_and(|status| status.success()), "the child did not pass: {self:#?}");
        self
    }

    /// The child ended in time, by an error or a signal.
    #[track_caller]
    pub(crate) fn died(&self) -> &Self {
        assert!(self.status.is_some_and(|status| !status.success()), "the child did not die in time: {self:#?}");
        self
    }

    /// The signal that ended the child.
    #[cfg(unix)]
    pub(crate) fn signal(&self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.status?)
    }
}

/// Runs `test`, a test function of this binary, in a child in which [`role`] returns `argument`. The child is killed if it
/// has not ended after `seconds`, times `TEST_PATIENCE`.
#[track_caller]
pub(crate) fn again<F: Fn()>(test: F, argument: &str, seconds: u64) -> Ran {
    again_with(test, argument, seconds, |_| {})
}

/// As [`again`], with a child that `prepare` has set up.
#[track_caller]
pub(crate) fn again_with<F: Fn()>(_: F, argument: &str, seconds: u64, prepare: impl FnOnce(&mut Command)) -> Ran {
    // A function's type is named by its path, which begins with the name of the binary.
    let (_, test) = std::any::type_name::<F>().split_once("::").expect("a test function");
    let mut command = Command::new(std::env::current_exe().expect("the path of this binary"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(ROLE, argument).env("RUST_BACKTRACE", "0");
    prepare(&mut command);
    let ran = run(&mut command, seconds);
    assert!(ran.stdout.contains("running 1 test"), "the child did not run {test}: {ran:#?}");
    ran
}

/// Runs a command with a time limit.
pub(crate) fn run(command: &mut Command, seconds: u64) -> Ran {
    let patience = std::env::var("TEST_PATIENCE").map_or(1, |times| times.parse().expect("a number"));
    let deadline = Instant::now() + Duration::from_secs(seconds) * patience;
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child process");
    let stdout = gather(child.stdout.take().expect("piped"));
    let stderr = gather(child.stderr.take().expect("piped"));
    let status = wait(&mut child, deadline);
    // A grandchild that still runs keeps the pipes open: do not wait for it for ever.
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

/// How the child ended. A child that has not ended at the deadline is killed.
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

/// Reads what a child prints, on a thread of its own: a child with a full pipe would wait.
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

/// The helper reports a child that passes, one that fails, one that aborts and one that hangs.
#[test]
fn children_end_in_every_way() {
    match role().as_deref() {
        None => {}
        Some("passes") => return println!("here"),
        Some("fails") => panic!("on purpose"),
        Some("aborts") => std::process::abort(),
        Some(_) => loop {
            thread::park();
        },
    }
    let ran = |role, seconds| again(children_end_in_every_way, role, seconds);
    assert!(ran("passes", 60).passed().stdout.contains("here"));
    assert!(ran("fails", 60).died().stderr.contains("on purpose"));
    #[cfg(unix)]
    assert_eq!(ran("aborts", 60).died().signal(), Some(6));
    assert!(ran("hangs", 1).status.is_none());
}
