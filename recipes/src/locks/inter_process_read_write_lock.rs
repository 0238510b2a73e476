//! A lock across processes for many readers or one writer.
//!
//! Readers and writers share one queue: the children of one node, `_c_` GUID `-__READ__` and `-__WRIT__`, each
//! followed by ten digits.
//!
//! | contender | acquires the lock | otherwise watches |
//! |---|---|---|
//! | a writer | when it is the first of all contenders | the contender directly ahead, reader or writer |
//! | a reader | when no writer is ahead of it | the first writer ahead, as all waiting readers do |
//! | a reader whose owner holds the write lock | at once | – |
//!
//! A writer that reads creates a node with the *same number* as its write node, ephemeral and not sequential: so it is
//! ahead of every writer in the queue, and remains a reader after the write lock is released (since Curator 5.5.0,
//! CURATOR-621). The reverse is impossible: a reader that acquires the write lock waits for itself.
//!
//! Not mirrored: such a node counts only if it existed before the write node was deleted. Created later, after a lost
//! create, it would be ahead of a writer that already has the lock; it is then deleted, and the reader joins the end of
//! the queue.
//!
//! A reader that downgrades continues the write hold that its driver saw when it named the node: another task of the
//! owner may acquire or release the write lock before and after.
//!
//! Source: `InterProcessReadWriteLock`.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use docent_protocol::CreateMode;
use docent_session::Client;

use super::{
    InterProcessMutex, LockInternalsDriver, LockNode, LockOptions, Owner,
    hold::Hold,
    inter_process_mutex::{DriverFactory, WriteHold, fixed_driver},
    lock_internals::LockInternals,
    owners::Owners,
    standard_lock_internals_driver::{
        Contender, PredicateError, PredicateResults, fix_for_sorting, index_of_ours, sequence_of,
    },
};
use crate::{Error, planted, sync::lock};

/// Source: `InterProcessReadWriteLock.READ_LOCK_NAME`, of the same length as the other.
const READ_LOCK_NAME: &str = "__READ__";
/// Source: `InterProcessReadWriteLock.WRITE_LOCK_NAME`.
const WRITE_LOCK_NAME: &str = "__WRIT__";

/// A pair of locks that any number of processes, docent or Curator, share by their path: a read lock for many holders
/// at a time, a write lock for one. First come, first served; a reader behind a writer waits for it.
///
/// Both are [`InterProcessMutex`]es, with all of their methods. They share their [`Owner`]s: an owner that holds the
/// write lock acquires the read lock at once by [`acquire_as`](InterProcessMutex::acquire_as), and may release the write
/// lock first (it *downgrades*). With [`acquire`](InterProcessMutex::acquire), the reader is a separate contender, and
/// waits for the writer. An owner that holds the read lock and acquires the write lock waits for itself, for ever.
///
/// The fencing token of a reader that downgraded is that of its write lock.
///
/// Clones are the same pair.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use docent::{InterProcessReadWriteLock, Owner};
///
/// let lock = InterProcessReadWriteLock::new(&client, "/locks/register")?;
/// let me = Owner::new();
/// let writing = lock.write_lock().acquire_as(&me).await?;
/// let reading = lock.read_lock().acquire_as(&me).await?;
/// writing.release().await?;
/// // Others may read now; no writer came in between.
/// reading.release().await
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// # Ok(example(client).await?)
/// # }
/// ```
///
/// Source: Curator's `InterProcessReadWriteLock`.
#[derive(Clone)]
pub struct InterProcessReadWriteLock {
    read: InterProcessMutex,
    write: InterProcessMutex,
}

