import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.utils.ZKPaths;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.data.Stat;

/**
 * The locks of {@link CuratorPeer}: handles {@code KIND:PATH[#x]}.
 *
 * <p>Curator's locks belong to threads, so every owner (a path and a suffix) has a thread, and its commands run there
 * in order. {@code read:P} and {@code write:P} with the same suffix are one owner, so they share a thread, and a
 * command for one waits for a running command for the other.
 *
 * <p>Curator's behaviour is kept, including the cases in which docent does better: an acquire by an owner whose
 * hold was lost is re-entrant and returns at once (that hold stays lost: {@code held} says false).
 */
final class CuratorLocks {
    private final CuratorPeer peer;
    private final CuratorFramework client;

    /** The number of lost sessions, which reveals a loss during an acquire. */
    private final AtomicLong losses = new AtomicLong();

    /** By name with suffix. Only the thread that reads commands adds handles. */
    private final Map<String, Handle> handles = new ConcurrentHashMap<>();

    /** By kind and path: handles that differ only by suffix share a lock. */
    private final Map<String, Lock> locks = new ConcurrentHashMap<>();

    /** Curator's read/write locks by path: one for both kinds of handles. */
    private final Map<String, InterProcessReadWriteLock> readWriteLocks = new ConcurrentHashMap<>();

    private InterProcessMultiLock multi;

    CuratorLocks(CuratorPeer peer) {
        this.peer = peer;
        this.client = peer.client;
    }

    /** Runs in the listener's thread. */
    void sessionLost() {
        losses.incrementAndGet();
        handles.values().forEach(Handle::lose);
    }

    void dispatch(String id, String[] words) {
        switch (words[1]) {
            case "multi" -> {
                long ms = Long.parseLong(words[2]);
                List<String> paths = Arrays.asList(words).subList(3, words.length);
                peer.inOrder("multi", id, () -> multi(ms, paths));
            }
            case "multirelease" -> peer.inOrder("multi", id, this::multiRelease);
            default -> {
                Handle handle = handle(words[2]);
                handle.owner.execute(() -> peer.answer(id, () -> run(handle, words)));
            }
        }
    }

    /** Runs in the owner's thread. */
    private String run(Handle handle, String[] words) throws Exception {
        switch (words[1]) {
            case "acquire" -> {
                return handle.acquire(words.length > 3 ? Long.valueOf(words[3]) : null);
            }
            case "release" -> handle.release();
            case "held" -> {
                long now = System.nanoTime();
                return handle.held() + (CuratorPeer.HAS_TIMES ? " " + now : "");
            }
            case "guarded" -> handle.guarded(words[3], words[4]);
            case "token" -> {
                return String.valueOf(handle.token());
            }
            case "participants" -> {
                return CuratorPeer.list(handle.lock.participants());
            }
            case "revocable" -> handle.lock.makeRevocable(() -> peer.say("! revoke " + handle.name));
            default -> throw new IllegalArgumentException("unknown verb " + words[1]);
        }
        return "";
    }

    private String multi(long ms, List<String> paths) throws Exception {
        if (multi != null) {
            throw new IllegalStateException("a multi lock is held already");
        }
        InterProcessMultiLock lock = new InterProcessMultiLock(client, paths);
        if (!lock.acquire(ms, TimeUnit.MILLISECONDS)) {
            return null;
        }
        multi = lock;
        return "";
    }

    private String multiRelease() throws Exception {
        if (multi == null) {
            throw new IllegalMonitorStateException("no multi lock is held");
        }
        InterProcessMultiLock lock = multi;
        multi = null;
        lock.release();
        return "";
    }

    private Handle handle(String name) {
        return handles.computeIfAbsent(name, this::newHandle);
    }

    private Handle newHandle(String name) {
        int colon = name.indexOf(':');
        int hash = name.indexOf('#');
        String lockName = hash < 0 ? name : name.substring(0, hash);
        String suffix = hash < 0 ? "" : name.substring(hash);
        String kind = lockName.substring(0, colon);
        String path = lockName.substring(colon + 1);
        Lock lock = locks.computeIfAbsent(lockName, ignored -> newLock(kind, path));
        boolean readOrWrite = kind.equals("read") || kind.equals("write");
        String owner = (readOrWrite ? "readwrite:" + path : lockName) + suffix;
        return new Handle(name, lock, peer.queue(owner));
    }

