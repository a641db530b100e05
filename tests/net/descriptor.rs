//! Tests of `Async<T>`, which waits for any descriptor that the system can poll.

#![allow(unsafe_code)]

use std::fs::File;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::Async;
use procession::net::socket2::SockRef;

use crate::on_two;

/// Makes a pipe whose two ends are in non-blocking mode.
#[cfg(target_os = "linux")]
fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) }, 0);
    // SAFETY: the descriptors are open, and this program uses the descriptors only through the two files.
    let own = |end| unsafe { OwnedFd::from_raw_fd(end) };
    (own(ends[0]).into(), own(ends[1]).into())
}

/// 12.2b: a process reads the output of a child process, and writes to the input of the child process. The type
/// `ChildStdout` implements `Read`, but `&ChildStdout` does not.
#[test]
fn the_streams_of_a_child_process_are_read_and_written() {
    fn set_nonblocking(stream: &impl AsRawFd) {
        // SAFETY: the call takes no pointer, and the descriptor is open.
        assert_eq!(unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }
    on_two(async |_| {
        use std::process::{Command, Stdio};

        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        set_nonblocking(&input);
        set_nonblocking(&output);
        let (mut input, mut output) = (Async::new(input)?, Async::new(output)?);
        input.write_all(b"one line").await?;
        input.flush().await?;
        let mut bytes = [0; 8];
        output.read_exact(&mut bytes).await?;
        assert_eq!(&bytes, b"one line");
        drop(input);
        assert_eq!(output.read(&mut bytes).await?, 0);
        assert!(child.wait()?.success());
        Ok(())
    });
}

/// 12.2b: a process can wait for each end of a pipe. When the pipe is full, the writer waits until the reader has read.
/// The reader sees the end of the stream, and the writer sees a broken pipe.
#[test]
#[cfg(target_os = "linux")]
fn a_pipe_is_read_and_written() {
    const BYTES: usize = 1 << 20;
    on_two(async |rt| {
        let (reader, writer) = pipe();
        let (mut reader, mut writer) = (Async::new(reader)?, Async::new(writer)?);
        let mut buf = [0; 8];
        assert!(crate::poll_once(reader.read_with(|mut pipe| pipe.read(&mut buf))).is_none());
        let written = rt.spawn(async move |_: procession::Context| -> crate::Outcome {
            writer.writable().await?;
            assert_eq!(writer.write_with(|mut pipe| pipe.write(b"abc")).await?, 3);
            // The pipe cannot hold all these bytes, so the writer must wait.
            writer.write_all(&vec![1; BYTES]).await?;
            Ok(())
        });
        reader.readable().await?;
        assert_eq!((reader.read(&mut buf[..3]).await?, &buf[..3]), (3, &b"abc"[..]));
        let mut all = Vec::new();
        reader.read_to_end(&mut all).await?;
        assert_eq!(all.len(), BYTES);
        written.await?;
        let (reader, writer) = pipe();
        let mut writer = Async::new(writer)?;
        drop(reader);
        // While a child process of another test holds a copy of the reader, a write succeeds.
        let error = loop {
            if let Err(error) = writer.write(b"x").await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        Ok(())
    });
}

/// 12.2b: a process can wait for a socket of the standard library. The socket can be taken out of `Async` and
/// registered again. On Linux, a second registration of the same descriptor fails.
#[test]
fn a_socket_of_the_standard_library_is_awaited() {
    on_two(async |rt| {
        let (one, mut other) = std::os::unix::net::UnixStream::pair()?;
        one.set_nonblocking(true)?;
        let mut buf = [0; 8];
        let one = Async::new_in(rt.host(), one)?;
        assert!(Async::new(one.get_ref()).is_err() || !cfg!(target_os = "linux"));
        other.write_all(b"x")?;
        assert_eq!(one.read_with(|mut one| one.read(&mut buf)).await?, 1);
        let one = Async::new(one.into_inner())?;
        assert!(crate::poll_once(one.read_with(|mut one| one.read(&mut buf))).is_none());
        // An event of the write direction may still arrive, and then `readable` completes.
        while crate::poll_once(one.readable()).is_some() {
            assert!(crate::poll_once(one.read_with(|mut one| one.read(&mut buf))).is_none());
        }
        other.write_all(b"yz")?;
        one.readable().await?;
        let mut reference = &one;
        assert_eq!(reference.read(&mut buf).await?, 2);
        // `Async` can also hold a reference. In this case, the descriptor belongs to the variable `held`.
        let held = one.into_inner();
        let borrowed = Async::new(&held)?;
        drop(borrowed);
        assert_eq!(Async::new(&held)?.write_with(|one| (&**one).write(b"x")).await?, 1);
        Ok(())
    });
}

/// 12.2b: a hand-written future can use the poll functions of `Async`. `Async` lends its descriptor to other crates.
#[test]
fn the_poll_functions_wait_for_a_descriptor() {
    on_two(async |_| {
        let (one, mut other) = std::os::unix::net::UnixStream::pair()?;
        one.set_nonblocking(true)?;
        let one = Async::new(one)?;
        assert_eq!(one.as_fd().as_raw_fd(), one.get_ref().as_raw_fd());
        assert_eq!(one.as_raw_fd(), one.get_ref().as_raw_fd());
        let mut buf = [0; 8];
        let mut read = Box::pin(poll_fn(|cx| one.poll_read_with(cx, |mut one| one.read(&mut buf))));
        assert!(futures::poll!(&mut read).is_pending());
        other.write_all(b"abc")?;
        assert_eq!(read.await?, 3);
        assert_eq!(poll_fn(|cx| one.poll_write_with(cx, |mut one| one.write(b"de"))).await?, 2);
        // The socket is filled until a write waits. This waiting write completes after the peer has read.
        let part = vec![0; 1 << 16];
        while crate::poll_once(poll_fn(|cx| one.poll_write_with(cx, |mut one| one.write(&part)))).is_some() {}
        let mut write = Box::pin(poll_fn(|cx| one.poll_write_with(cx, |mut one| one.write(&part))));
        assert!(futures::poll!(&mut write).is_pending());
        other.set_nonblocking(true)?;
        let mut bytes = vec![0; 1 << 20];
        while other.read(&mut bytes).is_ok() {}
        assert_ne!(write.await?, 0);
        Ok(())
    });
}

/// 12.2b: a process uses the descriptor of a child process to wait for the end of this child process. No operation of
/// this descriptor returns `WouldBlock`.
#[test]
#[cfg(target_os = "linux")]
fn the_end_of_a_child_process_is_awaited() {
    use std::process::{Command, Stdio};

    on_two(async |_| {
        // The child process runs until its input is closed.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        // SAFETY: the call takes no pointer, so the call cannot access memory of this program.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is open, and no other value owns the descriptor.
        let ended = Async::new(unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).expect("a descriptor")) })?;
        let mut readable = Box::pin(ended.readable());
        assert!(futures::poll!(&mut readable).is_pending(), "the child process runs");
        drop(child.stdin.take());
        readable.await?;
        assert!(child.try_wait()?.is_some_and(|status| status.success()));
        // The descriptor stays readable.
        ended.readable().await?;
        Ok(())
    });
}