impl InterProcessReadWriteLock {
    /// Locks at this path, with the default [`LockOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn new(client: &Client, path: &str) -> Result<Self, Error> {
        Self::with_options(client, path, LockOptions::default())
    }

    /// Locks at this path. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    ///
    /// Source: `InterProcessReadWriteLock(CuratorFramework, String, byte[])` (CURATOR-140).
    pub fn with_options(client: &Client, path: &str, options: LockOptions) -> Result<Self, Error> {
        let unlimited = usize::MAX;
        let write = LockInternals::new(client, path, WRITE_LOCK_NAME, 1, options.clone())?;
        let write = InterProcessMutex::with_driver_factory(write, fixed_driver(WriteLockDriver));
        let writers = Arc::clone(write.owners());
        let read_driver: DriverFactory = Arc::new(move |owner, write| {
            Arc::new(ReadLockDriver {
                writers: Arc::clone(&writers),
                owner: owner.cloned(),
                write: Arc::clone(write),
                downgrade: Mutex::new(None),
            })
        });
        let read = LockInternals::new(client, path, READ_LOCK_NAME, unlimited, options)?;
        let read = InterProcessMutex::with_driver_factory(read, read_driver);
        Ok(Self { read, write })
    }

    /// The read lock. Its participants are readers only.
    ///
    /// Source: `InterProcessReadWriteLock.readLock`.
    #[must_use]
    pub const fn read_lock(&self) -> &InterProcessMutex {
        &self.read
    }

    /// The write lock. Its participants are writers only.
    ///
    /// Source: `InterProcessReadWriteLock.writeLock`.
    #[must_use]
    pub const fn write_lock(&self) -> &InterProcessMutex {
        &self.write
    }
}

impl fmt::Debug for InterProcessReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessReadWriteLock")
            .field("path", &self.write.path())
            .finish_non_exhaustive()
    }
}

/// The readers and writers among the children, in the order of the queue. A writer precedes a reader with the same
/// number, which is its own after a downgrade.
///
/// Source: `InterProcessReadWriteLock.SortingLockInternalsDriver`, which does not filter other children.
// Public for docent-cli, which shows the queue of a lock.
#[doc(hidden)]
#[must_use]
pub fn sorted_readers_and_writers<'a>(children: &[&'a str]) -> Vec<Contender<'a>> {
    let contender = |name: &'a str| {
        let lock_name = if is_writer(name) { WRITE_LOCK_NAME } else { READ_LOCK_NAME };
        Some(Contender { sequence: sequence_of(name, lock_name)?, name })
    };
    let mut contenders: Vec<_> = children.iter().filter_map(|name| contender(name)).collect();
    contenders.sort_unstable_by_key(|one| (one.sequence, !is_writer(one.name), one.name));
    contenders
}

/// The kind is the lock name directly before the digits: a GUID cannot contain either name.
fn is_writer(name: &str) -> bool {
    name.rfind(WRITE_LOCK_NAME) > name.rfind(READ_LOCK_NAME)
}

/// Whether the reader `our_name` gets the lock; if not, the node to watch is the first writer ahead.
///
/// # Errors
///
/// As [`gets_the_lock`](super::standard_lock_internals_driver::gets_the_lock), but a reader may have the number of
/// a writer.
///
/// Source: `InterProcessReadWriteLock.readLockPredicate`.
fn gets_the_read_lock<'a>(
    contenders: &[Contender<'a>],
    our_name: &str,
) -> Result<PredicateResults<'a>, PredicateError> {
    let ahead = ahead_of(contenders, our_name)?;
    let skipped = usize::from(planted::is("reader-skips-writer"));
    match ahead.iter().filter(|contender| is_writer(contender.name)).nth(skipped) {
        Some(writer) => Ok(PredicateResults::PathToWatch(writer.name)),
        None => Ok(PredicateResults::GetsTheLock),
    }
}

/// Whether the writer `our_name` is the first contender; if not, the node to watch is the one directly ahead.
fn gets_the_write_lock<'a>(
    contenders: &[Contender<'a>],
    our_name: &str,
) -> Result<PredicateResults<'a>, PredicateError> {
    match ahead_of(contenders, our_name)?.last() {
        Some(ahead) => Ok(PredicateResults::PathToWatch(ahead.name)),
        None => Ok(PredicateResults::GetsTheLock),
    }
}

/// The contenders before `our_name`, or an error when the numbers have no order.
fn ahead_of<'a, 'b>(
    contenders: &'b [Contender<'a>],
    our_name: &str,
) -> Result<&'b [Contender<'a>], PredicateError> {
    let ours = index_of_ours(contenders, our_name, |one, other| {
        !(is_writer(one.name) && is_writer(other.name))
    })?;
    Ok(contenders.get(..ours).unwrap_or_default())
}

