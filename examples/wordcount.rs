//! Counts the words of every regular file under a folder, with processes.
//!
//! ```text
//!  walker ──ListDir──▶ blocking pool          asks the shards, prints
//!    │ a mapper for each file                        collector
//!    ▼                                                  │ Report
//!  mappers ──ReadFile──▶ blocking pool                  ▼
//!    └───────── Add(words of one shard) ───────────▶ shards
//! ```
//!
//! The walker keeps a bounded number of mappers alive. Files are read in chunks, and folders are listed in parts. A
//! mapper that has gathered a few thousand words passes some of these words to a shard. Before the next read, the
//! mapper waits until the shard has taken the words. Therefore the memory depends only on the number of distinct words
//! and on the length of the longest word. `cargo run --release --example wordcount -- --help` prints the options.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{File, ReadDir};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, FutureExt, select};
use futures::pin_mut;
use futures::stream::{FuturesUnordered, StreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use procession::{
    Address, BuiltinCommand, Command, Context, Event, Events, Exit, Failure, JoinHandle, Next, Process, Reply, Runtime,
    StepOutput, Tag,
};

const HELP: &str = "\
Counts the words of every regular file under DIR: maximal runs of ASCII letters, lower-cased.

Usage: wordcount [OPTIONS] DIR

  --in-flight N   files open at a time [64]
  --workers N     workers [one for each core]
  --step          mappers as hand-written step machines instead of async bodies
  --json          one line of JSON and nothing else on stdout
  --help          this text

Symbolic links are not followed; what is no regular file is skipped; DIR may be a single file. A file or folder that can't
be read is named on stderr and counted, the others go on. A word is held in memory whole.
Exit status: 0; 1 if something could not be read (or the result not
written); 2 for wrong arguments or a missing DIR; 130 after Ctrl-C.";

/// Number of bytes that one command reads.
const CHUNK: usize = 64 * 1024;
/// Maximum number of folder entries that one command lists.
const LISTED: usize = 256;
/// When a mapper has gathered this number of distinct words, the mapper passes words to a shard.
const GATHERED: usize = 4096;
const SHARDS: usize = 8;
const TOP: usize = 20;
/// Time that an interrupted run has for its clean-up.
const GRACE: Duration = Duration::from_secs(5);

type Counts = HashMap<Box<[u8]>, u64>;

// ---- Commands of the processes. Handlers on the blocking pool answer these commands.

/// Command that returns the next entries of a folder. The command passes the open folder to the handler, and the answer
/// passes the folder back.
struct ListDir(Listing);

enum Listing {
    Start(PathBuf),
    Rest(PathBuf, ReadDir),
}

struct Listed {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// Errors of single entries, with the path of the folder.
    failed: Vec<(PathBuf, io::Error)>,
    rest: Option<Listing>,
}

impl Command for ListDir {
    type Reply = Result<Listed, (PathBuf, io::Error)>;
}

fn list_dir(ListDir(listing): ListDir) -> <ListDir as Command>::Reply {
    let (path, mut entries) = match listing {
        Listing::Rest(path, entries) => (path, entries),
        Listing::Start(path) => match std::fs::read_dir(&path) {
            Ok(entries) => (path, entries),
            Err(error) => return Err((path, error)),
        },
    };
    let mut listed = Listed { folders: Vec::new(), files: Vec::new(), failed: Vec::new(), rest: None };
    for _ in 0..LISTED {
        let Some(entry) = entries.next() else { return Ok(listed) };
        // `file_type` does not follow links. Links are skipped. Pipes are also skipped, because opening a pipe may
        // block forever.
        match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
            Ok((path, kind)) if kind.is_dir() => listed.folders.push(path),
            Ok((path, kind)) if kind.is_file() => listed.files.push(path),
            Ok(_) => {}
            Err(error) => listed.failed.push((path.clone(), error)),
        }
    }
    listed.rest = Some(Listing::Rest(path, entries));
    Ok(listed)
}

/// Command that returns the next chunk of a file. The command passes the open file and the buffer to the handler, and
/// the answer passes both the file and the buffer back.
enum ReadFile {
    Open(PathBuf),
    More(File, Vec<u8>),
}

impl Command for ReadFile {
    type Reply = (File, Vec<u8>);
}