/// 12.2b: a library reads a descriptor until the descriptor has no more data. The library gets the error `WouldBlock`,
/// and `Async` does not detect this error. After `clear_readable`, `readable` waits for the next event. A new `Async`
/// reports the present state of its descriptor.
#[test]
fn a_process_can_wait_for_each_event_of_a_descriptor() {
    on_two(async |_| {
        let (one, mut other) = std::os::unix::net::UnixStream::pair()?;
        one.set_nonblocking(true)?;
        other.write_all(b"a")?;
        let one = Async::new(one)?;
        // Reads all bytes, in the same way as the library.
        let drain = || std::iter::from_fn(|| one.get_ref().read(&mut [0; 8]).ok()).sum::<usize>();
        for round in 0..100 {
            one.readable().await?;
            one.clear_readable();
            assert_eq!(drain(), 1);
            assert!(crate::poll_once(one.readable()).is_none(), "round {round}");
            other.write_all(b"b")?;
        }
        // The event for the last byte also reports that the socket is writable. Therefore the test waits for this event
        // before the next checks.
        one.readable().await?;
        one.writable().await?;
        assert!(crate::poll_once(one.writable()).is_some());
        one.clear_writable();
        assert!(crate::poll_once(one.writable()).is_none());
        // An operation still tries the system call first, unless an earlier operation has returned `WouldBlock`.
        let (one, _other) = std::os::unix::net::UnixStream::pair()?;
        one.set_nonblocking(true)?;
        let one = Async::new(one)?;
        assert!(matches!(crate::poll_once(one.write_with(|mut one| one.write(b"x"))), Some(Ok(1))));
        Ok(())
    });
}

