import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * A peer that uses real Curator: the counterpart of the examples {@code lock_peer} and {@code recipe_peer}, with the
 * same lines and the verbs that the tests need. So clients in two languages can use one node and be compared.
 *
 * <pre>
 * java CuratorPeer CONNECT [SESSION_MS [RETRIES]]
 *
 * in:   ID VERB ARGS...
 * out:  ID ok [RESULT]   ID false   ID err KIND TEXT   ! EVENT
 * </pre>
 *
 * <p>{@code create}, {@code set}, {@code get}, {@code syncget}, {@code fencedget} and {@code guarded} use ZooKeeper's
 * own client: Curator would repeat a write whose outcome is unknown. {@code make}, {@code write}, {@code read} and
 * {@code remove} use Curator. With {@code LOCK_PEER_TIMES}, lines have times, like those of {@code lock_peer}.
 */
public final class CuratorPeer {
    static final boolean HAS_TIMES = System.getenv("LOCK_PEER_TIMES") != null;

    final CuratorFramework client;

    private final PrintStream output =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private boolean isClosed;
    private volatile ConnectionState state = ConnectionState.LOST;

    /** By owner, handle, or kind and name: the verbs of one object run in order, in one thread. */
    private final Map<String, ExecutorService> queues = new ConcurrentHashMap<>();

    private final ExecutorService others = Executors.newCachedThreadPool(CuratorPeer::daemon);
    private final CuratorLocks locks;
    private final CuratorElections elections;
    private final CuratorData data;
    private final CuratorServices services;

    public static void main(String[] arguments) throws Exception {
        int sessionMs = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 6000;
        int retries = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 5;
        new CuratorPeer(arguments[0], sessionMs, retries).run();
    }