    private Lock newLock(String kind, String path) {
        if (kind.startsWith("sem=")) {
            int leases = Integer.parseInt(kind.substring("sem=".length()));
            return new SemaphoreLock(path, new InterProcessSemaphoreV2(client, path, leases));
        }
        return switch (kind) {
            case "mutex" -> new ThreadLock(new InterProcessMutex(client, path));
            case "read" -> new ThreadLock(readWriteLock(path).readLock());
            case "write" -> new ThreadLock(readWriteLock(path).writeLock());
            case "semmutex" -> new SemaphoreMutexLock(path);
            case "latch" -> new LatchLock(path);
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        };
    }

    private InterProcessReadWriteLock readWriteLock(String path) {
        return readWriteLocks.computeIfAbsent(
                path, ignored -> new InterProcessReadWriteLock(client, path));
    }

    /** One hold: of a mutex with its re-entries, or of one lease. */
    private static final class Hold {
        final Lease lease;
        int entries = 1;
        boolean lost;

        Hold(Lease lease) {
            this.lease = lease;
        }
    }

    /** One owner's view of one lock. All but {@link #lose} runs in the owner's thread. */
    private final class Handle {
        final String name;
        final Lock lock;
        final ExecutorService owner;

        private final Deque<Hold> holds = new ArrayDeque<>();

        Handle(String name, Lock lock, ExecutorService owner) {
            this.name = name;
            this.lock = lock;
            this.owner = owner;
        }

        String acquire(Long ms) throws Exception {
            long lossesBefore = losses.get();
            Lease lease = lock.acquire(ms);
            if (lease == null) {
                return null;
            }
            acquired(lease);
            boolean lostMeanwhile = losses.get() != lossesBefore;
            if (lostMeanwhile && client.checkExists().forPath(lock.node(lease)) == null) {
                lose();
            }
            return lock instanceof SemaphoreLock ? lease.getNodeName() : "";
        }

        private synchronized void acquired(Lease lease) {
            if (lock.isReentrant() && !holds.isEmpty()) {
                holds.peek().entries++;
            } else {
                holds.push(new Hold(lease));
            }
        }

        void release() throws Exception {
            try {
                lock.release(newest());
            } catch (IllegalStateException | IllegalMonitorStateException e) {
                // The lock was not held, so nothing changes.
                throw e;
            } catch (Exception e) {
                forget();
                throw e;
            }
            forget();
        }

        synchronized boolean held() {
            Hold hold = holds.peek();
            return peer.isConnected() && hold != null && !hold.lost && lock.isHeld();
        }

        /** Writes a node, if the lock's node exists. */
        void guarded(String path, String data) throws Exception {
            Hold hold = newest();
            if (hold == null) {
                throw new CuratorPeer.Refusal("NotOwner", "NotApplied nothing is held");
            }
            String node = lock.node(hold.lease);
            CuratorPeer.write(() -> {
                peer.zooKeeper().multi(Arrays.asList(
                        Op.check(node, -1), Op.setData(path, CuratorPeer.bytes(data), -1)));
                return "";
            });
        }

        /** The czxid of the lock's node. */
        long token() throws Exception {
            String node = lock.node(require().lease);
            Stat stat = client.checkExists().forPath(node);
            if (stat == null) {
                throw new KeeperException.NoNodeException(node);
            }
            return stat.getCzxid();
        }

        private Hold require() {
            Hold hold = newest();
            if (hold == null) {
                throw new IllegalMonitorStateException("nothing is held");
            }
            return hold;
        }

        /** Runs in the listener's thread. Reports each hold that ended with the session, once. */
        synchronized void lose() {
            for (Hold hold : holds) {
                if (!hold.lost) {
                    hold.lost = true;
                    peer.say("! lost " + name);
                }
            }
        }

        private synchronized Hold newest() {
            return holds.peek();
        }

        private synchronized void forget() {
            Hold hold = holds.peek();
            if (hold != null && --hold.entries == 0) {
                holds.pop();
            }
        }
    }

    // ---- locks

    /** A lock that handles share; its methods run in an owner's thread. */
    private abstract class Lock {
        /** Null after a timeout. */
        abstract Lease acquire(Long ms) throws Exception;

        abstract void release(Hold hold) throws Exception;

        abstract boolean isHeld();

        /** The path of the hold's node. */
        abstract String node(Lease lease) throws Exception;

        abstract Collection<String> participants() throws Exception;

        boolean isReentrant() {
            return false;
        }

        void makeRevocable(Runnable notify) {
            throw new UnsupportedOperationException("this kind of lock cannot be revoked");
        }
    }

    /** A lock that is held or not, without leases. */
    private abstract class WholeLock<L extends InterProcessLock> extends Lock {
        final L lock;

        WholeLock(L lock) {
            this.lock = lock;
        }