/// The rule for writers.
#[derive(Debug, Clone, Copy)]
struct WriteLockDriver;

impl LockInternalsDriver for WriteLockDriver {
    fn sorted<'a>(&self, children: &[&'a str], _lock_name: &str) -> Vec<Contender<'a>> {
        sorted_readers_and_writers(children)
    }

    fn gets_the_lock<'a>(
        &self,
        contenders: &[Contender<'a>],
        our_name: &str,
        _max_leases: usize,
    ) -> Result<PredicateResults<'a>, PredicateError> {
        gets_the_write_lock(contenders, our_name)
    }
}

/// The rule for readers, for one acquire.
#[derive(Debug)]
struct ReadLockDriver {
    writers: Arc<Owners>,
    owner: Option<Owner>,
    /// Set for a downgrade.
    write: WriteHold,
    downgrade: Mutex<Option<Downgrade>>,
}

/// A read node with the number of our owner's write node. It is ahead of all waiting writers, which is safe only if it
/// existed before the write node was deleted: they wait first for the write node, then for this one.
#[derive(Debug)]
struct Downgrade {
    write_node: String,
    /// Whether one listing has shown both nodes.
    seen_together: bool,
}

impl ReadLockDriver {
    /// The hold of the write lock, if our owner has it.
    fn our_write_hold(&self) -> Option<Arc<Hold>> {
        self.writers.hold(self.owner.as_ref()?).filter(|hold| hold.is_held())
    }
}

