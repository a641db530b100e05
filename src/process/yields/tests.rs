use super::*;

/// Yields a command.
pub(super) fn start(yields: &Yields) -> Tag {
    let (command, info) = (Some(Payload::new(())), YieldInfo::default());
    yields.start::<NamedCommand>(AnswerTarget::Event, None, command, None, info).expect("no tag").erase()
}

/// 3.3a: a process has yielded a command, and then has made 2³¹ calls. The next command is cancelled before its
/// dispatch, and does not reach its handler.
#[test]
fn a_cancelled_command_is_not_dispatched_after_very_many_calls() {
    let yields = Yields::new();
    for calls in [0, 1 << 31, 1 << 31, (1 << 31) - 1, 1 << 32, 5] {
        yields.issued.fetch_add(calls, Ordering::Relaxed);
        let (kept, cancelled) = (start(&yields), start(&yields));
        assert!(yields.cancel(cancelled));
        let mut batch = Batch::default();
        assert_eq!(yields.take_pending(&mut batch), 2);
        let overtaken: Vec<_> = batch.iter().flatten().map(|yielded| yields.is_overtaken(yielded.tag)).collect();
        assert_eq!(overtaken, [false, true], "after {calls} calls");
        yields.forget_overtaken();
        assert!(!yields.overtaken.load(Ordering::Relaxed) && yields.is_wanted(kept));
    }
}

/// 4.7j: after a burst of commands, the table frees its memory although some older commands are outstanding.
#[test]
fn the_memory_of_a_burst_is_freed_although_older_commands_are_outstanding() {
    let yields = Yields::new();
    let older = [start(&yields), start(&yields)];
    let burst: Vec<_> = (0..20_000).map(|_| start(&yields)).collect();
    let bytes = || yields.table().expect("a command was yielded").slots.bytes();
    let full = bytes();
    assert!(burst.into_iter().all(|tag| yields.cancel(tag)));
    assert!(bytes() < full / 10, "{} of {full} bytes", bytes());
    assert!(older.into_iter().all(|tag| yields.cancel(tag)));
}

/// 3.5a: a process cancels two commands. The answer to the first command has already arrived. The second command is on
/// the inline path. The record of the first cancellation remains when the second command leaves the inline path.
#[test]
fn an_unwanted_answer_is_discarded_even_if_an_inline_command_was_cancelled() {
    let yields = Yields::new();
    let (answered, inline) = (start(&yields), Tag::inline(yields.issue()));
    let done = answer(&yields, answered, Answerer::Completion);
    assert!(matches!(done, Ok(Answered::Event(tag)) if tag == answered));
    assert!(!yields.cancel(answered) && !yields.cancel(inline));
    assert!(yields.admit_answer(inline, Ok(Payload::new(()))).is_err());
    assert!(!yields.wants_answer(answered));
    assert!(!yields.recalled.load(Ordering::Relaxed));
}

/// Answers a command with `()`. Returns the action that `deliver` received.
pub(super) fn answer(yields: &Yields, tag: Tag, from: Answerer) -> Result<Answered, Late> {
    let mut action = None;
    let answer = &mut Some(Ok(Payload::new(())));
    yields.complete(tag, answer, from, |_| {}, &|_, _| {}, |answered, _| action = Some(answered))?;
    Ok(action.expect("an accepted answer has an action"))
}

#[test]
fn a_process_waits_while_a_command_is_outstanding() {
    let yields = Yields::new();
    assert!(!yields.is_waiting());
    let tag = start(&yields);
    assert!(yields.is_waiting());
    assert!(yields.cancel(tag) && !yields.is_waiting());
}

#[test]
fn the_reason_of_a_refused_answer_says_whether_the_tag_number_was_issued() {
    let yields = Yields::new();
    let cancelled = start(&yields);
    assert!(yields.cancel(cancelled));
    let next = Tag::issued(cancelled.number + 1, 0);
    for (tag, reason) in [(cancelled, Late::Spent), (next, Late::Unknown), (Tag::chosen(0), Late::Unknown)] {
        assert_eq!(answer(&yields, tag, Answerer::Application).expect_err("it is not in the table"), reason);
    }
}

/// 3.5a: the answer to a detached command is discarded, whether the answer arrives before or after the detachment.
#[test]
fn a_detached_command_leaves_the_table_as_soon_as_it_is_answered() {
    let yields = Yields::new();
    let [early, late] = [(); 2].map(|()| {
        let command = Some(Payload::new(()));
        yields
            .start::<NamedCommand>(AnswerTarget::Own, None, command, None, YieldInfo::default())
            .expect("no tag")
            .erase()
    });
    assert!(matches!(answer(&yields, early, Answerer::Completion), Ok(Answered::Own)));
    [early, late].into_iter().for_each(|tag| yields.detach(tag));
    assert!(!yields.contains(early) && yields.contains(late));
    assert!(matches!(answer(&yields, late, Answerer::Completion), Ok(Answered::Discard)));
    assert!(!yields.contains(late));
}

#[test]
fn a_chosen_tag_has_a_generation_only_while_a_command_has_this_tag() {
    let yields = Yields::new();
    let (chosen, spent) = (Tag::<NamedCommand>::chosen(7), start(&yields));
    assert!(yields.cancel(spent));
    assert_eq!(
        (yields.with_current_generation(spent), yields.with_current_generation(chosen.erase())),
        (Some(spent), None)
    );
    let command = Some(Payload::new(()));
    let tag = yields
        .start(AnswerTarget::Event, Some(chosen), command, None, YieldInfo::default())
        .expect("the tag is free")
        .erase();
    assert_eq!(yields.with_current_generation(chosen.erase()).map(|found| found.number), Some(tag.number));
    assert!(yields.cancel(tag));
    assert_eq!(yields.with_current_generation(chosen.erase()), None);
}

#[test]
fn a_process_that_has_ended_accepts_no_answers() {
    let yields = Yields::new();
    let [before, after] = [(); 2].map(|()| start(&yields));
    assert!(answer(&yields, before, Answerer::Completion).is_ok());
    yields.end_answers();
    assert_eq!(answer(&yields, after, Answerer::Completion).expect_err("it has ended"), Late::Spent);
    assert!(yields.is_wanted(after), "the command is not cancelled");
}
