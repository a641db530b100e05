use procession::*;
#[derive(Clone)]
enum Chat {
    Say(String),
    Who,
}
const ROOM: Group<Chat> = Group::new("room");
const LOBBY: Name<Chat> = Name::new("lobby");
async fn user(mut ctx: Context<Chat>) -> Result<(), Exit> {
    ctx.join_group(ROOM);
    ctx.register(LOBBY)?;
    ctx.host().broadcast(ROOM, Chat::Say("hi".into()));
    while let Chat::Say(s) = ctx.receive().await? {
        println!("{s}")
    }
    ctx.leave_group(ROOM);
    Ok(())
}
pub fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let pid = rt.process().name(LOBBY).spawn_or_send(Chat::Who, user)?;
    rt.process().name(format!("user-{}", 7)).spawn(user)?;
    rt.send(LOBBY, Chat::Who)?;
    rt.send("user-7", Chat::Who)?;
    for a in rt.members(ROOM) {
        a.send(Chat::Who)?
    }
    let a: Option<Address<Chat>> = rt.whereis("lobby").and_then(|p| rt.address(p));
    match rt.process().name(LOBBY).spawn(user) {
        Err(e) => {
            let SpawnErrorKind::NameTaken(by) = e.kind() else { return Ok(()) };
            println!("taken by {by}");
            let _back = e.into_body();
        }
        Ok(_) => {}
    }
    Ok(())
}