/// Reads the next chunk. An empty chunk means the end of the file.
fn read_file(command: ReadFile) -> io::Result<(File, Vec<u8>)> {
    let (mut file, mut chunk) = match command {
        ReadFile::Open(path) => (File::open(path)?, vec![0; CHUNK]),
        ReadFile::More(file, chunk) => (file, chunk),
    };
    chunk.resize(CHUNK, 0);
    let read = loop {
        match file.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    chunk.truncate(read);
    Ok((file, chunk))
}

// ---- Splitting files into words: both kinds of mapper use this code.

/// Result of one file, or the sum of the results of several files.
#[derive(Default)]
struct Totals {
    files: u64,
    unreadable: u64,
    bytes: u64,
    words: u64,
}

impl Totals {
    fn add(&mut self, other: Totals) {
        self.files += other.files;
        self.unreadable += other.unreadable;
        self.bytes += other.bytes;
        self.words += other.words;
    }
}

/// Splits chunks into words, and counts the words of each shard. A word at the end of a chunk is continued with the
/// next chunk.
struct Cutter {
    shards: Shards,
    bar: ProgressBar,
    gathered: Vec<Counts>,
    distinct: usize,
    ended: bool,
    word: Vec<u8>,
    totals: Totals,
}

type Shards = Arc<[Address<ToShard>]>;

impl Cutter {
    fn new(shards: Shards, bar: ProgressBar) -> Self {
        let gathered = shards.iter().map(|_| Counts::new()).collect();
        Self { shards, bar, gathered, distinct: 0, ended: false, word: Vec::new(), totals: Totals::default() }
    }

    fn cut(&mut self, mut chunk: &[u8]) {
        self.totals.bytes += chunk.len() as u64;
        while !chunk.is_empty() {
            let letters = chunk.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
            let (piece, rest) = chunk.split_at(letters);
            self.word.extend(piece.iter().map(u8::to_ascii_lowercase));
            if rest.is_empty() {
                return;
            }
            self.count_word();
            let others = rest.iter().take_while(|byte| !byte.is_ascii_alphabetic()).count();
            chunk = &rest[others..];
        }
    }

    fn count_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        self.totals.words += 1;
        // All mappers must compute the same shard for a word. Therefore the hash function is FNV-1a, which has no
        // random seed.
        let hash = self.word.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let counts = &mut self.gathered[(hash % self.shards.len() as u64) as usize];
        match counts.get_mut(self.word.as_slice()) {
            Some(count) => *count += 1,
            None => {
                counts.insert(self.word.as_slice().into(), 1);
                self.distinct += 1;
            }
        }
        self.word.clear();
    }

    /// Handles the result of a read. Returns the next read. Returns `None` at the end of the file, after an error, or
    /// if `stops` is true.
    fn handle_read(&mut self, path: &Path, read: Result<(File, Vec<u8>), Failure>, stops: bool) -> Option<ReadFile> {
        match read {
            Ok((file, chunk)) if !chunk.is_empty() => {
                self.cut(&chunk);
                if !stops {
                    return Some(ReadFile::More(file, chunk));
                }
            }
            Ok(_) => self.totals.files = 1,
            // The words before the error are counted. While the message is printed, the progress bar is suspended.
            // Otherwise the bar and the message would appear in the same line.
            Err(failure) => {
                self.totals.unreadable = 1;
                self.bar.suspend(|| match failure.error::<io::Error>() {
                    Some(error) => complain(path, error),
                    None => complain(path, &failure),
                });
            }
        }
        self.count_word();
        self.ended = true;
        None
    }

    /// If enough words were gathered, or if the file has ended, selects the shard with the most distinct words, and
    /// returns the words of this shard. The mapper must pass these words to the shard before the next read.
    fn part(&mut self) -> Option<(Address<ToShard>, Counts)> {
        if self.distinct < if self.ended { 1 } else { GATHERED } {
            return None;
        }
        let (shard, counts) = self.shards.iter().zip(&mut self.gathered).max_by_key(|(_, counts)| counts.len())?;
        let counts = std::mem::take(counts);
        self.distinct -= counts.len();
        Some((shard.clone(), counts))
    }
}

fn complain(path: &Path, error: &dyn Display) {
    let _ = writeln!(io::stderr(), "wordcount: {}: {error}", path.display());
}

// ---- Mappers: one mapper for each file.