/// 12.2b: a process waits for the events of an inotify instance.
#[test]
#[cfg(target_os = "linux")]
fn an_inotify_instance_is_awaited() {
    on_two(async |rt| {
        let folder = std::env::temp_dir().join(format!("procession-inotify-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        // SAFETY: the call takes no pointer, so the call cannot access memory of this program.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        assert!(descriptor >= 0);
        // SAFETY: the descriptor is open, and no other value owns the descriptor.
        let events = Async::new(unsafe { File::from_raw_fd(descriptor) })?;
        let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).expect("no zero byte");
        // SAFETY: the path is a NUL-terminated string, and the path lives longer than the call.
        assert!(unsafe { libc::inotify_add_watch(events.as_raw_fd(), path.as_ptr(), libc::IN_CREATE) } >= 0);
        let (ready, is_ready) = futures::channel::oneshot::channel();
        let waits = rt.spawn(async move |_: procession::Context| -> Result<_, procession::Exit> {
            let mut buf = [0; 1024];
            let mut read = Box::pin(events.read_with(|mut events| events.read(&mut buf)));
            assert!(futures::poll!(&mut read).is_pending());
            let _ = ready.send(());
            let count = read.await?;
            Ok(buf[..count].to_vec())
        });
        is_ready.await.expect("the process waits");
        std::fs::write(folder.join("created"), b"")?;
        let event = waits.await?;
        assert!(event.windows(7).any(|part| part == b"created"), "{event:?}");
        std::fs::remove_dir_all(&folder)?;
        Ok(())
    });
}

/// 12.2b: a process waits for the lines of a terminal, and another process waits for the answers of the terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_terminal_is_read_and_written() {
    on_two(async |_| {
        let (mut master, mut slave) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: the first two pointers are valid for writes. The other arguments may be null.
        assert_eq!(unsafe { libc::openpty(&raw mut master, &raw mut slave, null, null.cast(), null.cast()) }, 0);
        for descriptor in [master, slave] {
            // SAFETY: the call takes no pointer, and the descriptor is open.
            assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        }
        // SAFETY: the descriptor is open, and no other value owns the descriptor.
        let mut keyboard = Async::new(unsafe { File::from_raw_fd(master) })?;
        // SAFETY: the descriptor is open, and no other value owns the descriptor.
        let mut terminal = Async::new(unsafe { File::from_raw_fd(slave) })?;
        for text in ["first\n", "second\n"] {
            let mut line = [0; 64];
            let mut read = Box::pin(terminal.read(&mut line));
            assert!(futures::poll!(&mut read).is_pending());
            keyboard.write_all(text.as_bytes()).await?;
            let count = read.await?;
            assert_eq!(&line[..count], text.as_bytes());
            // The terminal shows each line that was typed.
            let mut shown = vec![0; text.len() + 1];
            keyboard.read_exact(&mut shown).await?;
            assert_eq!(shown, text.replace('\n', "\r\n").as_bytes());
        }
        Ok(())
    });
}

