//! Commands of one kind that a step yields one after the other. Their tags are taken some at a time, ahead of them, and
//! they are left here until the next ones are taken or the step is over: so a step that yields many takes the table's lock
//! once for many of them (bench `command-thread`).
//!
//! A tag that was taken ahead is in flight like any other [plain](crate::process::yields::lock_free) one, save that nobody knows it; what is left
//! of them when the step is over was never there.

use std::any::TypeId;
use std::cell::Cell;

use crate::platform::sync::thread_local;
use crate::process::command::Command;
use crate::process::event::Tag;
use crate::process::payload::Payload;
use crate::process::yields::lock_free::Words;
use crate::process::yields::table::{Table, reply_to};
use crate::process::yields::{Yield, Yields, count};

thread_local! {
    /// One that is used again and again: most steps that need one have the last one's.
    static SPARE: Cell<Option<Box<Stage>>> = const { Cell::new(None) };
}

/// So many tags are taken ahead, at most.
const AHEAD: usize = 32;
/// So many commands of a step come one by one: most yield no more.
pub(crate) const ALONE: u8 = 2;

/// What a step has yielded beyond those.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Of which command type the tags are.
    of: Option<TypeId>,
    /// The number of the first of them; the others follow.
    first: u64,
    /// Where the table keeps them; so many as `taken` says.
    keys: [u32; AHEAD],
    taken: usize,
    /// Those that were yielded, in order.
    commands: Vec<Payload>,
}

impl Stage {
    /// With no tags yet.
    fn spare() -> Box<Self> {
        SPARE.try_with(Cell::take).ok().flatten().unwrap_or_else(|| {
            Box::new(Self { of: None, first: 0, keys: [0; AHEAD], taken: 0, commands: Vec::with_capacity(AHEAD) })
        })
    }

    /// The next tag, for this command.
    ///
    /// # Errors
    /// The command, if none is left, or they are of another kind.
    #[inline]
    fn place<C: Command>(&mut self, command: Payload) -> Result<Tag<C>, Payload> {
        let next = self.commands.len();
        if next == self.taken || self.of != Some(TypeId::of::<C>()) {
            return Err(command);
        }
        self.commands.push(command);
        Ok(Tag::plain(self.first + next as u64, self.keys[next]))
    }

    /// Leaves what was yielded to be dispatched, and the tags that were not used to nobody.
    fn empty_into(&mut self, table: &mut Table, yields: &Yields) {
        let used = self.commands.len();
        for (at, command) in self.commands.drain(..).enumerate() {
            let tag = Tag::plain(self.first + at as u64, self.keys[at]);
            table.pending.push_back(Yield { tag, command });
        }
        let mut unused = 0;
        for at in used..self.taken {
            let tag = Tag::plain(self.first + at as u64, self.keys[at]);
            // Nobody knows it, so nobody watches it.
            unused += i32::from(yields.words().is_some_and(|words| table.plain().cancel(words, tag).is_some()));
        }
        count(&yields.pending, used as i32);
        count(&yields.flying, -unused);
        self.taken = 0;
    }
}

impl Yields {
    /// Takes a tag for a command that a step yields after [some](ALONE), as [`start`](Self::start) does.
    #[inline]
    pub(crate) fn start_next<C: Command>(&self, stage: &mut Option<Box<Stage>>, command: Payload) -> Tag<C> {
        let stage = stage.get_or_insert_with(Stage::spare);
        match stage.place(command) {
            Ok(tag) => tag,
            Err(command) => {
                self.take_ahead::<C>(stage);
                stage.place(command).unwrap_or_else(|_| unreachable!("some were taken just now"))
            }
        }
    }

    /// Takes tags: twice as many as the last time, for most steps yield a few commands, and some a thousand.
    fn take_ahead<C: Command>(&self, stage: &mut Stage) {
        let of = Some(TypeId::of::<C>());
        let many = if stage.of == of { (2 * stage.taken).clamp(2, AHEAD) } else { 2 };
        let parts = self.parts();
        let mut guard = parts.table.lock();
        let table = &mut *guard;
        stage.empty_into(table, self);
        stage.of = of;
        stage.first = table.issued;
        stage.taken = many;
        let words = parts.words.get_or_init(|| Box::new(Words::new()));
        for key in &mut stage.keys[..many] {
            let number = table.issued;
            *key = table.plain().begin(words, number, reply_to::<C>);
            table.issued += 1;
        }
        count(&self.flying, many as i32);
    }

    /// What comes next is to come behind what is on the stage; or nothing does.
    #[inline]
    pub(crate) fn settle(&self, stage: &mut Option<Box<Stage>>) {
        if let Some(stage) = stage.take() {
            self.clear_stage(stage);
        }
    }

    fn clear_stage(&self, mut stage: Box<Stage>) {
        stage.empty_into(&mut self.parts().table.lock(), self);
        stage.of = None;
        drop(SPARE.try_with(|spare| spare.replace(Some(stage))));
    }
}
