//! Builds the namespace of a host. [`HostBuilder`] registers the command handlers and sets the limits. After the build,
//! the handlers do not change.

use std::borrow::Cow;
use std::fmt;

use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::dispatch::table::Dispatcher;
use crate::host::namespace::Namespace;
use crate::platform::sync::Arc;
use crate::process::error::BuildError;
use crate::process::limits::Limits;

/// Configuration of a host. [`Host::add_host`](crate::Host::add_host) adds the host to a runtime.
///
/// The methods that register handlers need no turbofish, because the argument type of the closure is the command type.
#[must_use = "a builder adds nothing by itself"]
pub struct HostBuilder {
    dispatcher: Dispatcher<dyn AnyControl>,
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
    /// Creates the configuration of a host with this name. The host has no handlers and no limits yet. If a command
    /// has no handler, the failure of the command contains the name of the host. [`Host::name`](crate::Host::name)
    /// also returns the name of the host.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { dispatcher: Dispatcher::new(name.into()), refused: None, limits: None, most: usize::MAX }
    }

    pub(crate) fn build(self) -> Result<Namespace<dyn AnyControl>, BuildError> {
        match self.refused {
            Some(error) => Err(error),
            None => Ok(Namespace::new(self.dispatcher, self.limits, self.most)),
        }
    }

    pub(crate) fn grant(
        mut self,
        register: impl FnOnce(&mut Dispatcher<dyn AnyControl>) -> Result<(), BuildError>,
    ) -> Self {
        if let Err(error) = register(&mut self.dispatcher) {
            self.refused.get_or_insert(error);
        }
        self
    }

    pub(crate) fn set_limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    pub(crate) fn set_max_processes(mut self, most: usize) -> Self {
        self.most = most;
        self
    }
}

impl Host {
    /// Adds a further host to the runtime of this host. The new host has its own handlers and its own limits.
    ///
    /// If a process of the new host performs a command, only a handler of the new host can answer this command. A
    /// process that another process spawns belongs to the host of its parent. Messages between hosts work like messages
    /// within one host.
    ///
    /// ```
    /// # use procession::{Command, Context, Failure, HostBuilder, Limits, Runtime};
    /// struct Erase;
    /// impl Command for Erase { type Reply = (); }
    /// struct Log(&'static str);
    /// impl Command for Log { type Reply = (); }
    ///
    /// let rt = Runtime::builder().handle(|_: Erase| ()).build()?;
    /// let plugins = HostBuilder::new("plugins").handle(|log: Log| println!("{}", log.0)).max_processes(100);
    /// let plugins = rt.add_host(plugins.limits(Limits::new().mailbox_capacity(1_000)))?;
    /// let plugin = plugins.spawn(async |ctx: Context| {
    ///     ctx.perform(Log("hello")).await?;
    ///     ctx.perform(Erase).await
    /// });
    /// let failure = rt.block_on(plugin).unwrap_err();
    /// assert!(failure.to_string().contains("Erase in the host plugins"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// Returns a [`BuildError`] if two handlers are registered for the same command.
    pub fn add_host(&self, host: HostBuilder) -> Result<Self, BuildError> {
        Ok(Self::new(Arc::clone(self.shared()), host.build()?))
    }
}

/// Defines the methods that the builder of a runtime and the builder of a host have in common.
macro_rules! host_methods {
    ($builder:ty, $($host:ident).*) => {
        impl $builder {
            /// Registers the handler of a command type. If the type already has a handler, the build returns an error.
            ///
            /// A handler must not own a [`Host`](crate::Host) of its own runtime. Otherwise the handler and the runtime
            /// form a reference cycle, and the handlers of the runtime are never dropped. A handler that needs the host
            /// calls [`Completion::host`](crate::Completion::host).
            pub fn handler<C: Command>(mut self, handler: impl Handler<C>) -> Self {
                self$(.$host)* = self$(.$host)*.grant(|dispatcher| dispatcher.add(handler));
                self
            }

            /// Registers the handler of each [`NamedCommand`] with this name. The build returns an error if the name
            /// already has a handler, or if the type `NamedCommand` has a handler.
            pub fn handler_named(
                mut self,
                name: impl Into<Cow<'static, str>>,
                handler: impl Handler<NamedCommand>,
            ) -> Self {
                self$(.$host)* = self$(.$host)*.grant(|dispatcher| dispatcher.add_named(name.into(), handler));
                self
            }

            /// Registers a function that answers a command inline: see [`handler::inline`].
            pub fn handle<C: Command, A: IntoReply<C::Reply>>(self, f: impl Fn(C) -> A + Send + Sync + 'static) -> Self {
                self.handler(handler::inline(f))
            }

            /// Registers a function that returns a future. The future resolves to the answer: see [`handler::future`].
            pub fn handle_async<C, A, Fut>(self, f: impl Fn(C) -> Fut + Send + Sync + 'static) -> Self
            where
                C: Command,
                A: IntoReply<C::Reply>,
                Fut: Future<Output = A> + Send + 'static,
            {
                self.handler(handler::future(f))
            }

            /// Registers a function that may block: see [`handler::blocking`](fn@crate::handler::blocking).
            pub fn handle_blocking<C, A>(self, f: impl Fn(C) -> A + Send + Sync + 'static) -> Self
            where
                C: Command,
                A: IntoReply<C::Reply>,
            {
                self.handler(handler::blocking(f))
            }

            /// Registers the handler of a stream command. A command type may have a stream handler and also a handler
            /// for the plain command. If the type already has a stream handler, the build returns an error.
            pub fn stream_handler<C: StreamCommand>(self, handler: impl StreamHandler<C>) -> Self {
                self.handler(ByStream(handler))
            }

            /// Registers the stream handler of each [`NamedCommand`] with this name. The items of the stream are
            /// payloads. The build returns an error if the name already has a stream handler, or if the type
            /// `NamedCommand` has a stream handler.
            pub fn stream_handler_named(
                mut self,
                name: impl Into<Cow<'static, str>>,
                handler: impl StreamHandler<NamedCommand>,
            ) -> Self {
                let handler = ByStream(handler);
                self$(.$host)* = self$(.$host)*.grant(|dispatcher| dispatcher.add_named_stream(name.into(), handler));
                self
            }

            /// Registers a function that returns a future. The future sends the items of a stream: see
            /// [`handler::stream`](fn@crate::handler::stream). If the future still waits after it has answered the
            /// command, the future is dropped.
            pub fn handle_stream<C, A, Fut>(self, f: impl Fn(C, StreamCompletion<C>) -> Fut + Send + Sync + 'static) -> Self
            where
                C: StreamCommand,
                A: IntoReply<()>,
                Fut: Future<Output = A> + Send + 'static,
            {
                self.stream_handler(handler::stream(f))
            }

            /// Sets the maximum number of processes in this host at one time. Default: no maximum.
            ///
            /// If the host already has this number of processes, a spawn fails with
            /// [`SpawnErrorKind::Limit`](crate::SpawnErrorKind::Limit). A process that is
            /// [finished](crate::JoinHandle::is_finished) is not counted.
            pub fn max_processes(mut self, most: usize) -> Self {
                self$(.$host)* = self$(.$host)*.set_max_processes(most);
                self
            }

            /// Sets the resource limits of each process in this host. Default: no limits.
            pub fn limits(mut self, limits: Limits) -> Self {
                self$(.$host)* = self$(.$host)*.set_limits(limits);
                self
            }
        }
    };
}
pub(crate) use host_methods;
