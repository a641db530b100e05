//! Many processes at once: they are queued together, and as many workers come for them as can be of use.

use crate::context::me::Me;
use crate::host::Host;
use crate::host::cancel::inherited::Inherited;
use crate::host::job::{Anywhere, Job};
use crate::process::error::SpawnError;
use crate::task::body::{Body, BodyFuture, Output, Whole, with_machine};
use crate::task::join::JoinHandle;

/// What became of each: its handle, or the body that was refused.
type Handles<F, N, Fut> = Vec<Result<JoinHandle<Output<Fut>, N>, SpawnError<F>>>;

/// Processes that have begun and are not queued yet. They are when this is dropped, also if what yields the next of them
/// panics.
struct Batch<'a> {
    host: &'a Host,
    tasks: Vec<Job>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let shared = self.host.shared();
        (shared.schedule_all)(&shared.place, std::mem::take(&mut self.tasks));
    }
}

impl Host {
    /// Spawns many async bodies as processes: all are queued under one lock when the last of them is there, in their
    /// order, and wake as many workers as they are, at most. One by one the first would be run, and wake others, while
    /// the next are spawned: that is better where the bodies come slowly or the first must not wait.
    ///
    /// ```
    /// # use procession::{Context, Exit, Runtime};
    /// let rt = Runtime::new()?;
    /// let squares = rt.spawn_batch((0..4_u64).map(|n| async move |_: Context| Ok::<_, Exit>(n * n)));
    /// let sum: u64 = squares.into_iter().map(|one| rt.block_on(one.expect("it is taken")).expect("it ends")).sum();
    /// assert_eq!(sum, 14);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// For each body that was refused, why, with the body: where only so many fit, the first are taken.
    pub fn spawn_batch<N, F, Fut>(&self, bodies: impl IntoIterator<Item = F>) -> Handles<F, N, Fut>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        self.launch_batch(bodies, Inherited::default)
    }

    fn launch_batch<N, F, Fut>(
        &self,
        bodies: impl IntoIterator<Item = F>,
        inherited: impl Fn() -> Inherited,
    ) -> Handles<F, N, Fut>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let mut batch = Batch { host: self, tasks: Vec::new() };
        let launch = |body: F| {
            with_machine!(N, F, Fut, body, None, |machine| match self.prepare(machine, inherited(), Anywhere) {
                Ok((spawned, ready)) => {
                    batch.tasks.push(Job::Process(ready));
                    Ok(JoinHandle::new(spawned))
                }
                Err((refusal, machine)) => {
                    Err(SpawnError::boxed(refusal, machine.into_inner().expect("it never ran").whole()))
                }
            })
        };
        bodies.into_iter().map(launch).collect()
    }
}

impl<M: Send + 'static> Me<M> {
    /// Spawns many async bodies as processes that inherit this one's values: see [`Host::spawn_batch`].
    ///
    /// # Errors
    /// For each body that was refused, why, with the body.
    pub fn spawn_batch<N, F, Fut>(&self, bodies: impl IntoIterator<Item = F>) -> Handles<F, N, Fut>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        self.host().launch_batch(bodies, || self.passes_on())
    }
}