        @Override
        final Lease acquire(Long ms) throws Exception {
            if (ms == null) {
                lock.acquire();
                return NO_LEASE;
            }
            return lock.acquire(ms, TimeUnit.MILLISECONDS) ? NO_LEASE : null;
        }

        @Override
        final void release(Hold hold) throws Exception {
            lock.release();
        }
    }

    /** A lock that belongs to a thread: mutex, read, write. */
    private final class ThreadLock extends WholeLock<InterProcessMutex> {
        ThreadLock(InterProcessMutex mutex) {
            super(mutex);
        }

        @Override
        boolean isHeld() {
            return lock.isOwnedByCurrentThread();
        }

        @Override
        String node(Lease lease) throws Exception {
            // The method is protected, and the classes of the read and write locks cannot be extended.
            Method method = InterProcessMutex.class.getDeclaredMethod("getLockPath");
            method.setAccessible(true);
            return (String) method.invoke(lock);
        }

        @Override
        Collection<String> participants() throws Exception {
            return lock.getParticipantNodes();
        }

        @Override
        boolean isReentrant() {
            return true;
        }

        @Override
        void makeRevocable(Runnable notify) {
            lock.makeRevocable(ignored -> notify.run());
        }
    }

    private final class SemaphoreLock extends Lock {
        private final String path;
        private final InterProcessSemaphoreV2 semaphore;

        SemaphoreLock(String path, InterProcessSemaphoreV2 semaphore) {
            this.path = path;
            this.semaphore = semaphore;
        }

        @Override
        Lease acquire(Long ms) throws Exception {
            return ms == null ? semaphore.acquire() : semaphore.acquire(ms, TimeUnit.MILLISECONDS);
        }

        @Override
        void release(Hold hold) throws Exception {
            if (hold == null) {
                throw new IllegalMonitorStateException("no lease is held");
            }
            // Does the same as returnLease, which would hide an error.
            hold.lease.close();
        }

        @Override
        boolean isHeld() {
            return true;
        }

        @Override
        String node(Lease lease) {
            return ZKPaths.makePath(path, "leases", lease.getNodeName());
        }

        @Override
        Collection<String> participants() throws Exception {
            return inLockOrder(semaphore.getParticipantNodes());
        }
    }

    /** InterProcessSemaphoreMutex: a semaphore of one lease that anybody may release. */
    private final class SemaphoreMutexLock extends WholeLock<InterProcessSemaphoreMutex> {
        private final String path;

        SemaphoreMutexLock(String path) {
            super(new InterProcessSemaphoreMutex(client, path));
            this.path = path;
        }

        @Override
        boolean isHeld() {
            return lock.isAcquiredInThisProcess();
        }

        @Override
        String node(Lease ignored) throws Exception {
            java.lang.reflect.Field field =
                    InterProcessSemaphoreMutex.class.getDeclaredField("lease");
            field.setAccessible(true);
            Lease lease = (Lease) field.get(lock);
            if (lease == null) {
                throw new IllegalMonitorStateException("nothing is held");
            }
            return ZKPaths.makePath(path, "leases", lease.getNodeName());
        }

        @Override
        Collection<String> participants() throws Exception {
            return inLockOrder(new InterProcessSemaphoreV2(client, path, 1).getParticipantNodes());
        }
    }

    /** A participation in an election, from an acquire to a release. */
    private final class LatchLock extends Lock {
        private final String path;
        private LeaderLatch latch;

        LatchLock(String path) {
            this.path = path;
        }

        @Override
        Lease acquire(Long ms) throws Exception {
            latch = new LeaderLatch(client, path, "peer");
            latch.start();
            if (ms == null) {
                latch.await();
                return NO_LEASE;
            }
            if (latch.await(ms, TimeUnit.MILLISECONDS)) {
                return NO_LEASE;
            }
            latch.close();
            return null;
        }

        @Override
        void release(Hold hold) throws Exception {
            latch.close();
        }

        @Override
        boolean isHeld() {
            return latch.hasLeadership();
        }

        @Override
        String node(Lease lease) {
            return latch.getOurPath();
        }

        @Override
        Collection<String> participants() throws Exception {
            return inLockOrder(client.getChildren().forPath(path));
        }
    }

    /** By sequence number: the last ten characters. */
    private static List<String> inLockOrder(Collection<String> nodes) {
        return nodes.stream()
                .sorted(Comparator.comparing(node -> node.substring(Math.max(0, node.length() - 10))))
                .toList();
    }

    /** Stands for success where Curator returns no lease. */
    private static final Lease NO_LEASE = new Lease() {
        @Override
        public void close() {}

        @Override
        public byte[] getData() {
            return new byte[0];
        }

        @Override
        public String getNodeName() {
            return "";
        }
    };
}
