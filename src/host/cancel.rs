//! Being asked to end: [`CancelToken`] asks many at once, as a tree; [`Cancelled`] waits for it. How one process is asked
//! stands in `control.rs`; how it comes under a token, in `spawn.rs`.

pub(crate) mod inherited;
pub(crate) mod tree;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::FusedFuture;

use crate::host::cancel::tree::{Cause, Node, Subject};
use crate::host::control::{AnyControl, Listening, poll_news};
use crate::platform::sync::Arc;
use crate::process::exit::Reason;
use crate::process::state::Ref;

/// Asks many to end at once: the processes that were [given it](crate::ProcessBuilder::cancel_token) and all that they
/// spawned, and whoever waits for [`cancelled`](Self::cancelled), a process or not. A clone is the same token.
///
/// Tokens form trees: cancelling one cancels its [children](Self::child) and theirs, and nothing above it. Children are
/// told before their parents: all that a child token stands for before anything that its parent does, and of the processes
/// of one token the last that was spawned first, so that whoever spawned another is told after it. The children of a
/// [`Supervisor`](crate::Supervisor) are told by it alone, in its own order. Told is not ended: for ends in order there are
/// supervisors and [`Me::scope`](crate::Me::scope).
///
/// It is cancelled once, for good: a process that is spawned with a token that was cancelled is so from its beginning. A
/// token whose handles are all dropped is not cancelled by that, and still is by those above it.
///
/// ```
/// use procession::{CancelToken, Context, Exit, Runtime};
/// use std::time::Duration;
///
/// async fn session(mut ctx: Context) -> Result<(), Exit> {
///     // Inherits the token of its parent.
///     let helper = ctx.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
///     ctx.receive().await?;
///     helper.await
/// }
/// let rt = Runtime::new()?;
/// let all = CancelToken::new();
/// let one = all.child();
/// let sessions = [rt.process().cancel_token(&all).spawn(session)?, rt.process().cancel_token(&one).spawn(session)?];
///
/// one.cancel("logged out", Duration::from_secs(1));
/// assert!(one.is_cancelled() && !all.is_cancelled());
/// all.cancel("maintenance", Duration::from_secs(1));
///
/// let reasons = sessions.map(|session| rt.block_on(session).unwrap_err().to_string());
/// assert_eq!(reasons, ["cancelled: maintenance", "cancelled: logged out"]);
/// assert!(rt.block_on(all.cancelled()) == "maintenance");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<Node<dyn AnyControl>>);

impl Subject for dyn AnyControl {
    fn tell(this: &Ref<Self>, Cause { reason, grace }: &Cause) {
        let head = this.head();
        if !head.has_ended() {
            head.host().cancel_until(this, reason.clone(), head.host().now() + *grace);
        }
    }
}

impl CancelToken {
    /// A token that has no parent.
    pub fn new() -> Self {
        Self(Node::root())
    }

    /// A token that is cancelled with this one, and may be before; at once if this one was.
    pub fn child(&self) -> Self {
        Self(self.0.child())
    }

    /// Asks all to end whom it concerns; processes that have not ended after `grace` are killed. Returns when all were
    /// told, which takes time in proportion to their number. Of several reasons the first counts, for a process too that
    /// was cancelled otherwise before. False if the token was cancelled before.
    ///
    /// Where several threads cancel tokens of one tree at once, each tells those whom it finds first: a parent may then be
    /// told before those of its children that another thread is about to tell.
    pub fn cancel(&self, reason: impl Into<Reason>, grace: Duration) -> bool {
        self.0.cancel(&Cause { reason: reason.into(), grace })
    }

    /// Whether it was cancelled, and all whom it concerns have been told.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Why it was cancelled, if it [was](Self::is_cancelled).
    pub fn reason(&self) -> Option<Reason> {
        self.0.reason()
    }

    /// Resolves when it is cancelled, with the reason; at once if it was before. Works anywhere, in any executor.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { whose: Whose::Token(self.clone()), listening: Listening::default(), over: false }
    }

    /// Whether it was cancelled, and maybe not all whom it concerns have been told.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.cause().is_some()
    }

    /// Cancels a process with this token, until what comes back is dropped.
    pub(crate) fn adopt(&self, process: &Ref<dyn AnyControl>) -> Option<CancelRegistration> {
        self.0.adopt(process).map(|number| CancelRegistration { token: self.clone(), number })
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

/// The same token.
impl PartialEq for CancelToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CancelToken {}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (children, processes) = self.0.count();
        f.debug_struct("CancelToken")
            .field("reason", &self.reason())
            .field("children", &children)
            .field("processes", &processes)
            .finish()
    }
}

/// That a token knows a process. Its control block has it: what the token knows of it goes with that.
#[derive(Debug)]
pub(crate) struct CancelRegistration {
    token: CancelToken,
    number: u64,
}

impl Drop for CancelRegistration {
    fn drop(&mut self) {
        self.token.0.release(self.number);
    }
}

/// Resolves when a process is asked to end, or a token is cancelled, with the reason: see
/// [`Me::cancelled`](crate::Me::cancelled), [`CancelToken::cancelled`].
///
/// # Cancel safety
/// Dropped, it has changed nothing.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Cancelled {
    whose: Whose,
    listening: Listening,
    over: bool,
}

#[derive(Debug)]
enum Whose {
    Process(Ref<dyn AnyControl>),
    Token(CancelToken),
}

impl Cancelled {
    pub(crate) fn new(control: Ref<dyn AnyControl>) -> Self {
        Self { whose: Whose::Process(control), listening: Listening::default(), over: false }
    }
}

impl Future for Cancelled {
    type Output = Reason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reason> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        let listening = &mut this.listening;
        let reason = match &this.whose {
            Whose::Process(control) => {
                let head = control.head();
                head.poll_news(listening, cx, || head.cancel().map(|(reason, _)| reason))
            }
            Whose::Token(token) => poll_news(token.0.news(), listening, cx, || token.reason()),
        };
        this.over = reason.is_ready();
        reason
    }
}

impl FusedFuture for Cancelled {
    fn is_terminated(&self) -> bool {
        self.over
    }
}
