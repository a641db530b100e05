use procession::*;
struct Shop {
    open: bool,
}
impl Process for Shop {
    type Message = Payload;
    type Output = ();
    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        let (entry, input) = (start.entry, start.input);
        match entry {
            "open" => {
                self.open = input.downcast::<bool>().map_err(|p| InitError::WrongInput {
                    entry: entry.into(),
                    expected: "bool",
                    found: p.type_name(),
                })?
            }
            "close" => self.open = false,
            _ => return Err(InitError::UnknownEntry { entry: entry.into(), known: vec!["open", "close"] }),
        }
        Ok(())
    }
    fn step(&mut self, _: Events<'_, Payload>, _: &mut StepOutput<'_, Payload>) -> Result<Next<()>, Exit> {
        Ok(Next::Wait)
    }
}
enum Msg {
    Stop,
}
struct Config {
    port: u16,
}
async fn serve(mut ctx: Context<Msg>, config: Config) -> Result<u32, Exit> {
    ctx.receive().await?;
    Ok(config.port as u32)
}
async fn migrate(ctx: Context<Msg>, from: u32) -> Result<u32, std::num::ParseIntError> {
    "1".parse::<u32>()
}
pub fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let shop = rt.process().entry("burn").input(()).spawn_process(Shop { open: false })?;
    if let Err(exit) = rt.block_on(shop.started()) {
        if let Some(InitError::UnknownEntry { entry, known }) = exit.error() {
            println!("{entry}? one of {known:?}")
        }
    }
    let app = || EntryPoints::new().entry("serve", serve).entry("migrate", migrate);
    let n: u32 = rt.block_on(rt.execute(app(), "migrate", 3u32))?;
    let h = rt.process().entry("serve").input(Config { port: 80 }).spawn_process(app())?;
    h.send(Msg::Stop)?;
    Ok(())
}
