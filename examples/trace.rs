//! Counts the words of a source tree with many processes, and writes an execution trace of the run.
//! <https://ui.perfetto.dev> opens the trace.
//!
//! ```sh
//! cargo run --release --example trace -- words.pftrace src
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use procession::{Address, Command, Context, Exit, Reply, Runtime};

/// Number of counting processes.
const COUNTERS: usize = 8;

/// Command that asks for the text of a file. A handler on the blocking pool reads the file.
struct Read(PathBuf);
impl Command for Read {
    type Reply = String;
}

/// The messages of a counter. Each counter counts the words that begin with certain letters.
enum Count {
    Words(Vec<String>),
    Total(Reply<HashMap<String, u64>>),
}

/// Counts the words in the received messages, until a message asks for the total.
async fn counter(mut ctx: Context<Count>) -> Result<(), Exit> {
    let mut counts = HashMap::new();
    loop {
        match ctx.receive().await? {
            Count::Words(words) => words.into_iter().for_each(|word| *counts.entry(word).or_insert(0) += 1),
            Count::Total(reply) => {
                reply.send(counts);
                return Ok(());
            }
        }
    }
}

/// Splits a file into words, and sends the words to their counters.
async fn splitter(ctx: Context, file: PathBuf, counters: Vec<Address<Count>>) -> Result<(), Exit> {
    let text = ctx.perform(Read(file)).await?;
    let mut words: Vec<Vec<String>> = vec![Vec::new(); COUNTERS];
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        words[usize::from(word.as_bytes()[0]) % COUNTERS].push(word.to_lowercase());
    }
    for (counter, words) in counters.iter().zip(words) {
        counter.send(Count::Words(words))?;
    }
    Ok(())
}

/// Spawns a splitter for each file, waits for all splitters, and returns the number of different words and of all
/// words.
async fn count(ctx: Context, files: Vec<PathBuf>) -> Result<(usize, u64), Exit> {
    let counters: Vec<_> = (0..COUNTERS).map(|_| ctx.spawn(counter).address()).collect();
    let mut splitters = Vec::new();
    for file in files {
        let counters = counters.clone();
        splitters.push(ctx.spawn(async move |ctx: Context| splitter(ctx, file, counters).await));
    }
    for splitter in splitters {
        splitter.await?;
    }
    let (mut different, mut all) = (0, 0);
    for counter in counters {
        let counts = counter.call(Count::Total).await?;
        different += counts.len();
        all += counts.values().sum::<u64>();
    }
    Ok((different, all))
}

/// Appends the Rust and Markdown files below a folder to `found`.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            found.push(path);
        }
    }
    Ok(())
}

fn main() -> procession::Result {
    let mut arguments = std::env::args().skip(1);
    let trace_file = arguments.next().ok_or("usage: trace FILE [FOLDER]")?;
    let mut found = Vec::new();
    files(Path::new(&arguments.next().unwrap_or_else(|| "src".into())), &mut found)?;
    let rt = Runtime::builder().handle_blocking(|read: Read| std::fs::read_to_string(read.0)).build()?;
    let before = rt.counters();
    let trace = rt.start_trace(&trace_file)?;
    let (different, all) = rt.block_on(rt.spawn(async move |ctx: Context| count(ctx, found).await))?;
    while rt.processes_alive() != 0 {
        std::thread::yield_now();
    }
    let (counted, summary) = (rt.counters() - before, trace.finish()?);
    println!("{all} words, {different} different words");
    // `.ci/trace.py` compares these counts with the trace.
    println!(
        "steps={} spawned={} messages={} yields={} completions={}",
        counted.steps, counted.spawned, counted.messages, counted.yields, counted.completions
    );
    println!("events={} lost={}", summary.events, summary.lost);
    Ok(())
}
