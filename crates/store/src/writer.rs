//! The one thread that writes. It takes what is queued, runs it in one transaction and answers after the commit, so
//! that a flush of the disk is shared by all who wait for one.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nexus_core::observe::{EndedCommit, Observer};
use nexus_core::store::{Contact, StoreError};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::agent;
use super::commits::{Commits, Verdict};
use super::fault::Fault;
use super::owner::Owner;

/// Jobs in one transaction. Enough that the flush weighs little beside the work, few enough that the first of them is
/// answered within some ten milliseconds.
const GROUP_JOBS_MAX: usize = 256;

/// Jobs that may wait. Some seconds of work on a slow disk; whoever comes later would not be answered in time, and is
/// told so instead.
const QUEUE_JOBS_MAX: usize = 16_384;

pub(super) struct Writer {
    // Declared, and so dropped, before the thread: that ends when its queue is closed, and is then waited for.
    queue: mpsc::Sender<Order>,
    observer: Arc<OnceLock<Arc<dyn Observer>>>,
    _thread: Joined,
}

enum Order {
    Write(Box<dyn Job>),
    /// Time to show other processes that this one is not paused.
    Beat,
    /// Lets other processes know how this one is reached. Writes nothing to the database.
    Announce(Contact, oneshot::Sender<Result<(), StoreError>>),
    Close(oneshot::Sender<Result<(), StoreError>>),
}

impl Writer {
    pub(super) fn start(
        db: Connection,
        me: Owner,
        foreign_commits: Arc<AtomicU64>,
        commits: Option<Box<dyn Commits>>,
    ) -> io::Result<Self> {
        let (queue, orders) = mpsc::channel(QUEUE_JOBS_MAX);
        let interval = me.beat_interval();
        let observer = Arc::<OnceLock<_>>::default();
        let desk = Desk {
            db,
            me,
            data_version: None,
            foreign_commits,
            commits,
            committed: 0,
            jobs: 0,
            observer: observer.clone(),
        };
        let thread =
            thread::Builder::new().name("store-writer".into()).spawn(|| desk.run(orders))?;
        let beats = queue.downgrade();
        thread::Builder::new().name("store-beats".into()).spawn(move || beat(&beats, interval))?;
        Ok(Self { queue, observer, _thread: Joined(Some(thread)) })
    }

    /// Tells this one of every commit from now on. There is one observer; a second is not heard.
    pub(super) fn observe(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Queues `work`, now and in order; the future resolves when its commit is on disk. Work that fails leaves nothing
    /// behind and does not touch its neighbours.
    pub(super) fn submit<T, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&Connection, &mut Owner) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Pending { work: Some(work), outcome: None, reply });
        let queued = self.queue.try_send(Order::Write(job)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                StoreError::Failed(format!("{QUEUE_JOBS_MAX} writes are waiting already"))
            }
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        });
        async move {
            queued?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        }
    }

    pub(super) async fn announce(&self, contact: Contact) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let order = Order::Announce(contact, reply);
        self.queue.send(order).await.map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Lets the queue run empty, gives the leases back and ends the thread.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(Order::Close(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// Sets the pace until the store is gone. A full queue needs no beat of its own: the writer looks at its claim with
/// every group.
fn beat(writer: &mpsc::WeakSender<Order>, interval: Duration) {
    loop {
        thread::sleep(interval);
        let Some(writer) = writer.upgrade() else { return };
        if let Err(mpsc::error::TrySendError::Closed(_)) = writer.try_send(Order::Beat) {
            return;
        }
    }
}

/// Waits for the thread when dropped: whoever opens the home next should find it free.
struct Joined(Option<JoinHandle<()>>);

impl Drop for Joined {
    fn drop(&mut self) {
        if self.0.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the store's writer thread panicked");
        }
    }
}

/// A queued write. `run` happens inside the transaction, `answer` after it, with what became of the commit.
trait Job: Send {
    /// Fails with `broken`, where that is something, when all is done. The error is a copy of what `answer` will tell.
    fn run(
        &mut self,
        db: &Connection,
        me: &mut Owner,
        broken: Option<StoreError>,
    ) -> Result<(), StoreError>;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Pending<T, W> {
    work: Option<W>,
    outcome: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, W> Job for Pending<T, W>
where
    T: Send,
    W: FnOnce(&Connection, &mut Owner) -> Result<T, Fault> + Send,
{
    fn run(
        &mut self,
        db: &Connection,
        me: &mut Owner,
        broken: Option<StoreError>,
    ) -> Result<(), StoreError> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let outcome = isolated(db, |db| {
            let value = work(db, me)?;
            broken.map_or(Ok(value), |error| Err(error.into()))
        });
        let outcome = outcome.map_err(StoreError::from);
        let copy = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
        self.outcome = Some(outcome);
        copy
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { outcome, reply, .. } = *self;
        let outcome = committed.and_then(|()| outcome.unwrap_or(Err(StoreError::Closed)));
        // Nobody listens when the caller went away; the write stands all the same.
        reply.send(outcome).ok();
    }
}

/// Runs `work` so that it happens whole or not at all, inside the transaction of its group, even if it panics. When it
/// cannot be undone alone the whole transaction is undone, which the caller sees by `is_autocommit`.
fn isolated<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    execute(db, "SAVEPOINT job")?;
    let outcome = surviving(|| work(db)).and_then(|value| {
        execute(db, "RELEASE job")?;
        Ok(value)
    });
    // On a full disk and some other failures SQLite undoes the whole transaction by itself.
    if outcome.is_err() && !db.is_autocommit() {
        let undone = execute(db, "ROLLBACK TO job").and_then(|()| execute(db, "RELEASE job"));
        if undone.is_err() {
            roll_back(db);
        }
    }
    outcome
}

/// Runs `work` so that its panic is its own failure: the thread that everybody writes through lives on. Nothing that it
/// leaves behind is used: what it wrote is undone, and the owner is whole between any two of its steps.
fn surviving<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(text, "a write panicked");
        Err(Fault::unfit(format!("a write panicked: {text}")))
    })
}

