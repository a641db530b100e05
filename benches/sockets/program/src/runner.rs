//! The runtimes.

use std::process::Command;

use crate::row::Service;
use crate::{go, server};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    Procession,
    /// procession without workers: a tokio runtime with one thread polls the future of `Runtime::run`.
    Guest,
    Tokio,
    Smol,
    Go,
    /// A loop around the poller of the system, on one thread and without a runtime.
    Epoll,
}

impl Runner {
    pub(crate) const ALL: [Self; 6] = [Self::Procession, Self::Guest, Self::Tokio, Self::Smol, Self::Go, Self::Epoll];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Procession => "procession",
            Self::Guest => "guest",
            Self::Tokio => "tokio",
            Self::Smol => "smol",
            Self::Go => "go",
            Self::Epoll => "epoll",
        }
    }

    /// Returns false if this runtime has no server for the row. The server without a runtime has no row `http`, because
    /// this server cannot use hyper.
    pub(crate) fn serves(self, service: Service) -> bool {
        (self, service) != (Self::Epoll, Service::Http)
    }

    /// Returns the program of the server and the arguments of the program.
    fn server(self, service: Service, workers: usize) -> Vec<String> {
        let path = |path: std::path::PathBuf| path.into_os_string().into_string().expect("the path is UTF-8");
        let mut words = match self {
            Self::Go => vec![path(go::path())],
            _ => vec![path(std::env::current_exe().expect("a program knows where it is")), server::FLAG.to_owned()],
        };
        if self != Self::Go {
            words.push(self.name().to_owned());
        }
        words.extend([service.name().to_owned(), workers.to_string()]);
        words
    }

    /// Returns the command that starts the server. If `under` is not empty, the command starts the program that `under`
    /// names, for example `strace`, and that program starts the server.
    pub(crate) fn command(self, service: Service, workers: usize, under: &[String]) -> Command {
        let words: Vec<_> = under.iter().cloned().chain(self.server(service, workers)).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if self == Self::Smol {
            // The global executor of smol reads its number of threads from this variable.
            command.env("SMOL_THREADS", workers.to_string());
        }
        command
    }
}
