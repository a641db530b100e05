//! Lists the names and groups of a host.

use crate::host::Host;
use crate::observe::{GroupInfo, Listing, NameInfo};

impl Host {
    /// Lists the names of this host that begin with `prefix`, in alphabetical order. The result contains one row for
    /// each name, but at most `limit` rows. The result also contains the count of all names of this host that begin
    /// with `prefix`. With an empty prefix, the call selects all names. The names of the other hosts of the runtime are
    /// not included.
    ///
    /// Any thread can make this call, even during a step. The call never stops a worker. Names may be registered and
    /// released during the call. A name that exists during the whole call is read exactly once.
    ///
    /// The duration of the call is proportional to the number of selected names. The call stores at most `limit`
    /// rows. The call reads the names in pieces of at most 256 names, and holds one lock for each piece. The call
    /// runs no user code.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// let rt = Runtime::builder().workers(0).build()?;
    /// for name in ["shop.2", "cache", "shop.1", "shop.3"] {
    ///     rt.process().name(name).spawn(async |_: Context| std::future::pending::<()>().await)?;
    /// }
    /// let shops = rt.names("shop.", 2);
    /// let names: Vec<_> = shops.rows.iter().map(|row| &*row.name).collect();
    /// assert_eq!((names, shops.count), (vec!["shop.1", "shop.2"], 3));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn names(&self, prefix: &str, limit: usize) -> Listing<NameInfo> {
        self.namespace().names().list(prefix, limit, |name, holder| NameInfo {
            name: name.clone(),
            pid: holder.head().pid(),
            // A mailbox outside any process can have a name, but has no type.
            type_name: holder.type_name().unwrap_or_default(),
        })
    }

    /// Lists the groups of this host whose names begin with `prefix`, in alphabetical order. The result contains one
    /// row for each group, but at most `limit` rows. A row contains the count of all members, and a list of the first
    /// members. The result also contains the count of all groups of this host whose names begin with `prefix`. The
    /// statements about duration, locks and memory in the documentation of [`names`](Self::names) also apply to this
    /// call.
    ///
    /// ```
    /// # use procession::{Context, Group, Runtime};
    /// const JOBS: Group<u8> = Group::new("jobs");
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let member = rt.spawn(async |ctx: Context<u8>| {
    ///     ctx.join_group(JOBS);
    ///     std::future::pending::<()>().await;
    /// });
    /// rt.block_on(rt.spawn(async |_: Context| ()))?;
    /// let groups = rt.groups("", 10);
    /// assert_eq!((groups.rows[0].members, groups.count), (1, 1));
    /// assert_eq!(groups.rows[0].first_members, [member.pid()]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn groups(&self, prefix: &str, limit: usize) -> Listing<GroupInfo> {
        self.namespace().groups().list(prefix, limit)
    }
}
