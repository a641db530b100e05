//! Builds the server in Go if a Go toolchain is installed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of the Go server, which is in the folder of this program.
pub(crate) fn path() -> PathBuf {
    std::env::current_exe().expect("a program knows where it is").with_file_name("sockets-go")
}

/// Builds the server in Go.
///
/// # Errors
/// Returns an error if there is no Go toolchain, or if the build fails.
pub(crate) fn build() -> io::Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("server.go");
    let status = Command::new("go").args(["build", "-o"]).args([path(), source]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("`go build` failed: {status}"))),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot run `go`: {error}"))),
    }
}
