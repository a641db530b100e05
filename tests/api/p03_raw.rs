use procession::*;
enum Msg {
    Inc(u64),
    Get(Reply<u64>),
    Fetch(String),
}
struct Fetch(String);
impl Command for Fetch {
    type Reply = String;
}
#[derive(Default)]
struct Counter {
    count: u64,
    fetch: Option<Tag<Fetch>>,
}
impl Process for Counter {
    type Message = Msg;
    type Output = u64;
    fn step(&mut self, events: Events<'_, Msg>, out: &mut StepOutput<'_, Msg>) -> Result<Next<u64>, Exit> {
        for event in events {
            match event {
                Event::Message(Msg::Inc(n)) => self.count += n,
                Event::Message(Msg::Get(reply)) => reply.send(self.count),
                Event::Message(Msg::Fetch(u)) => self.fetch = Some(out.perform(Fetch(u))),
                Event::Completed(done) => {
                    if let Some(tag) = self.fetch.take() {
                        match done.take(tag) {
                            Ok(page) => self.count += page?.len() as u64,
                            Err(other) => {
                                other.into_result()?;
                            }
                        }
                    }
                }
                Event::Cancel { .. } => return Ok(Next::Done(self.count)),
                _ => {}
            }
        }
        Ok(Next::Wait)
    }
}
// A process that accepts messages of any type.
struct Any(u64);
impl Process for Any {
    type Message = Payload;
    type Output = ();
    fn step(&mut self, events: Events<'_, Payload>, out: &mut StepOutput<'_, Payload>) -> Result<Next<()>, Exit> {
        for event in events {
            if let Event::Message(p) = event {
                match p.downcast::<u64>() {
                    Ok(n) => self.0 += n,
                    Err(p) => match p.downcast::<Reply<u64>>() {
                        Ok(r) => r.send(self.0),
                        Err(p) => println!("ignored {p:?}"),
                    },
                }
            }
        }
        out.send(out.pid(), 1u8)?;
        Ok(Next::Wait)
    }
}
pub fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let c = rt.spawn_process(Counter::default());
    c.send(Msg::Inc(1))?;
    let n: u64 = rt.block_on(c.call(Msg::Get))?;
    let any = rt.spawn_process(Any(0)).pid();
    rt.send(any, 7u64)?;
    // The send is refused, and the error returns the message to the caller.
    if let Err(e) = rt.send(c.pid(), "wrong") {
        assert!(matches!(e.kind(), SendErrorKind::WrongType { .. }));
        let _m: &str = e.into_message();
    }
    let n: u64 = rt.block_on(rt.call(any, |r: Reply<u64>| r))?;
    let total: u64 = rt.block_on(c)?;
    Ok(())
}
