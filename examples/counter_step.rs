//! A hand-written process. In each step, the process gets events and produces output. The process counts, performs
//! commands, and returns its count when it is cancelled.

use std::time::Duration;

use procession::{Command, Event, Events, Exit, InitError, Next, Process, Reply, Runtime, Start, StepOutput, Tag};

/// Command that asks for the length of a text.
struct Measure(String);

impl Command for Measure {
    type Reply = u64;
}

enum Msg {
    Add(u64),
    AddLengthOf(String),
    Get(Reply<u64>),
}

#[derive(Default)]
struct Counter {
    count: u64,
    /// Tags of the commands in flight.
    measuring: Vec<Tag<Measure>>,
}

impl Process for Counter {
    type Message = Msg;
    type Output = u64;

    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        println!("{} starts", start.pid);
        Ok(())
    }

    fn step(&mut self, events: Events<'_, Msg>, out: &mut StepOutput<'_, Msg>) -> Result<Next<u64>, Exit> {
        for event in events {
            match event {
                Event::Message(Msg::Add(n)) => self.count += n,
                Event::Message(Msg::AddLengthOf(text)) => self.measuring.push(out.perform(Measure(text))),
                Event::Message(Msg::Get(reply)) => reply.send(self.count),
                Event::Completed(done) => {
                    let position = self.measuring.iter().position(|tag| done.tag() == *tag);
                    let tag = self.measuring.swap_remove(position.expect("every answer has a tag that we were given"));
                    self.count += done.take(tag).expect("the answer belongs to this tag")?;
                }
                Event::Cancel { reason, .. } => {
                    println!("asked to end: {reason}");
                    return Ok(Next::Done(self.count));
                }
                _ => {}
            }
        }
        Ok(Next::Wait)
    }

    fn close(&mut self) {
        println!("closed");
    }
}

fn main() -> procession::Result {
    let rt = Runtime::builder().handle(|c: Measure| c.0.len() as u64).build()?;
    let counter = rt.spawn_process(Counter::default());
    counter.send(Msg::Add(2))?;
    counter.send(Msg::AddLengthOf("forty letters, if one counts the blanks".into()))?;
    counter.send(Msg::Add(1))?;
    while rt.block_on(counter.call(Msg::Get))? < 42 {}
    rt.cancel(counter.pid(), "that will do", Duration::from_secs(1))?;
    let count = rt.block_on(counter)?;
    println!("it counted to {count}");
    assert_eq!(count, 42);
    Ok(())
}