/// What the thread works with.
struct Desk {
    db: Connection,
    me: Owner,
    /// Changes when anybody but this connection, and so another process, has committed.
    data_version: Option<i64>,
    foreign_commits: Arc<AtomicU64>,
    commits: Option<Box<dyn Commits>>,
    /// Commits that were tried.
    committed: u64,
    /// Jobs that were run.
    jobs: u64,
    observer: Arc<OnceLock<Arc<dyn Observer>>>,
}

impl Desk {
    fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        self.look_around();
        let mut batch = Vec::with_capacity(GROUP_JOBS_MAX);
        while orders.blocking_recv_many(&mut batch, GROUP_JOBS_MAX) > 0 {
            let mut group = Vec::with_capacity(batch.len());
            let mut closing = None;
            for order in batch.drain(..) {
                match order {
                    Order::Beat => self.beat(),
                    Order::Announce(contact, reply) => {
                        let announced = self.me.announce(contact).map_err(Fault::from);
                        reply.send(announced.map_err(StoreError::from)).ok();
                    }
                    Order::Write(job) if closing.is_none() => group.push(job),
                    // Dropped unanswered, which its caller reads as `Closed`.
                    Order::Write(_) => {}
                    Order::Close(reply) => closing = closing.or(Some(reply)),
                }
            }
            if !group.is_empty() {
                self.write(group);
            }
            if let Some(reply) = closing {
                let outcome = self.finish();
                drop(self);
                reply.send(outcome).ok();
                return;
            }
        }
    }

    fn write(&mut self, mut group: Vec<Box<dyn Job>>) {
        let began = Instant::now();
        let committed = surviving(|| self.commit(&mut group)).map_err(StoreError::from);
        if let Some(observer) = self.observer.get() {
            let (lasted, writes) = (began.elapsed(), group.len());
            observer.commit_ended(&EndedCommit { lasted, writes, committed: committed.is_ok() });
        }
        if let Err(error) = &committed {
            tracing::error!(?error, jobs = group.len(), "a group of writes was not committed");
            roll_back(&self.db);
        }
        for job in group {
            job.answer(committed.clone());
        }
    }

    fn commit(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), Fault> {
        execute(&self.db, "BEGIN IMMEDIATE")?;
        // Inside the transaction, where no other process can take a lease.
        self.me.notice_revocation(&self.db)?;
        self.look_around();
        for job in group {
            self.jobs += 1;
            let broken = self.commits.as_mut().and_then(|commits| commits.fail_job(self.jobs));
            if let Err(error) = job.run(&self.db, &mut self.me, broken)
                && self.db.is_autocommit()
            {
                // The transaction is gone, and with it what the earlier jobs wrote.
                return Err(error.into());
            }
        }
        self.end_transaction()
    }

    fn end_transaction(&mut self) -> Result<(), Fault> {
        self.committed += 1;
        let number = self.committed;
        match self.commits.as_mut().map_or(Verdict::Commit, |commits| commits.before(number)) {
            Verdict::Commit => execute(&self.db, "COMMIT")?,
            Verdict::Fail(error) => return Err(error.into()),
            Verdict::Lie => roll_back(&self.db),
        }
        if let Some(commits) = &mut self.commits {
            commits.after(number);
        }
        Ok(())
    }

    /// Notes whether another process has written since the last time.
    fn look_around(&mut self) {
        let version = self
            .db
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut query| query.query_row([], |row| row.get(0)));
        match version {
            Ok(version) => {
                if self.data_version.replace(version).is_some_and(|last| last != version) {
                    self.foreign_commits.fetch_add(1, Ordering::Release);
                }
            }
            Err(error) => tracing::debug!(%error, "the version of the data was not read"),
        }
    }

    /// What other processes did is noticed here by a process that writes nothing.
    fn beat(&mut self) {
        self.look_around();
        let noticed = self.me.beat().map_err(Fault::from).and_then(|alive| match alive {
            true => Ok(()),
            false => self.me.notice_revocation(&self.db),
        });
        if let Err(fault) = noticed {
            tracing::warn!(?fault, "the sign of life for other processes failed");
        }
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        let Self { db, me, .. } = self;
        execute(db, "BEGIN IMMEDIATE")?;
        let released = agent::release_all(db, me).and_then(|()| execute(db, "COMMIT"));
        if let Err(fault) = released {
            roll_back(db);
            return Err(fault.into());
        }
        me.retire();
        tidy(db);
        Ok(())
    }
}

/// Moves the log into the database. Another process may be reading or writing; then this is left to it.
fn tidy(db: &Connection) {
    let moved = db
        .busy_timeout(Duration::ZERO)
        .and_then(|()| db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    if let Err(error) = moved {
        tracing::debug!(%error, "the write-ahead log was not moved into the database");
    }
}

fn roll_back(db: &Connection) {
    if !db.is_autocommit()
        && let Err(fault) = execute(db, "ROLLBACK")
    {
        tracing::error!(?fault, "a transaction was not rolled back");
    }
}

fn execute(db: &Connection, sql: &str) -> Result<(), Fault> {
    db.prepare_cached(sql)?.execute([])?;
    Ok(())
}
