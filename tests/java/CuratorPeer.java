import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.utils.ZKPaths;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * A lock peer around real Curator: the twin of the example {@code lock_peer}, speaking the same
 * lines, so that clients in two languages contend for one lock and are compared.
 *
 * <pre>
 * java CuratorPeer CONNECT [SESSION_MS [RETRIES]]
 *
 * in:   ID VERB ARGS...
 * out:  ID ok [RESULT]   ID false   ID err KIND TEXT   ! EVENT
 * </pre>
 *
 * <p>Curator's locks belong to threads, so every owner (a path and a suffix) has a thread, and its
 * commands run there in order. {@code read:P} and {@code write:P} of one suffix are one owner, so
 * they share a thread, and a command of the one waits for a running command of the other.
 *
 * <p>Curator's behaviour is kept, including the cases in which docent does better: an acquire by an owner whose
 * hold was lost is re-entrant and returns at once (that hold stays lost: {@code held} says false).
 *
 * <p>Commands of single nodes, and {@code guarded}, use ZooKeeper's own client: Curator would repeat a write whose
 * outcome is unknown. With {@code LOCK_PEER_TIMES} lines have times, as those of {@code lock_peer}.
 */
public final class CuratorPeer {
    private static final boolean HAS_TIMES = System.getenv("LOCK_PEER_TIMES") != null;

    private final CuratorFramework client;
    private final Output output = new Output();

    /** What {@code held} depends on beside the lock. */
    private volatile ConnectionState state = ConnectionState.LOST;

    /** How often the session was lost, to notice a loss during an acquire. */
    private final AtomicLong losses = new AtomicLong();

    /** By name with suffix. Only the reading thread adds. */
    private final Map<String, Handle> handles = new ConcurrentHashMap<>();

    /** By kind and path: what handles that differ only by suffix share. */
    private final Map<String, Lock> locks = new ConcurrentHashMap<>();

    /** Curator's read/write locks by path: one for both kinds of handles. */
    private final Map<String, InterProcessReadWriteLock> readWriteLocks = new ConcurrentHashMap<>();

    /** By lock and suffix: Curator's threads. */
    private final Map<String, ExecutorService> owners = new ConcurrentHashMap<>();

    /** For commands of no handle. */
    private final ExecutorService others = Executors.newCachedThreadPool(CuratorPeer::daemon);

    private InterProcessMultiLock multi;

    public static void main(String[] arguments) throws Exception {
        String connect = arguments[0];
        int sessionMs = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 6000;
        int retries = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 5;
        new CuratorPeer(connect, sessionMs, retries).run();
    }

    private CuratorPeer(String connect, int sessionMs, int retries) {
        client = CuratorFrameworkFactory.builder()
                .connectString(connect)
                .sessionTimeoutMs(sessionMs)
                .connectionTimeoutMs(3000)
                .retryPolicy(new RetryNTimes(retries, 100))
                // Its reads of the configuration are no part of any recipe.
                .ensembleTracker(false)
                .build();
        client.getConnectionStateListenable().addListener((ignored, now) -> stateChanged(now));
    }

