//! Serialization of snapshots with serde. Each struct is written with its fields, in the order of their declaration.
//! Durations are written in ns, and states are written as their names.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::observe::WorkerState;
use crate::observe::counters::Counters;
use crate::observe::distributions::{CommandTime, Distributions};
use crate::observe::histogram::Histogram;
use crate::observe::snapshot::{
    BlockingPoolMetrics, MemoryMetrics, ProcessMetrics, RuntimeMetrics, WORKER_STATES, WorkerMetrics,
};

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn name_of(state: WorkerState) -> &'static str {
    WORKER_STATES.iter().find(|(_, known)| *known == state).map_or("", |(name, _)| name)
}

/// Implements `Serialize` for a struct. If a field has an expression, the value of this expression is written instead
/// of the value of the field.
macro_rules! serialize_fields {
    ($($type:ident { $($field:ident $(= $value:expr)?),* $(,)? })*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut fields = serializer.serialize_struct(stringify!($type), [$(stringify!($field)),*].len())?;
                $(serialize_fields!(@ fields self $field $(= $value)?);)*
                fields.end()
            }
        }
    )*};
    (@ $fields:ident $self:ident $field:ident) => {
        $fields.serialize_field(stringify!($field), &$self.$field)?
    };
    (@ $fields:ident $self:ident $field:ident = $value:expr) => {
        $fields.serialize_field(stringify!($field), &$value($self))?
    };
}

serialize_fields! {
    RuntimeMetrics {
        elapsed_ns = |metrics: &Self| ns(metrics.elapsed),
        counters,
        distributions,
        workers,
        global_queue_depth,
        priority_queue_depth,
        processes,
        blocking_pool,
        timers,
        sockets,
        memory,
    }
    CommandTime { command, time }
    WorkerMetrics { worker, state = |worker: &Self| name_of(worker.state), local_queue_depth }
    ProcessMetrics {
        new,
        ready,
        running,
        blocked,
        idle,
        suspended,
        mailbox_messages,
        longest_mailbox,
        mailbox_signals,
        outstanding_yields,
    }
    BlockingPoolMetrics { threads, idle_threads, queue_depth }
    MemoryMetrics { blocks, pid_table, mailboxes, timers, global_queue, metrics, traces }
}

/// Writes a struct with the fields of the counters.
impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = self.named();
        let mut fields = serializer.serialize_struct("Counters", named.len())?;
        for (name, _, count) in named {
            fields.serialize_field(name, &count)?;
        }
        fields.end()
    }
}

/// Writes a struct with the fields of the distributions.
impl Serialize for Distributions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = self.named();
        let mut fields = serializer.serialize_struct("Distributions", named.len() + 3)?;
        for (name, _, histogram) in named {
            fields.serialize_field(name, histogram)?;
        }
        fields.serialize_field("command_time", &self.command_time)?;
        fields.serialize_field("sampled_one_in", &self.sampled_one_in)?;
        fields.serialize_field("messages_sampled_one_in", &self.messages_sampled_one_in)?;
        fields.end()
    }
}

/// Writes a struct with the number and the sum of the durations, three quantiles, and the buckets that contain
/// durations. All durations are in ns. A bucket is a pair of the upper bound of the bucket and the number of durations
/// in the bucket. If there are no durations, the quantiles are `None`.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Histogram", 6)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("sum_ns", &ns(self.sum()))?;
        for (name, q) in [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)] {
            fields.serialize_field(name, &self.quantile(q).map(ns))?;
        }
        let buckets: Vec<(u64, u64)> = self.buckets().map(|(longest, count)| (ns(longest), count)).collect();
        fields.serialize_field("buckets", &buckets)?;
        fields.end()
    }
}