    private CuratorPeer(String connect, int sessionMs, int retries) {
        client = CuratorFrameworkFactory.builder()
                .connectString(connect)
                .sessionTimeoutMs(sessionMs)
                .connectionTimeoutMs(3000)
                .retryPolicy(new RetryNTimes(retries, 100))
                .defaultData(bytes("10.0.0.1"))
                // The tracker's reads of the configuration belong to no recipe.
                .ensembleTracker(false)
                .build();
        locks = new CuratorLocks(this);
        elections = new CuratorElections(this);
        data = new CuratorData(this);
        services = new CuratorServices(this);
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
                say(words[0] + " ok");
                break;
            }
            try {
                dispatch(line.trim(), words);
            } catch (RuntimeException e) {
                say(words[0] + " err BadCommand " + oneLine(line + ": " + e));
            }
        }
        close();
    }

    private void close() {
        // Without a server, closing a session can take long; the parent process may be gone by now.
        daemon(() -> {
            try {
                TimeUnit.SECONDS.sleep(10);
            } catch (InterruptedException e) {
                // Treated like the end of the wait.
            }
            Runtime.getRuntime().halt(1);
        }).start();
        client.close();
        synchronized (this) {
            say("! closed");
            isClosed = true;
        }
        Runtime.getRuntime().halt(0);
    }

    private void stateChanged(ConnectionState now) {
        state = now;
        say("! state " + now.name());
        if (now == ConnectionState.CONNECTED) {
            try {
                say("! ready " + session());
            } catch (Exception e) {
                // The session is lost already; the next state reports it.
            }
        } else if (now == ConnectionState.LOST) {
            locks.sessionLost();
        }
    }

    boolean isConnected() {
        return state != ConnectionState.SUSPENDED && state != ConnectionState.LOST;
    }

    private String session() throws Exception {
        return Long.toHexString(zooKeeper().getSessionId());
    }

    ZooKeeper zooKeeper() throws Exception {
        return client.getZookeeperClient().getZooKeeper();
    }

    // ---- commands

    /** A command. Its result is null after a timeout. */
    interface Command {
        String run() throws Exception;
    }

    /** An error with a kind of its own. */
    static final class Refusal extends Exception {
        private static final long serialVersionUID = 1;

        final String kind;

        Refusal(String kind, String text) {
            super(text);
            this.kind = kind;
        }
    }

    private void dispatch(String line, String[] words) {
        String id = words[0];
        switch (words[1]) {
            case "latch", "selector", "group" -> elections.dispatch(id, words);
            case "multi", "multirelease", "acquire", "release", "held", "guarded", "token", "participants",
                    "revocable" -> locks.dispatch(id, words);
            case "children", "revoke", "create", "set", "get", "syncget", "fencedget" ->
                    inBackground(id, () -> plain(words));
            case "make", "write", "read", "remove" -> inOrder("nodes", id, () -> node(words));
            default -> inOrder(words[2], id,
                    () -> words[2].startsWith("disc:") ? services.run(line) : data.run(words));
        }
    }

    private String plain(String[] words) throws Exception {
        return switch (words[1]) {
            case "children" -> sorted(client.getChildren().forPath(words[2]));
            case "revoke" -> {
                Revoker.attemptRevoke(client, words[2]);
                yield "";
            }
            case "create" -> write(() -> {
                zooKeeper().create(words[2], bytes(words[3]), ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                return "";
            });
            case "set" -> write(() -> {
                ZooKeeper keeper = zooKeeper();
                long session = keeper.getSessionId();
                Stat stat = keeper.setData(words[2], bytes(words[3]), Integer.parseInt(words[4]));
                boolean isSame = keeper.getSessionId() == session;
                return state(stat) + " " + (isSame ? Long.toHexString(session) : "-");
            });
            default -> fenced(words);
        };
    }

    /** Reads in one session, after a fence if the verb has one. */
    private String fenced(String[] words) throws Exception {
        ZooKeeper keeper = zooKeeper();
        long session = keeper.getSessionId();
        if (words[1].equals("syncget")) {
            CompletableFuture<Integer> synced = new CompletableFuture<>();
            keeper.sync(words[2], (code, path, context) -> synced.complete(code), null);
            if (synced.get() != 0) {
                throw new IllegalStateException("the sync failed");
            }
        } else if (words[1].equals("fencedget")) {
            keeper.setData(words[3], bytes("fence"), -1);
        }
        Stat stat = new Stat();
        String data = new String(keeper.getData(words[2], false, stat), StandardCharsets.UTF_8);
        if (keeper.getSessionId() != session) {
            throw new IllegalStateException("the session has changed");
        }
        return state(stat) + " " + Long.toHexString(session) + " " + data;
    }

    private static String state(Stat stat) {
        return stat.getVersion() + " " + stat.getMzxid();
    }

    /** Adds to an error whether the write may have been applied: only a refusal by the server rules it out. */
    static String write(Command command) throws Exception {
        try {
            return command.run();
        } catch (Exception e) {
            boolean isUnknown = !(e instanceof KeeperException)
                    || e instanceof KeeperException.ConnectionLossException
                    || e instanceof KeeperException.SessionExpiredException
                    || e instanceof KeeperException.OperationTimeoutException;
            throw new Refusal(kind(e), (isUnknown ? "Unknown " : "NotApplied ") + e.getMessage());
        }
    }

    private String node(String[] words) throws Exception {
        return switch (words[1]) {
            case "make" -> client.create().forPath(words[2], bytes(words[3]));
            case "write" -> String.valueOf(client.setData().forPath(words[2], bytes(words[3])).getVersion());
            case "read" -> new String(client.getData().forPath(words[2]), StandardCharsets.UTF_8);
            default -> {
                client.delete().forPath(words[2]);
                yield "";
            }
        };
    }

    // ---- for all commands

    ExecutorService queue(String name) {
        return queues.computeIfAbsent(
                name, ignored -> Executors.newSingleThreadExecutor(CuratorPeer::daemon));
    }

    void inOrder(String queue, String id, Command command) {
        queue(queue).execute(() -> answer(id, command));
    }

    void inBackground(String id, Command command) {
        others.execute(() -> answer(id, command));
    }

    void answer(String id, Command command) {
        String answer;
        try {
            String result = command.run();
            answer = result == null ? "false" : "ok " + result;
        } catch (Exception e) {
            answer = "err " + kind(e) + " " + oneLine(String.valueOf(e.getMessage()));
        }
        say((id + " " + answer).stripTrailing());
    }

    private static String kind(Exception e) {
        return e instanceof Refusal refusal
                ? refusal.kind
                : e.getClass().getSimpleName().replaceFirst("Exception$", "");
    }

    /** Writes a whole line at once, and nothing after the last one. */
    synchronized void say(String line) {
        if (!isClosed) {
            output.print((HAS_TIMES ? "@" + System.nanoTime() + " " : "") + line + "\n");
            output.flush();
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String list(Collection<String> items) {
        return (items.size() + " " + String.join(" ", items)).trim();
    }

    static String sorted(Collection<String> items) {
        return list(items.stream().sorted().toList());
    }

    private static String oneLine(String text) {
        return text.replaceAll("\\s+", " ");
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }
}