async fn mapper(ctx: Context, path: PathBuf, mut cutter: Cutter) -> Result<Totals, Exit> {
    let mut next = Some(ReadFile::Open(path.clone()));
    while let Some(read) = next {
        next = cutter.handle_read(&path, ctx.perform(read).await, ctx.is_cancelled());
        // Waits until the shard has taken the words. Without this wait, the mailbox of a slow shard could grow without
        // limit.
        while let Some((shard, counts)) = cutter.part() {
            ctx.call(&shard, |taken| ToShard::Add(counts, taken)).await?;
        }
    }
    Ok(cutter.totals)
}

/// A mapper as a hand-written process. This process does the same as the function `mapper`.
struct Mapper {
    path: PathBuf,
    cutter: Cutter,
    next: Option<ReadFile>,
    waits: Option<WaitsFor>,
    cancelled: bool,
}

enum WaitsFor {
    Read(Tag<ReadFile>),
    Taken(Tag<BuiltinCommand<()>>),
}

impl Process for Mapper {
    type Message = ();
    type Output = Totals;

    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<Totals>, Exit> {
        const ONE: &str = "one command is in flight at a time";
        for event in events {
            match (event, self.waits.take()) {
                (Event::Completed(done), Some(WaitsFor::Read(tag))) => {
                    self.next = self.cutter.handle_read(&self.path, done.take(tag).expect(ONE), self.cancelled);
                }
                (Event::Completed(done), Some(WaitsFor::Taken(tag))) => done.take(tag).expect(ONE)?,
                (event, waits) => {
                    self.cancelled |= matches!(event, Event::Cancel { .. });
                    self.waits = waits;
                }
            }
        }
        if self.waits.is_some() {
            return Ok(Next::Wait);
        }
        self.waits = Some(match (self.cutter.part(), self.next.take()) {
            (Some((shard, counts)), next) => {
                self.next = next;
                WaitsFor::Taken(out.call(&shard, |taken| ToShard::Add(counts, taken)))
            }
            (None, Some(read)) => WaitsFor::Read(out.perform(read)),
            (None, None) => return Ok(Next::Done(std::mem::take(&mut self.cutter.totals))),
        });
        Ok(Next::Wait)
    }
}

// ---- The walker: finds the files, and keeps a bounded number of mappers alive.

struct Walk {
    root: PathBuf,
    in_flight: usize,
    by_hand: bool,
    bar: ProgressBar,
    shards: Shards,
}

async fn walker(ctx: Context, walk: Walk, so_far: Address<Totals>) -> Result<(), Exit> {
    let mut mappers = FuturesUnordered::new();
    let interrupted = {
        let walked = map_files(&ctx, &walk, &mut mappers, &so_far);
        pin_mut!(walked);
        match select(walked, ctx.cancelled()).await {
            Either::Left((walked, _)) => walked.map(|()| false)?,
            Either::Right(_) => true,
        }
    };
    if interrupted {
        mappers.iter().for_each(|mapper| mapper.cancel(&ctx));
        walk.settle_all(&mut mappers, &so_far).await?;
    }
    Ok(())
}

async fn map_files(
    ctx: &Context,
    walk: &Walk,
    mappers: &mut FuturesUnordered<Mapping>,
    so_far: &Address<Totals>,
) -> Result<(), Exit> {
    let mut folders = Vec::new();
    if walk.root.is_dir() {
        folders.push(Listing::Start(walk.root.clone()));
    } else {
        mappers.push(walk.spawn(ctx, walk.root.clone()));
    }
    while let Some(listing) = folders.pop() {
        let (mut failed, mut files) = (Vec::new(), Vec::new());
        match ctx.perform(ListDir(listing)).await? {
            Ok(listed) => {
                (failed, files) = (listed.failed, listed.files);
                folders.extend(listed.folders.into_iter().map(Listing::Start));
                // The walker lists the rest of this folder before it lists other folders, so only one folder is open at
                // a time.
                folders.extend(listed.rest);
            }
            Err(error) => failed.push(error),
        }
        for (path, error) in failed {
            walk.bar.suspend(|| complain(&path, &error));
            so_far.send(Totals { unreadable: 1, ..Totals::default() })?;
        }
        for path in files {
            while mappers.len() >= walk.in_flight {
                let totals = mappers.next().await.expect("there are some");
                walk.settle(totals?, so_far)?;
            }
            mappers.push(walk.spawn(ctx, path));
        }
    }
    walk.settle_all(mappers, so_far).await
}