/// 12.2b: the system refuses the registration of a regular file, because the system cannot poll regular files.
#[test]
#[cfg(target_os = "linux")]
fn a_regular_file_is_refused() {
    on_two(async |_| {
        let file = File::open(std::env::current_exe()?)?;
        let error = Async::new(&file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let expected = "the system cannot poll this descriptor, because it is a regular file or a directory: read and \
             write files with `Host::spawn_blocking`";
        assert_eq!(error.to_string(), expected);
        assert!(!SockRef::from(&file).nonblocking()?, "the mode of a refused descriptor does not change");
        Ok(())
    });
}

/// 12.2b: while a descriptor is registered, a second registration of this descriptor fails. A duplicate of the
/// descriptor can be registered.
#[test]
#[cfg(target_os = "linux")]
fn a_second_registration_of_a_descriptor_is_refused() {
    on_two(async |_| {
        let (one, _other) = std::os::unix::net::UnixStream::pair()?;
        let first = Async::new(&one)?;
        let error = Async::new(&one).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let expected = "this descriptor is already registered with the runtime: share the first `Async`, or register a \
             duplicate of the descriptor";
        assert_eq!(error.to_string(), expected);
        Async::new(one.try_clone()?)?;
        drop(first);
        Async::new(&one)?;
        Ok(())
    });
}

/// 12.2b: when a descriptor in blocking mode is registered, the descriptor becomes non-blocking. So a read of this
/// descriptor does not block the thread.
#[test]
fn the_registration_of_a_descriptor_turns_off_its_blocking_mode() {
    on_two(async |rt| {
        let (one, mut other) = std::os::unix::net::UnixStream::pair()?;
        let mut one = Async::new(one)?;
        assert!(SockRef::from(&one).nonblocking()?);
        let mut buf = [0; 1];
        assert!(crate::poll_once(one.read(&mut buf)).is_none());
        other.write_all(b"x")?;
        assert_eq!(one.read(&mut buf).await?, 1);
        let (reader, _writer) = std::io::pipe()?;
        let mut reader = Async::new_in(rt.host(), reader)?;
        assert!(SockRef::from(&reader).nonblocking()?);
        assert!(crate::poll_once(reader.read(&mut buf)).is_none());
        Ok(())
    });
}

/// 12.6b: the peer has closed its side, but the operation of the user still returns `WouldBlock`. The future then
/// waits, and does not repeat the operation forever inside one poll.
#[test]
fn an_operation_that_never_succeeds_does_not_block_its_thread() {
    on_two(async |_| {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        one.set_nonblocking(true)?;
        let one = Async::new(one)?;
        let mut calls = 0;
        let never = |_: &_| -> std::io::Result<()> {
            calls += 1;
            Err(ErrorKind::WouldBlock.into())
        };
        let mut waits = Box::pin(one.read_with(never));
        assert!(crate::poll_once(&mut waits).is_none());
        drop(other);
        for _ in 0..200 {
            crate::yield_now().await;
            let _ = crate::poll_once(&mut waits);
        }
        drop(waits);
        assert!((1..10).contains(&calls), "{calls} calls");
        Ok(())
    });
}

/// 12.2b: after a write that has timed out, a flush and a close of a descriptor do not wait for space.
#[test]
#[cfg(target_os = "linux")]
fn a_flush_after_a_full_write_does_not_wait() {
    on_two(async |_| {
        let (reader, writer) = pipe();
        let mut writer = Async::new(writer)?;
        assert!(crate::poll_once(writer.write_all(&[0; 1 << 20])).is_none());
        writer.flush().await?;
        writer.close().await?;
        drop(reader);
        Ok(())
    });
}
