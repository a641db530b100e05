//! The process of a connection. The process reads commands from its client, sends the commands to the shards, and
//! writes the replies. The process also writes the messages of the channels to which its client has subscribed.
//!
//! The socket can be any type that implements `AsyncRead` and `AsyncWrite`. So the tests can use pipes in memory, in a
//! simulation.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use futures::{AsyncRead, AsyncWrite, AsyncWriteExt, Stream};
use procession::future::Call;
use procession::{Address, Context, Exit, Mailbox, SelfHandle, should_yield};

use crate::commands::{Answer, Run, Spec, find, unknown_command};
use crate::pipeline::{Collected, Pipeline};
use crate::pubsub::{Mail, push_mail, push_unread};
use crate::resp::{Args, Batch, Encoder, Request};
use crate::server::{Server, shard_name};
use crate::session::{Session, SessionCall, info};
use crate::shard::{Execute, Work};

/// Maximum number of attempts to find the next instance of a failed shard. Between two attempts, the connection sleeps
/// for `PAUSE`.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The process moves about this number of bytes of messages into the output, and takes one unit of the budget of the
/// turn for these bytes.
const MAIL_PER_UNIT: usize = 16 << 10;

/// When a buffer of replies becomes empty, its capacity is reduced to at most this number of bytes.
pub(crate) const KEPT: usize = 256 << 10;

/// Body of the process. Serves a client until the client or the server closes the connection.
pub(crate) async fn serve<S>(ctx: Context<Mail>, socket: S, peer: String, server: Arc<Server>) -> Result<(), Exit>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (me, mailbox) = ctx.split();
    // `registration` is dropped when the process exits, even if the process is killed.
    let registration = server.register_client(me.pid(), peer);
    let mut connection = Connection {
        socket,
        mailbox,
        session: Session { id: registration.id(), ..Session::default() },
        input: Arc::default(),
        pipeline: Pipeline::new(server.hasher(), server.config().shards),
        shards: vec![None; server.config().shards],
        calls: Vec::new(),
        output: Output::default(),
        is_at_end: false,
        me,
        server: Arc::clone(&server),
    };
    // An error of the socket means that the client has vanished. This error ends the connection, but the process has
    // not failed.
    let _ = connection.run().await;
    let _ = connection.socket.close().await;
    match connection.me.is_cancelled() {
        true => Err(connection.mailbox.receive().await.err().unwrap_or(Exit::Normal)),
        false => Ok(()),
    }
}

/// Replies that the client has not received yet.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    /// Number of bytes at the start of `bytes` that were already sent.
    sent: usize,
}