impl Walk {
    fn spawn(&self, ctx: &Context, path: PathBuf) -> Mapping {
        self.bar.inc_length(1);
        let cutter = Cutter::new(self.shards.clone(), self.bar.clone());
        if self.by_hand {
            let next = Some(ReadFile::Open(path.clone()));
            Mapping::ByHand(ctx.spawn_process(Mapper { path, cutter, next, waits: None, cancelled: false }))
        } else {
            Mapping::Body(ctx.spawn(move |ctx| mapper(ctx, path, cutter)))
        }
    }

    fn settle(&self, totals: Totals, so_far: &Address<Totals>) -> Result<(), Exit> {
        self.bar.inc(1);
        Ok(so_far.send(totals)?)
    }

    async fn settle_all(&self, mappers: &mut FuturesUnordered<Mapping>, so_far: &Address<Totals>) -> Result<(), Exit> {
        while let Some(totals) = mappers.next().await {
            self.settle(totals?, so_far)?;
        }
        Ok(())
    }
}

/// Join handle of a mapper. The mapper is either an async body or a hand-written process.
enum Mapping {
    Body(JoinHandle<Totals>),
    ByHand(JoinHandle<Totals, ()>),
}

impl Mapping {
    fn cancel(&self, ctx: &Context) {
        let pid = match self {
            Mapping::Body(handle) => handle.pid(),
            Mapping::ByHand(handle) => handle.pid(),
        };
        // The mapper may have exited already.
        let _ = ctx.host().cancel(pid, "interrupted", GRACE);
    }
}

impl Future for Mapping {
    type Output = Result<Totals, Exit>;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Mapping::Body(handle) => handle.poll_unpin(cx),
            Mapping::ByHand(handle) => handle.poll_unpin(cx),
        }
    }
}

// ---- Shards: each shard counts a part of the words.

enum ToShard {
    Add(Counts, Reply<()>),
    Report(Reply<(usize, Vec<(Box<[u8]>, u64)>)>),
}

async fn shard(mut ctx: Context<ToShard>) -> Result<(), Exit> {
    let mut counts = Counts::new();
    loop {
        match ctx.receive().await? {
            ToShard::Add(more, taken) => {
                for (word, count) in more {
                    *counts.entry(word).or_default() += count;
                }
                taken.send(());
            }
            ToShard::Report(reply) => {
                // Copies only the reported words, because there may be many words, and words may be long.
                let mut top: Vec<_> = counts.iter().collect();
                keep_top(&mut top);
                let top = top.into_iter().map(|(word, count)| (word.clone(), *count)).collect();
                reply.send((counts.len(), top));
            }
        }
    }
}

/// Keeps the most frequent words. Words with the same count are ordered alphabetically.
fn keep_top<W: Ord, N: Ord>(words: &mut Vec<(W, N)>) {
    words.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    words.truncate(TOP);
}

// ---- The collector: adds up the totals, and asks the shards at the end.

struct Outcome {
    totals: Totals,
    distinct: usize,
    top: Vec<(Box<[u8]>, u64)>,
}

async fn collector(
    mut ctx: Context<Totals>,
    shards: Shards,
    done: futures::channel::oneshot::Receiver<()>,
) -> Result<Outcome, Exit> {
    let mut totals = Totals::default();
    pin_mut!(done);
    while let Either::Left((more, _)) = select(ctx.receive(), &mut done).await {
        totals.add(more?);
    }
    // The walker has exited, so all its messages have been sent.
    while let Some(more) = ctx.try_receive() {
        totals.add(more);
    }
    let (mut distinct, mut top) = (0, Vec::new());
    for shard in shards.iter() {
        let (words, most) = ctx.call(shard, ToShard::Report).await?;
        distinct += words;
        top.extend(most);
    }
    keep_top(&mut top);
    Ok(Outcome { totals, distinct, top })
}

// ---- The program.

struct Arguments {
    root: PathBuf,
    in_flight: usize,
    workers: Option<usize>,
    by_hand: bool,
    json: bool,
}

