//! What a host has of its own where several share a runtime: a name, handlers, limits, the names of its processes.

use std::borrow::Cow;
use std::fmt;

use crate::host::control::AnyControl;
use crate::host::dispatch::Dispatcher;
use crate::host::registry::groups::Groups;
use crate::host::registry::names::Names;
use crate::platform::sync::CachePadded;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::process::error::{BuildError, SpawnRefusal};
use crate::process::limits::Limits;

/// The part of a host that its siblings don't share.
#[derive(Debug)]
pub(crate) struct Realm {
    dispatcher: Dispatcher,
    limits: Option<Limits>,
    /// How many processes may live here at once.
    most: usize,
    /// How many do; kept only if that is limited.
    alive: CachePadded<AtomicUsize>,
    names: Names<dyn AnyControl>,
    groups: Groups<dyn AnyControl>,
}

impl Realm {
    pub(crate) fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    pub(crate) fn names(&self) -> &Names<dyn AnyControl> {
        &self.names
    }

    pub(crate) fn groups(&self) -> &Groups<dyn AnyControl> {
        &self.groups
    }

    /// The name of the host; empty for the runtime's own.
    pub(crate) fn name(&self) -> &str {
        self.dispatcher.host()
    }

    #[inline]
    pub(crate) fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// Counts a process in.
    ///
    /// # Errors
    /// There are as many as may be.
    #[inline]
    pub(crate) fn enter(&self) -> Result<(), SpawnRefusal> {
        if self.most == usize::MAX {
            return Ok(());
        }
        let more = |alive| (alive < self.most).then_some(alive + 1);
        match self.alive.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(SpawnRefusal::Limit(self.most)),
        }
    }

    /// Counts a process out.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.most != usize::MAX {
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// What a host is to have of its own: see [`Host::add_host`](crate::Host::add_host).
///
/// A turbofish is never needed: the command is the closure's argument type.
#[must_use = "a builder adds nothing by itself"]
pub struct HostBuilder {
    dispatcher: Dispatcher,
    refused: Option<BuildError>,
    limits: Option<Limits>,
    most: usize,
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuilder")
            .field("dispatcher", &self.dispatcher)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl HostBuilder {
    /// A host of this name without handlers and limits. The name is for failures and for whoever looks inside.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { dispatcher: Dispatcher::new(name.into()), refused: None, limits: None, most: usize::MAX }
    }

    pub(crate) fn build(self) -> Result<Realm, BuildError> {
        let Self { dispatcher, refused, limits, most } = self;
        match refused {
            Some(error) => Err(error),
            None => Ok(Realm {
                dispatcher,
                limits,
                most,
                alive: CachePadded(AtomicUsize::new(0)),
                names: Names::new(),
                groups: Groups::new(),
            }),
        }
    }

    pub(crate) fn grant(mut self, register: impl FnOnce(&mut Dispatcher) -> Result<(), BuildError>) -> Self {
        if let Err(error) = register(&mut self.dispatcher) {
            self.refused.get_or_insert(error);
        }
        self
    }

    pub(crate) fn set_limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    pub(crate) fn set_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }
}

/// What both builders say, of the runtime's own host and of others.
macro_rules! host_methods {
    ($builder:ty, $($host:ident).*) => {
        impl $builder {
            /// Registers the handler of a command type. A second one for the same type is an error when building.
            pub fn handler<C: Command>(mut self, handler: impl Handler<C>) -> Self {
                self$(.$host)* = self$(.$host)*.grant(|dispatcher| dispatcher.add(handler));
                self
            }

            /// Registers the handler of the commands of one name: see [`Named`].
            pub fn handler_named(
                mut self,
                name: impl Into<Cow<'static, str>>,
                handler: impl Handler<Named>,
            ) -> Self {
                self$(.$host)* = self$(.$host)*.grant(|dispatcher| dispatcher.add_named(name.into(), handler));
                self
            }

            /// Registers a function that answers at once: see [`handler::inline`].
            pub fn handle<C: Command, A: Answer<C::Reply>>(self, f: impl Fn(C) -> A + Send + Sync + 'static) -> Self {
                self.handler(handler::inline(f))
            }

            /// Registers a function that answers by a future: see [`handler::future`].
            pub fn handle_async<C, A, Fut>(self, f: impl Fn(C) -> Fut + Send + Sync + 'static) -> Self
            where
                C: Command,
                A: Answer<C::Reply>,
                Fut: Future<Output = A> + Send + 'static,
            {
                self.handler(handler::future(f))
            }

            /// Registers a function that may block: see [`handler::blocking`].
            pub fn handle_blocking<C, A>(self, f: impl Fn(C) -> A + Send + Sync + 'static) -> Self
            where
                C: Command,
                A: Answer<C::Reply>,
            {
                self.handler(handler::blocking(f))
            }

            /// Registers the handler of a stream command. It is one of its own: a command may be performed and
            /// streamed, by two handlers. A second one for the same type is an error when building.
            pub fn stream_handler<C: StreamCommand>(self, handler: impl StreamHandler<C>) -> Self {
                self.handler(ByStream(handler))
            }

            /// Registers the handler of the streams of one name: see [`Named`]. Its items are payloads.
            pub fn stream_handler_named(
                mut self,
                name: impl Into<Cow<'static, str>>,
                handler: impl StreamHandler<Named>,
            ) -> Self {
                let handler = ByStream(handler);
                self$(.$host)* = self$(.$host)*.grant(|dispatcher| dispatcher.add_named_stream(name.into(), handler));
                self
            }

            /// Registers a function whose future sends the items of a stream: see [`handler::stream`].
            pub fn handle_stream<C, A, Fut>(self, f: impl Fn(C, Replier<C>) -> Fut + Send + Sync + 'static) -> Self
            where
                C: StreamCommand,
                A: Answer<()>,
                Fut: Future<Output = A> + Send + 'static,
            {
                self.stream_handler(handler::stream(f))
            }

            /// How many processes may live in this host at once. The next spawn is refused, and what was to be spawned
            /// handed back; a process that is [finished](crate::JoinHandle::is_finished) does not count any more.
            pub fn max_processes(mut self, most: usize) -> Self {
                self$(.$host)* = self$(.$host)*.set_most(most);
                self
            }

            /// What each process of this host may use.
            pub fn limits(mut self, limits: Limits) -> Self {
                self$(.$host)* = self$(.$host)*.set_limits(limits);
                self
            }
        }
    };
}
pub(crate) use host_methods;
