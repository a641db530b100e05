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
    // The main program keeps the lobby alive until this process has ended.
    if let Err(NameError::Taken { holder, .. }) = ctx.register(LOBBY) {
        println!("the lobby is {holder}")
    }
    ctx.host().broadcast(ROOM, Chat::Say("hi".into()));
    while let Chat::Say(s) = ctx.receive().await? {
        println!("{s}")
    }
    ctx.leave_group(ROOM);
    Ok(())
}
pub fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let pid = rt.process().name(LOBBY).spawn_or_send(Chat::Say("first".into()), user)?;
    let user_7 = rt.process().name(format!("user-{}", 7)).spawn(user)?;
    rt.send(LOBBY, Chat::Say("to the lobby".into()))?;
    for a in rt.members(ROOM) {
        a.send(Chat::Say("to a member".into()))?
    }
    match rt.process().name(LOBBY).spawn(user) {
        Err(e) => {
            let SpawnErrorKind::NameTaken(by) = e.kind() else { return Err(e.kind().to_string().into()) };
            assert_eq!(*by, pid);
            let _back = e.into_body();
        }
        Ok(_) => return Err("the name of the lobby is taken".into()),
    }
    rt.send("user-7", Chat::Who)?;
    rt.block_on(user_7)?;
    let lobby: Option<Address<Chat>> = rt.whereis("lobby").and_then(|p| rt.address(p));
    let lobby = lobby.ok_or("the lobby is alive")?;
    lobby.send(Chat::Who)?;
    assert!(rt.block_on(lobby.exited()).is_normal());
    assert_eq!(rt.whereis(LOBBY), None);
    Ok(())
}
