//! This file spawns many processes in one batch. The processes of a batch are queued together, under one lock. The
//! number of sleeping workers that a batch wakes is at most the number of processes in the batch.

use crate::context::me::SelfHandle;
use crate::host::Host;
use crate::host::cancel::inherited::InheritedContext;
use crate::host::job::{Anywhere, Job};
use crate::process::error::SpawnError;
use crate::task::body::{Body, BodyMachine, with_machine};
use crate::task::join::JoinHandle;
use crate::task::spawn::SpawnRequest;

/// Results of a batch. Each result is the handle of a process or an error with the refused body.
type Handles<F, N> = Vec<Result<JoinHandle<<F as Body<N>>::Value, N>, SpawnError<F>>>;

/// Processes that were started but not queued yet. The drop of the batch queues the processes. Therefore, the processes
/// are queued even if the iterator of the bodies panics.
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
    /// Spawns many async bodies as processes. When the iterator has returned its last body, all processes are queued in
    /// order under one lock. The number of sleeping workers that the call wakes is at most the number of processes.
    /// Before the batch is queued, no process of the batch runs. In contrast, a process of a separate spawn can run
    /// while the next processes are spawned. If the iterator is slow, or if the first process must start early, use
    /// separate spawns.
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
    /// For each refused body, returns the body and the reason of the refusal. If a limit allows only some of the
    /// processes, the first processes are spawned and the remaining processes are refused.
    pub fn spawn_batch<N, F>(&self, bodies: impl IntoIterator<Item = F>) -> Handles<F, N>
    where
        N: Send + 'static,
        F: Body<N>,
    {
        self.launch_batch(bodies, InheritedContext::default)
    }

    fn launch_batch<N, F>(
        &self,
        bodies: impl IntoIterator<Item = F>,
        inherited: impl Fn() -> InheritedContext,
    ) -> Handles<F, N>
    where
        N: Send + 'static,
        F: Body<N>,
    {
        let mut batch = Batch { host: self, tasks: Vec::new() };
        let launch = |body: F| {
            with_machine!(N, F, F::Future, body, None, |machine| {
                match inherited().prepare(self, machine, Anywhere) {
                    Ok((spawned, ready)) => {
                        batch.tasks.push(Job::Process(ready));
                        Ok(JoinHandle::new(spawned))
                    }
                    Err((refusal, machine)) => Err(SpawnError::boxed(refusal, machine.into_body())),
                }
            })
        };
        bodies.into_iter().map(launch).collect()
    }
}

impl<M: Send + 'static> SelfHandle<M> {
    /// Spawns many async bodies as processes that inherit the values, the deadline and the cancel token of this
    /// process: see [`Host::spawn_batch`].
    ///
    /// # Errors
    /// For each refused body, returns the body and the reason of the refusal.
    pub fn spawn_batch<N, F>(&self, bodies: impl IntoIterator<Item = F>) -> Handles<F, N>
    where
        N: Send + 'static,
        F: Body<N>,
    {
        self.host().launch_batch(bodies, || self.passes_on())
    }
}