impl Output {
    fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.sent = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
        } else if self.sent > KEPT && self.sent > self.bytes.len() / 2 {
            // A client may never read all replies, so the buffer may never become empty. Without the removal of the
            // sent bytes, the buffer would grow without bound.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}

struct Connection<S> {
    socket: S,
    mailbox: Mailbox<Mail>,
    session: Session,
    /// The commands that were read. While the shards run these commands, the shards share the batch with the
    /// connection.
    input: Arc<Batch>,
    pipeline: Pipeline,
    /// Addresses of the shards that this connection has used.
    shards: Vec<Option<Address<Execute>>>,
    /// The unanswered calls to the shards. The vector is empty between two batches.
    calls: Vec<(usize, Call<Box<Work>>)>,
    output: Output,
    /// True if the client has closed its write direction of the connection.
    is_at_end: bool,
    me: SelfHandle<Mail>,
    server: Arc<Server>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.run_input().await?;
            if std::future::poll_fn(|cx| self.poll_socket(cx)).await? {
                return Ok(());
            }
            if should_yield() {
                self.me.yield_now().await;
            }
        }
    }

    // ---- The socket

    /// Writes replies and messages, and reads bytes from the client. The result is false if bytes were read, and true
    /// if the connection has ended.
    fn poll_socket(&mut self, cx: &mut Cx<'_>) -> Poll<io::Result<bool>> {
        let limit = self.server.config().limits.output;
        loop {
            let is_limited = self.poll_mail(cx);
            while self.output.len() > 0 {
                match self.poll_write(cx)? {
                    Poll::Ready(()) => {}
                    Poll::Pending => break,
                }
            }
            // If `is_limited` is true, the output had reached its limit, and `poll_mail` may have left messages in the
            // mailbox. If the write has made room in the output, no event wakes this process for the messages in the
            // mailbox. Therefore the loop checks the mailbox again.
            if !is_limited || self.output.len() >= limit {
                break;
            }
        }
        if self.session.is_closing || self.is_at_end {
            return if self.output.len() == 0 { Poll::Ready(Ok(true)) } else { Poll::Pending };
        }
        // Redis buffers replies without a bound. A client may send a long pipeline before the client reads, and a small
        // bound could block such a client forever. Therefore this connection stops reading commands only when the
        // unsent replies reach the limit.
        if self.output.len() >= limit {
            return Poll::Pending;
        }
        let input = unshared(&mut self.input);
        match Pin::new(&mut self.socket).poll_read(cx, input.space())? {
            Poll::Ready(0) if self.output.len() == 0 => Poll::Ready(Ok(true)),
            Poll::Ready(0) => {
                self.is_at_end = true;
                Poll::Pending
            }
            Poll::Ready(count) => {
                input.fill(count);
                Poll::Ready(Ok(false))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Moves messages of channels into the output. If the client reads slowly, further messages stay in the mailbox.
    /// Returns true if the output has reached its limit. In this case, no message wakes the process.
    ///
    /// Each message from `poll_next` takes one unit of the budget of this turn, and a publisher pays one unit for each
    /// message that it sends. So several publishers could together send more messages than this process receives.
    /// Therefore one unit pays for `MAIL_PER_UNIT` bytes of messages. The mailbox then fills only if the client reads
    /// too slowly.
    fn poll_mail(&mut self, cx: &mut Cx<'_>) -> bool {
        while !self.session.is_closing && self.output.len() < self.server.config().limits.output {
            match Pin::new(&mut self.mailbox).poll_next(cx) {
                Poll::Ready(Some(mail)) => {
                    push_mail(&mut self.output.bytes, &mail, &self.session);
                    push_unread(&mut self.output.bytes, &mut self.mailbox, &self.session, MAIL_PER_UNIT);
                }
                // The process is cancelled. Before the process exits, the process sends the replies to the commands
                // that were run.
                Poll::Ready(None) => self.session.is_closing = true,
                Poll::Pending => return false,
            }
        }
        !self.session.is_closing
    }

    fn poll_write(&mut self, cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.socket).poll_write(cx, self.output.unsent())? {
            Poll::Ready(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(count) => {
                self.output.advance(count);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends replies until the size of the unsent replies is below the limit.
    async fn make_room(&mut self) -> io::Result<()> {
        while self.output.len() >= self.server.config().limits.output {
            std::future::poll_fn(|cx| self.poll_write(cx)).await?;
        }
        Ok(())
    }

    // ---- Commands

    /// Runs all complete commands that were read.
    async fn run_input(&mut self) -> io::Result<()> {
        while !self.session.is_closing {
            let batch = unshared(&mut self.input);
            batch.parse(&self.server.config().limits);
            let count = batch.requests().len();
            if count == 0 {
                if let Some(error) = batch.error() {
                    self.session.is_closing = true;
                    if let Some(text) = error.text() {
                        Encoder::new(&mut self.output.bytes, false).error([b"ERR Protocol error: ", &*text].concat());
                    }
                }
                break;
            }
            self.server.count_commands(count);
            let mut next = 0;
            while next < count && !self.session.is_closing {
                next = self.plan(next);
                self.run_pipeline().await?;
                self.make_room().await?;
                // A pipeline may publish many messages. The subscribers must run before they have too many unread
                // messages.
                if should_yield() {
                    self.me.yield_now().await;
                }
            }
            unshared(&mut self.input).clear();
        }
        Ok(())
    }

    /// Distributes the commands to the shards, beginning with the command at the index `first`. Some commands must wait
    /// for earlier commands. The distribution stops before a command that must wait, and again after this command. The
    /// distribution also stops when the size of the unsent replies reaches the limit. Returns the index of the next
    /// command.
    fn plan(&mut self, first: usize) -> usize {
        let batch = Arc::clone(&self.input);
        for (index, request) in batch.requests().iter().enumerate().skip(first) {
            let args = batch.args(*request);
            match find(args.get(0)) {
                Some(spec) if matches!(spec.run, Run::Session(_)) => {
                    if !self.pipeline.is_empty() {
                        return index;
                    }
                    self.plan_command(spec, *request, args);
                    return index + 1;
                }
                Some(spec) => self.plan_command(spec, *request, args),
                None if args.is(0, "post") || args.is(0, "host:") => {
                    // A browser sends a line that begins with `POST` or `Host:`. Like Redis, the server closes the
                    // connection, because a web page must not be able to run commands.
                    self.session.is_closing = true;
                }
                None => self.reply(|_, reply| {
                    reply.error(unknown_command(args));
                    Ok(())
                }),
            }
            let written = self.output.len() + self.pipeline.local().len();
            if self.session.is_closing || written >= self.server.config().limits.output {
                return index + 1;
            }
        }
        batch.requests().len()
    }

    fn plan_command(&mut self, spec: &'static Spec, request: Request, args: Args<'_>) {
        let checked = match spec.run {
            _ if !spec.accepts(args) => Err(spec.wrong_arity()),
            _ if !spec.subcommands.is_empty() => spec.full_name(args).map(drop),
            Run::EachKey(..) if !(args.len() - 1).is_multiple_of(spec.keys.2 as usize) => Err(spec.wrong_arity()),
            Run::EachShard(check, ..) => check(args),
            _ => Ok(()),
        };
        if let Err(failure) = checked.and_then(|()| self.session.allows(spec, args)) {
            return self.reply(|_, _| Err(failure));
        }
        match spec.run {
            Run::Key(run) => self.pipeline.push_key(request, args, run),
            Run::EachKey(run, merge) => self.pipeline.push_keys(request, args, spec, run, merge),
            Run::EachShard(_, run, merge) => self.pipeline.push_shards(request, run, merge),
            Run::Local(run) => self.reply(|session, reply| run(session, args, reply)),
            Run::Session(run) => {
                let Self { session, server, me, mailbox, output, .. } = self;
                let mut call = SessionCall { args, session, server, me, mailbox, out: &mut output.bytes };
                if let Err(failure) = run(&mut call) {
                    call.reply().error(failure.0.as_bytes());
                }
            }
        }
    }

    /// Writes the reply of a command that runs in the connection. The reply follows the replies of the earlier
    /// commands.
    fn reply(&mut self, write: impl FnOnce(&Session, &mut Encoder<'_>) -> Answer) {
        let is_first = self.pipeline.is_empty();
        let out = if is_first { &mut self.output.bytes } else { self.pipeline.local() };
        let mut reply = Encoder::new(out, self.session.resp3);
        if let Err(failure) = write(&self.session, &mut reply) {
            reply.error(failure.0.as_bytes());
        }
        if !is_first {
            self.pipeline.push_local();
        }
    }

    // ---- Shards

    /// Sends the commands to the shards, and appends the replies of the shards to the output.
    async fn run_pipeline(&mut self) -> io::Result<()> {
        while !self.pipeline.is_empty() {
            self.call_shards().await;
            match self.pipeline.collect(&mut self.output.bytes, self.session.resp3) {
                Collected::All => break,
                Collected::Part => self.make_room().await?,
                Collected::Info { keys, expiring, request } => {
                    let mut reply = Encoder::new(&mut self.output.bytes, self.session.resp3);
                    info(&self.server, self.input.args(request), (keys, expiring), &mut reply);
                }
            }
        }
        Ok(())
    }

    /// Sends to each shard the commands that the shard has not run yet, and waits for all answers.
    async fn call_shards(&mut self) {
        for number in 0..self.pipeline.used().len() {
            let shard = self.pipeline.used()[number].0.into();
            let Some(work) = self.pipeline.take_work(shard, &self.input, self.session.resp3) else { continue };
            self.find_shard(shard).await;
            match &self.shards[shard] {
                Some(address) => self.calls.push((shard, address.call(|reply| Execute { work, reply }))),
                None => self.pipeline.fail(shard),
            }
        }
        // If there are several calls, the connection sends all calls before the connection awaits the first answer. So
        // the shards run at the same time. The first poll of a single call sends the call. This poll is cheaper than
        // `start`.
        if self.calls.len() > 1 {
            self.calls = self.calls.drain(..).map(|(shard, call)| (shard, call.start())).collect();
        }
        while let Some((shard, call)) = self.calls.pop() {
            match call.await {
                Ok(work) => self.pipeline.put_work(shard, work),
                Err(_) => self.pipeline.fail(shard),
            }
        }
    }

    /// Finds the address of a shard. If the shard has failed, the function waits until the supervisor has restarted the
    /// shard.
    async fn find_shard(&mut self, shard: usize) {
        let is_alive = |address: &Option<Address<_>>| address.as_ref().is_some_and(|address| !address.is_closed());
        for _ in 0..ATTEMPTS {
            if is_alive(&self.shards[shard]) {
                return;
            }
            let host = self.me.host();
            self.shards[shard] = host.whereis(shard_name(shard)).and_then(|pid| host.address(pid));
            if !is_alive(&self.shards[shard]) {
                self.me.sleep(PAUSE).await;
            }
        }
    }
}

/// Returns the batch for exclusive use. A failed shard may still hold the old batch. In this case, the connection
/// continues with a new batch. The new batch contains a copy of the bytes that follow the commands of the old batch.
fn unshared(batch: &mut Arc<Batch>) -> &mut Batch {
    if Arc::get_mut(batch).is_none() {
        *batch = Arc::new(batch.remainder());
    }
    Arc::get_mut(batch).expect("the connection is the only owner")
}
