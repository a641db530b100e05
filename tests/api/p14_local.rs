use procession::*;
use std::{cell::RefCell, rc::Rc};
pub fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let shared = Rc::new(RefCell::new(0));
    let local = rt.local_set();
    let s = shared.clone();
    let h = local.spawn(async move |mut ctx: Context<i32>| -> Result<(), Exit> {
        loop {
            *s.borrow_mut() += ctx.receive().await?
        }
    });
    let a = h.address();
    std::thread::spawn(move || a.send(1).unwrap());
    futures::executor::block_on(local.run(h))?;
    Ok(())
}