    private void run() throws IOException {
        client.start();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.trim().split("\\s+");
            if (words[0].isEmpty()) {
                continue;
            }
            if (words.length > 1 && words[1].equals("close")) {
                output.line(words[0] + " ok");
                break;
            }
            try {
                dispatch(words);
            } catch (RuntimeException e) {
                output.line(words[0] + " err BadCommand " + oneLine(line + ": " + e));
            }
        }
        close();
    }

    private void close() {
        // Without a server, closing a session can take long; our parent may be gone by now.
        Thread impatience = daemon(() -> {
            try {
                TimeUnit.SECONDS.sleep(10);
            } catch (InterruptedException e) {
                // As good as the end of the wait.
            }
            Runtime.getRuntime().halt(1);
        });
        impatience.start();
        client.close();
        output.lastLine("! closed");
        Runtime.getRuntime().halt(0);
    }

    private void stateChanged(ConnectionState now) {
        state = now;
        output.line("! state " + now.name());
        if (now == ConnectionState.CONNECTED) {
            try {
                output.line("! ready " + session());
            } catch (Exception e) {
                // The session went as it came; the next state says so.
            }
        } else if (now == ConnectionState.LOST) {
            losses.incrementAndGet();
            handles.values().forEach(Handle::lose);
        }
    }

    private String session() throws Exception {
        return Long.toHexString(client.getZookeeperClient().getZooKeeper().getSessionId());
    }

    // ---- commands

    /** What a command does; the result is what follows ID in its answer. */
    private interface Command {
        String run() throws Exception;
    }

    private void dispatch(String[] words) {
        String id = words[0];
        String verb = words[1];
        switch (verb) {
            case "session" -> inBackground(id, () -> "ok " + session());
            case "children" -> inBackground(id, () -> {
                List<String> names = new ArrayList<>(client.getChildren().forPath(words[2]));
                Collections.sort(names);
                return list(names);
            });
            case "revoke" -> inBackground(id, () -> {
                Revoker.attemptRevoke(client, words[2]);
                return "ok";
            });
            case "multi" -> {
                long ms = Long.parseLong(words[2]);
                List<String> paths = Arrays.asList(words).subList(3, words.length);
                owner("multi").execute(() -> answer(id, () -> multi(ms, paths)));
            }
            case "multirelease" -> owner("multi").execute(() -> answer(id, this::multiRelease));
            case "acquire" -> {
                Handle handle = handle(words[2]);
                Long ms = words.length > 3 ? Long.valueOf(words[3]) : null;
                Acquire acquire = new Acquire(handle, ms);
                handle.unanswered.add(acquire);
                handle.owner.execute(() -> {
                    String result = resultOf(acquire);
                    handle.unanswered.remove(acquire);
                    output.line(id + " " + result);
                });
            }
            case "cancel" -> {
                // Here, not in the owner's thread: that is busy with the work to cancel.
                Acquire acquire = handle(words[2]).unanswered.peek();
                if (acquire != null) {
                    acquire.cancel();
                }
                output.line(id + " ok");
            }
            case "release" -> inOrder(id, words[2], Handle::release);
            case "drop" -> {
                Handle handle = handle(words[2]);
                handle.owner.execute(() -> handle.drop(id));
            }
            case "held" -> inOrder(id, words[2], handle -> {
                long now = System.nanoTime();
                return "ok " + handle.held() + (HAS_TIMES ? " " + now : "");
            });
            case "guarded" -> inOrder(id, words[2], handle -> handle.guarded(words[3], words[4]));
            case "create" -> inBackground(id, () -> write(() -> {
                zooKeeper().create(words[2], bytes(words[3]), ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                return "ok";
            }));
            case "set" -> inBackground(id, () -> write(() -> "ok "
                    + zooKeeper().setData(words[2], bytes(words[3]), Integer.parseInt(words[4])).getVersion()));
            case "get" -> inBackground(id, () -> read(words[2], keeper -> {}));
            case "syncget" -> inBackground(id, () -> read(words[2], keeper -> {
                java.util.concurrent.CompletableFuture<Integer> synced =
                        new java.util.concurrent.CompletableFuture<>();
                keeper.sync(words[2], (code, path, context) -> synced.complete(code), null);
                if (synced.get() != 0) {
                    throw new IllegalStateException("the sync failed");
                }
            }));
            case "fencedget" -> inBackground(id, () -> read(words[2],
                    keeper -> keeper.setData(words[3], bytes("fence"), -1)));
            case "token" -> inOrder(id, words[2], handle -> "ok " + handle.token());
            case "participants" -> inOrder(id, words[2], handle -> list(handle.lock.participants()));
            case "revocable" -> inOrder(id, words[2], handle -> {
                handle.lock.makeRevocable(() -> output.line("! revoke " + handle.name));
                return "ok";
            });
            default -> throw new IllegalArgumentException("unknown verb " + verb);
        }
    }

    private ZooKeeper zooKeeper() throws Exception {
        return client.getZookeeperClient().getZooKeeper();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private interface Fence {
        void pass(ZooKeeper keeper) throws Exception;
    }

    /** Reads behind a fence, in one session. */
    private String read(String path, Fence fence) throws Exception {
        ZooKeeper keeper = zooKeeper();
        long session = keeper.getSessionId();
        fence.pass(keeper);
        Stat stat = new Stat();
        String data = new String(keeper.getData(path, false, stat), StandardCharsets.UTF_8);
        if (keeper.getSessionId() != session) {
            throw new IllegalStateException("the session has changed");
        }
        return "ok " + stat.getVersion() + " " + stat.getMzxid() + " " + Long.toHexString(session) + " " + data;
    }

    /** An error says whether the write may have been applied: only a server's refusal says that it was not. */
    private static String write(Command command) throws Exception {
        try {
            return command.run();
        } catch (Exception e) {
            boolean isUnknown = !(e instanceof KeeperException)
                    || e instanceof KeeperException.ConnectionLossException
                    || e instanceof KeeperException.SessionExpiredException
                    || e instanceof KeeperException.OperationTimeoutException;
            String kind = e.getClass().getSimpleName().replaceFirst("Exception$", "");
            String outcome = isUnknown ? "Unknown" : "NotApplied";
            return "err " + kind + " " + outcome + " " + oneLine(String.valueOf(e.getMessage()));
        }
    }

    private interface HandleCommand {
        String run(Handle handle) throws Exception;
    }

    private void inOrder(String id, String name, HandleCommand command) {
        Handle handle = handle(name);
        handle.owner.execute(() -> answer(id, () -> command.run(handle)));
    }

    private void inBackground(String id, Command command) {
        others.execute(() -> answer(id, command));
    }

    private void answer(String id, Command command) {
        output.line(id + " " + resultOf(command));
    }

    private static String resultOf(Command command) {
        try {
            return command.run();
        } catch (Exception e) {
            String kind = e.getClass().getSimpleName().replaceFirst("Exception$", "");
            return "err " + kind + " " + oneLine(String.valueOf(e.getMessage()));
        }
    }

    private static String list(Collection<String> items) {
        StringBuilder text = new StringBuilder("ok ").append(items.size());
        items.forEach(item -> text.append(' ').append(item));
        return text.toString();
    }

    private static String oneLine(String text) {
        return text.replaceAll("\\s+", " ");
    }

    private String multi(long ms, List<String> paths) throws Exception {
        if (multi != null) {
            throw new IllegalStateException("a multi lock is held already");
        }
        InterProcessMultiLock lock = new InterProcessMultiLock(client, paths);
        if (!lock.acquire(ms, TimeUnit.MILLISECONDS)) {
            return "false";
        }
        multi = lock;
        return "ok";
    }

    private String multiRelease() throws Exception {
        if (multi == null) {
            throw new IllegalMonitorStateException("no multi lock is held");
        }
        InterProcessMultiLock lock = multi;
        multi = null;
        lock.release();
        return "ok";
    }

    // ---- handles

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
        return new Handle(name, lock, owner(owner));
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

    private ExecutorService owner(String name) {
        return owners.computeIfAbsent(
                name, ignored -> Executors.newSingleThreadExecutor(CuratorPeer::daemon));
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
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

        /** Read and not answered, oldest first: what {@code cancel} looks for. */
        final Deque<Acquire> unanswered = new java.util.concurrent.ConcurrentLinkedDeque<>();

        private final Deque<Hold> holds = new ArrayDeque<>();

        Handle(String name, Lock lock, ExecutorService owner) {
            this.name = name;
            this.lock = lock;
            this.owner = owner;
        }

        synchronized void acquired(Lease lease) {
            if (lock.isReentrant() && !holds.isEmpty()) {
                holds.peek().entries++;
            } else {
                holds.push(new Hold(lease));
            }
        }

        String release() throws Exception {
            try {
                lock.release(newest());
            } catch (IllegalStateException | IllegalMonitorStateException e) {
                // Was not held at all: nothing changes.
                throw e;
            } catch (Exception e) {
                forget();
                throw e;
            }
            forget();
            return "ok";
        }

        /** The end of a hold that is not wanted any more: Curator has no other way. */
        void drop(String id) {
            if (newest() == null) {
                output.line(id + " err IllegalMonitorState nothing is held");
                return;
            }
            output.line(id + " ok");
            resultOf(this::release);
        }

        boolean held() {
            boolean connected = state != ConnectionState.SUSPENDED && state != ConnectionState.LOST;
            Hold hold = newest();
            return connected && hold != null && !isLost(hold) && lock.isHeld();
        }

        /** Writes a node, if the lock's node exists. */
        String guarded(String path, String data) throws Exception {
            Hold hold = newest();
            if (hold == null) {
                return "err NotOwner NotApplied nothing is held";
            }
            String node = lock.node(hold.lease);
            return write(() -> {
                zooKeeper().multi(Arrays.asList(Op.check(node, -1), Op.setData(path, bytes(data), -1)));
                return "ok";
            });
        }

        /** The czxid of the lock's node. */
        long token() throws Exception {
            Hold hold = newest();
            if (hold == null) {
                throw new IllegalMonitorStateException("nothing is held");
            }
            String node = lock.node(hold.lease);
            Stat stat = client.checkExists().forPath(node);
            if (stat == null) {
                throw new org.apache.zookeeper.KeeperException.NoNodeException(node);
            }
            return stat.getCzxid();
        }

        /** In the listener's thread: reports once every hold that ended with the session. */
        synchronized void lose() {
            for (Hold hold : holds) {
                if (!hold.lost) {
                    hold.lost = true;
                    output.line("! lost " + name);
                }
            }
        }

        private synchronized Hold newest() {
            return holds.peek();
        }

        private synchronized boolean isLost(Hold hold) {
            return hold.lost;
        }

        private synchronized void forget() {
            Hold hold = holds.peek();
            if (hold != null && --hold.entries == 0) {
                holds.pop();
            }
        }
    }

    /** One acquire from the line it was read from to its answer. */
    private final class Acquire implements Command {
        private final Handle handle;
        private final Long ms;
        private Thread thread;
        private boolean cancelled;

        Acquire(Handle handle, Long ms) {
            this.handle = handle;
            this.ms = ms;
        }

        synchronized void cancel() {
            cancelled = true;
            if (thread != null) {
                thread.interrupt();
            }
        }

        private synchronized boolean start() {
            thread = Thread.currentThread();
            return !cancelled;
        }

        private synchronized boolean end() {
            thread = null;
            // An interrupt that came too late must not hit the next command.
            Thread.interrupted();
            return !cancelled;
        }

        @Override
        public String run() throws Exception {
            String cancelledAnswer = "err Cancelled as asked";
            if (!start()) {
                return cancelledAnswer;
            }
            long lossesBefore = losses.get();
            Lease lease;
            try {
                lease = handle.lock.acquire(ms);
            } catch (Exception e) {
                if (!end()) {
                    return cancelledAnswer;
                }
                throw e;
            }
            if (!end()) {
                // Both happened; the answer has to be one of them, and the lock must follow it.
                if (lease != null) {
                    handle.lock.release(new Hold(lease));
                }
                return cancelledAnswer;
            }
            if (lease == null) {
                return "false";
            }
            handle.acquired(lease);
            boolean lostMeanwhile = losses.get() != lossesBefore;
            if (lostMeanwhile && client.checkExists().forPath(handle.lock.node(lease)) == null) {
                handle.lose();
            }
            return handle.lock instanceof SemaphoreLock ? "ok " + lease.getNodeName() : "ok";
        }
    }

    // ---- locks

    /** What the handles of one lock need; methods run in an owner's thread. */
    private abstract class Lock {
        /** Null when the time was up. */
        abstract Lease acquire(Long ms) throws Exception;

        abstract void release(Hold hold) throws Exception;

        abstract boolean isHeld();

        /** The path of the node that is the hold. */
        abstract String node(Lease lease) throws Exception;

        abstract Collection<String> participants() throws Exception;

        boolean isReentrant() {
            return false;
        }

        void makeRevocable(Runnable notify) {
            throw new UnsupportedOperationException("this kind of lock cannot be revoked");
        }

        final boolean take(InterProcessLock lock, Long ms) throws Exception {
            if (ms == null) {
                lock.acquire();
                return true;
            }
            return lock.acquire(ms, TimeUnit.MILLISECONDS);
        }
    }

    /** A lock that belongs to a thread: mutex, read, write. */
    private final class ThreadLock extends Lock {
        private final InterProcessMutex mutex;

        ThreadLock(InterProcessMutex mutex) {
            this.mutex = mutex;
        }

        @Override
        Lease acquire(Long ms) throws Exception {
            return take(mutex, ms) ? NO_LEASE : null;
        }

        @Override
        void release(Hold hold) throws Exception {
            mutex.release();
        }

        @Override
        boolean isHeld() {
            return mutex.isOwnedByCurrentThread();
        }

        @Override
        String node(Lease lease) throws Exception {
            // Protected, and the read and write locks' classes are not ours to extend.
            Method method = InterProcessMutex.class.getDeclaredMethod("getLockPath");
            method.setAccessible(true);
            try {
                return (String) method.invoke(mutex);
            } catch (InvocationTargetException e) {
                throw new IllegalStateException(e.getCause());
            }
        }

        @Override
        Collection<String> participants() throws Exception {
            return mutex.getParticipantNodes();
        }

        @Override
        boolean isReentrant() {
            return true;
        }

        @Override
        void makeRevocable(Runnable notify) {
            mutex.makeRevocable(ignored -> notify.run());
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
            // As returnLease, which would hide an error.
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
    private final class SemaphoreMutexLock extends Lock {
        private final String path;
        private final InterProcessSemaphoreMutex mutex;

        SemaphoreMutexLock(String path) {
            this.path = path;
            this.mutex = new InterProcessSemaphoreMutex(client, path);
        }

        @Override
        Lease acquire(Long ms) throws Exception {
            return take(mutex, ms) ? NO_LEASE : null;
        }

        @Override
        void release(Hold hold) throws Exception {
            mutex.release();
        }

        @Override
        boolean isHeld() {
            return mutex.isAcquiredInThisProcess();
        }

        @Override
        String node(Lease ignored) throws Exception {
            java.lang.reflect.Field field =
                    InterProcessSemaphoreMutex.class.getDeclaredField("lease");
            field.setAccessible(true);
            Lease lease = (Lease) field.get(mutex);
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

    /** A part in an election, from an acquire to a release. */
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
        List<String> sorted = new ArrayList<>(nodes);
        sorted.sort((a, b) -> sequence(a).compareTo(sequence(b)));
        return sorted;
    }

    private static String sequence(String node) {
        return node.substring(Math.max(0, node.length() - 10));
    }

    /** Stands for success where Curator has no lease to give. */
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

    /** Standard output: whole lines, each flushed, none after the last. */
    private static final class Output {
        private final PrintStream stream = new PrintStream(
                new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        private boolean closed;

        synchronized void line(String text) {
            if (!closed) {
                stream.print((HAS_TIMES ? "@" + System.nanoTime() + " " : "") + text + "\n");
                stream.flush();
            }
        }

        synchronized void lastLine(String text) {
            line(text);
            closed = true;
        }
    }
}