impl LockInternalsDriver for ReadLockDriver {
    fn sorted<'a>(&self, children: &[&'a str], _lock_name: &str) -> Vec<Contender<'a>> {
        sorted_readers_and_writers(children)
    }

    fn gets_the_lock<'a>(
        &self,
        contenders: &[Contender<'a>],
        our_name: &str,
        _max_leases: usize,
    ) -> Result<PredicateResults<'a>, PredicateError> {
        let result = gets_the_read_lock(contenders, our_name)?;
        let mut downgrade = lock(&self.downgrade);
        // Without a downgrade, our node may be behind another writer, even if our owner is a writer by now.
        let Some(downgrade) = downgrade.as_mut() else { return Ok(result) };
        let mut names = contenders.iter().map(|contender| contender.name);
        downgrade.seen_together |= names.any(|name| name == downgrade.write_node);
        if !downgrade.seen_together {
            // Our node was created too late, and the next writer may have the lock: join the end of the queue.
            return Err(PredicateError::OurNodeMissing);
        }
        // Unlike Curator, which grants the lock here without looking for the own node.
        let is_writing = self.our_write_hold().is_some();
        Ok(if is_writing { PredicateResults::GetsTheLock } else { result })
    }

    /// Source: `InterProcessReadWriteLock.ReadLock`, `WriteLock.getSortingSequence`.
    fn creates_the_lock(&self, lock_name: &str) -> LockNode {
        let write = self.our_write_hold();
        let name = |hold: &Arc<Hold>| hold.path().rsplit('/').next().unwrap_or_default().to_owned();
        let write_node = write.as_ref().map(name);
        // Now: the node is decided here, and its token with it.
        *lock(&self.write) = write;
        let node = match &write_node {
            Some(write_node) => {
                let number = fix_for_sorting(write_node, WRITE_LOCK_NAME);
                LockNode { name: format!("{lock_name}{number}"), mode: CreateMode::Ephemeral }
            }
            None => LockNode { name: lock_name.to_owned(), mode: CreateMode::EphemeralSequential },
        };
        *lock(&self.downgrade) =
            write_node.map(|write_node| Downgrade { write_node, seen_together: false });
        node
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use PredicateError::{OurNodeMissing, SequenceExhausted};
    use PredicateResults::{GetsTheLock, PathToWatch};

    const W0: &str = "_c_a-__WRIT__0000000000";
    const R0: &str = "_c_b-__READ__0000000000";
    const R1: &str = "_c_c-__READ__0000000001";
    const W2: &str = "_c_d-__WRIT__0000000002";
    const R3: &str = "_c_e-__READ__0000000003";
    const W4: &str = "_c_f-__WRIT__0000000004";

    fn read<'a>(children: &[&'a str], ours: &str) -> Result<PredicateResults<'a>, PredicateError> {
        gets_the_read_lock(&sorted_readers_and_writers(children), ours)
    }

    fn write<'a>(children: &[&'a str], ours: &str) -> Result<PredicateResults<'a>, PredicateError> {
        gets_the_write_lock(&sorted_readers_and_writers(children), ours)
    }

    #[test]
    fn a_reader_waits_for_the_first_writer_ahead() {
        assert_eq!(read(&[W2, R1, R3], R1), Ok(GetsTheLock));
        assert_eq!(read(&[W0, W2, R1, R3], R3), Ok(PathToWatch(W0)));
        assert_eq!(read(&[W2, R1, R3], R3), Ok(PathToWatch(W2)));
    }

    #[test]
    fn a_writer_waits_for_the_contender_directly_ahead() {
        assert_eq!(write(&[W0, R1], W0), Ok(GetsTheLock));
        assert_eq!(write(&[R1, W2, R3, W4], W4), Ok(PathToWatch(R3)));
        assert_eq!(write(&[R1, W2], W2), Ok(PathToWatch(R1)));
    }

    /// CURATOR-621: a queued writer waits while the owner, after a downgrade, still reads.
    #[test]
    fn a_downgraded_reader_is_ahead_of_every_queued_writer() {
        assert_eq!(write(&[R0, W2, W0], W2), Ok(PathToWatch(R0)));
        assert_eq!(write(&[W2, R0], W2), Ok(PathToWatch(R0)));
        assert_eq!(read(&[R0, W2], R0), Ok(GetsTheLock));
    }

    #[test]
    fn a_missing_own_node_is_an_error() {
        assert_eq!(read(&[W0], R1), Err(OurNodeMissing));
        assert_eq!(write(&[R1], W0), Err(OurNodeMissing));
    }

    #[test]
    fn numbers_without_an_order_are_an_error() {
        let twice = "_c_z-__WRIT__0000000002";
        let last = "_c_z-__READ__2147483647";
        assert_eq!(write(&[W2, twice], W2), Err(SequenceExhausted));
        assert_eq!(read(&[R1, last], R1), Err(SequenceExhausted));
    }

    /// N7 and N10 in `docs/CURATOR.md`: only the text before the digits decides whether a child is
    /// a reader or a writer.
    #[test]
    fn other_children_are_neither_readers_nor_writers() {
        let children = [
            "0",
            "__WRIT__",
            "x-lock-0000000000",
            "my__WRIT__0000000000",
            "__WRIT__-__READ__0000000001",
        ];
        let names: Vec<_> =
            sorted_readers_and_writers(&children).iter().map(|one| one.name).collect();
        assert_eq!(names, ["__WRIT__-__READ__0000000001"]);
        assert!(!is_writer(names[0]));
    }

    fn child() -> impl Strategy<Value = String> {
        prop_oneof![
            8 => ("[a-f]{2}", any::<bool>(), 0i32..6).prop_map(|(id, write, n)| {
                format!("_c_{id}-{}{n:010}", if write { WRITE_LOCK_NAME } else { READ_LOCK_NAME })
            }),
            1 => ("[a-f]{2}", any::<i32>()).prop_map(|(id, n)| format!("_c_{id}-__WRIT__{n:010}")),
            1 => "\\PC{0,12}",
            1 => "(__WRIT__|__READ__|é){0,3}[0-9-]{9,11}",
        ]
    }

    proptest! {
        #[test]
        fn a_writer_that_holds_is_alone(
            children in prop::collection::btree_set(child(), 0..10),
        ) {
            let names: Vec<_> = children.iter().map(String::as_str).collect();
            let all = sorted_readers_and_writers(&names);
            let is_holder = |one: &&Contender<'_>| {
                let rule = if is_writer(one.name) { write } else { read };
                rule(&names, one.name) == Ok(GetsTheLock)
            };
            let holders: Vec<_> = all.iter().filter(is_holder).collect();
            if let Some(writer) = holders.iter().find(|one| is_writer(one.name)) {
                for other in &holders {
                    prop_assert!(other.name == writer.name, "{holders:?} of {names:?}");
                }
            }
        }
    }
}