fn arguments() -> Result<Option<Arguments>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut found = Arguments { root: PathBuf::new(), in_flight: 64, workers: None, by_hand: false, json: false };
    let mut root: Option<OsString> = None;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("in-flight") => found.in_flight = parser.value()?.parse::<std::num::NonZeroUsize>()?.get(),
            Long("workers") => found.workers = Some(parser.value()?.parse::<std::num::NonZeroUsize>()?.get()),
            Long("step") => found.by_hand = true,
            Long("json") => found.json = true,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if root.is_none() => root = Some(value),
            other => return Err(other.unexpected()),
        }
    }
    found.root = root.ok_or("no DIR given; --help says more")?.into();
    Ok(Some(found))
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            let _ = writeln!(io::stdout(), "{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&error),
    };
    match std::fs::metadata(&arguments.root) {
        Ok(root) if root.is_dir() || root.is_file() => {}
        Ok(_) => {
            complain(&arguments.root, &"neither a folder nor a file");
            return ExitCode::from(2);
        }
        Err(error) => {
            complain(&arguments.root, &error);
            return ExitCode::from(2);
        }
    }
    match count(arguments) {
        Ok(status) => status,
        Err(error) => fail(&*error),
    }
}

fn fail(error: &dyn Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "wordcount: {error}");
    ExitCode::from(2)
}

fn count(arguments: Arguments) -> procession::Result<ExitCode> {
    let mut builder = Runtime::builder().handle_blocking(list_dir).handle_blocking(read_file);
    if let Some(workers) = arguments.workers {
        builder = builder.workers(workers);
    }
    let rt = builder.build()?;
    let (interrupt, mut interrupts) = futures::channel::mpsc::unbounded::<()>();
    ctrlc::set_handler(move || drop(interrupt.unbounded_send(())))?;

    let shards: Shards = (0..SHARDS).map(|_| rt.spawn(shard).address()).collect();
    let (done, all_done) = futures::channel::oneshot::channel();
    let asked = shards.clone();
    let collector = rt.spawn(move |ctx| collector(ctx, asked, all_done));
    let bar = progress();
    let Arguments { root, in_flight, by_hand, json, .. } = arguments;
    let walk = Walk { root, in_flight, by_hand, bar: bar.clone(), shards };
    let so_far = collector.address();
    let mut walker = rt.spawn(move |ctx| walker(ctx, walk, so_far));

    let interrupted = rt.block_on(async {
        match select(&mut walker, interrupts.next()).await {
            Either::Left((walked, _)) => return walked.map(|()| false),
            Either::Right(_) => {}
        }
        // The walker has a grace period to stop its mappers. The result contains the files that were counted before the
        // stop.
        if rt.cancel(walker.pid(), "interrupted", GRACE).is_ok() {
            let _ = walker.await;
        }
        Ok(true)
    })?;
    bar.finish_and_clear();
    drop(done);
    let outcome = rt.block_on(collector)?;
    let counters = rt.counters();
    for left in futures::executor::block_on(rt.shutdown(GRACE)).left {
        let _ = writeln!(io::stderr(), "wordcount: {left}");
    }
    let printed = if json { outcome.json() } else { format!("{outcome}{counters}\n") };
    let written = match io::stdout().write_all(printed.as_bytes()) {
        // A closed pipe is not an error, because the program that reads the output may stop early.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(Path::new("stdout"), &error);
            false
        }
        _ => true,
    };
    Ok(match interrupted {
        true => ExitCode::from(130),
        false if written && outcome.totals.unreadable == 0 => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

fn progress() -> ProgressBar {
    // The crate `indicatif` draws the bar only on a terminal.
    let style = ProgressStyle::with_template("{spinner} {bar:40} {pos} of {len} files found, {per_sec}");
    ProgressBar::new(0).with_style(style.expect("the template is right"))
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, count) in &self.top {
            writeln!(f, "{count:>12} {}", String::from_utf8_lossy(word))?;
        }
        let Totals { files, unreadable, bytes, words } = &self.totals;
        let distinct = self.distinct;
        writeln!(f, "{files} files, {unreadable} unreadable, {bytes} bytes, {words} words, {distinct} distinct")
    }
}

impl Outcome {
    /// Returns the result as one line of JSON. The words consist of letters, so the words need no escapes.
    fn json(&self) -> String {
        let Totals { files, unreadable, bytes, words } = &self.totals;
        let top = self.top.iter().map(|(word, count)| format!("[\"{}\",{count}]", String::from_utf8_lossy(word)));
        let (distinct, top) = (self.distinct, top.collect::<Vec<_>>().join(","));
        format!(
            "{{\"files\":{files},\"unreadable\":{unreadable},\"bytes\":{bytes},\"words\":{words},\
             \"distinct\":{distinct},\"top\":[{top}]}}\n"
        )
    }
}
