import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicNumber;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.KeeperException;

/**
 * A peer around Curator's barriers, atomic numbers and caches: the twin of the example {@code recipe_peer},
 * with the verbs that the interop tests need, speaking the same lines. {@code arun HANDLE N} makes N
 * increments and answers {@code COUNTED UNKNOWN}: how many have succeeded, and how many have lost the
 * connection. {@code cdump HANDLE} answers each node of a cache as {@code PATH=VERSION=DATA}, with the
 * data in hexadecimal.
 *
 * <pre>
 * java CuratorDataPeer CONNECT [SESSION_MS [RETRIES [FLAGS]]]      FLAGS: none, or lazy, tracker
 *
 * in:   ID VERB HANDLE ARGS...
 * out:  ID ok [RESULT]   ID false   ID err KIND TEXT   ! EVENT
 * </pre>
 */
public final class CuratorDataPeer {
    private final CuratorFramework client;
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Map<String, DistributedBarrier> barriers = new ConcurrentHashMap<>();
    private final Map<String, DistributedDoubleBarrier> members = new ConcurrentHashMap<>();

    private final Map<String, CuratorCache> caches = new ConcurrentHashMap<>();

    /** By handle: the verbs of one object run in order. */
    private final Map<String, ExecutorService> objects = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        int sessionMs = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 20000;
        int retries = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 3;
        List<String> flags = List.of((arguments.length > 3 ? arguments[3] : "none").split(","));
        new CuratorDataPeer(arguments[0], sessionMs, retries, flags).run(flags.contains("lazy"));
    }

    private CuratorDataPeer(String connect, int sessionMs, int retries, List<String> flags) {
        client = CuratorFrameworkFactory.builder()
                .connectString(connect)
                .sessionTimeoutMs(sessionMs)
                .connectionTimeoutMs(5000)
                .retryPolicy(new RetryNTimes(retries, 50))
                .defaultData("10.0.0.1".getBytes(StandardCharsets.UTF_8))
                .ensembleTracker(flags.contains("tracker"))
                .build();
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }

    private synchronized void say(String line) {
        out.println(line);
    }

    private void run(boolean isLazy) throws Exception {
        client.start();
        long session = 0;
        if (!isLazy) {
            client.blockUntilConnected();
            session = client.getZookeeperClient().getZooKeeper().getSessionId();
        }
        say("! ready " + Long.toHexString(session));
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.trim().split("\\s+");
            if (words.length < 2) {
                continue;
            }
            if (words[1].equals("close")) {
                say(words[0] + " ok");
                break;
            }
            objects.computeIfAbsent(words[2],
                            ignored -> Executors.newSingleThreadExecutor(CuratorDataPeer::daemon))
                    .execute(() -> answer(words));
        }
        client.close();
        say("! closed");
        Runtime.getRuntime().halt(0);
    }

    private void answer(String[] words) {
        try {
            String result = command(words);
            if (result == null) {
                say(words[0] + " false");
            } else {
                say((words[0] + " ok " + result).trim());
            }
        } catch (Exception e) {
            String text = String.valueOf(e).replaceAll("\\s+", " ");
            say(words[0] + " err " + e.getClass().getSimpleName() + " " + text);
        }
    }

    private String command(String[] words) throws Exception {
        String handle = words[2];
        if (handle.startsWith("/")) {
            return change(words);
        }
        String path = handle.substring(handle.indexOf(':') + 1).replaceAll("#.*", "");
        if (words[1].startsWith("c")) {
            return cache(words[1], handle, path);
        }
        long ms = words.length > 3 ? Long.parseLong(words[3]) : -1;
        if (words[1].startsWith("b")) {
            return barrier(words[1], barriers.computeIfAbsent(handle,
                    ignored -> new DistributedBarrier(client, path)), ms);
        }
        if (words[1].startsWith("d")) {
            int members = Integer.parseInt(handle.replaceAll("dbarrier=(\\d+):.*", "$1"));
            if (words[1].equals("denter")) {
                // One object is one member for one round.
                this.members.put(handle, new DistributedDoubleBarrier(client, path, members));
            }
            DistributedDoubleBarrier member = this.members.get(handle);
            boolean enters = words[1].equals("denter");
            if (ms >= 0) {
                boolean done = enters
                        ? member.enter(ms, TimeUnit.MILLISECONDS)
                        : member.leave(ms, TimeUnit.MILLISECONDS);
                return done ? "" : null;
            }
            if (enters) {
                member.enter();
            } else {
                member.leave();
            }
            return "";
        }
        RetryNTimes races = new RetryNTimes(10000, 0);
        return handle.startsWith("along")
                ? number(words, new DistributedAtomicLong(client, path, races))
                : number(words, new DistributedAtomicInteger(client, path, races));
    }

    /** A change of a node. */
    private String change(String[] words) throws Exception {
        byte[] data = words.length > 3 ? words[3].getBytes(StandardCharsets.UTF_8) : null;
        switch (words[1]) {
            case "create":
                return client.create().forPath(words[2], data);
            case "set":
                return String.valueOf(client.setData().forPath(words[2], data).getVersion());
            case "get":
                return new String(client.getData().forPath(words[2]), StandardCharsets.UTF_8);
            case "delete":
                client.delete().forPath(words[2]);
                return "";
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private String cache(String verb, String handle, String path) {
        switch (verb) {
            case "cstart":
                CuratorCache cache = CuratorCache.build(client, path);
                caches.put(handle, cache);
                cache.start();
                return "";
            case "csize":
                return String.valueOf(caches.get(handle).size());
            case "cdump":
                return caches.get(handle).stream()
                        .map(node -> node.getPath() + "=" + node.getStat().getVersion() + "="
                                + hex(node.getData()))
                        .sorted()
                        .collect(Collectors.joining(" "));
            case "cclose":
                caches.remove(handle).close();
                return "";
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte value : data) {
            text.append(String.format("%02x", value));
        }
        return text.toString();
    }

    private String barrier(String verb, DistributedBarrier barrier, long ms) throws Exception {
        switch (verb) {
            case "bset":
                barrier.setBarrier();
                return "";
            case "bremove":
                barrier.removeBarrier();
                return "";
            case "bwait":
                if (ms < 0) {
                    barrier.waitOnBarrier();
                    return "";
                }
                return barrier.waitOnBarrier(ms, TimeUnit.MILLISECONDS) ? "" : null;
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private String number(String[] words, DistributedAtomicNumber<?> number) throws Exception {
        switch (words[1]) {
            case "aget":
                return text(number.get());
            case "ainc":
                return text(number.increment());
            case "adec":
                return text(number.decrement());
            case "arun":
                int counted = 0;
                int unknown = 0;
                for (int i = Integer.parseInt(words[3]); i > 0; i--) {
                    try {
                        counted += number.increment().succeeded() ? 1 : 0;
                    } catch (KeeperException.ConnectionLossException e) {
                        // Of a read or of a write: Curator does not say which.
                        unknown++;
                    }
                }
                return counted + " " + unknown;
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private static String text(AtomicValue<?> value) {
        return value.succeeded() + " " + value.preValue() + " " + value.postValue();
    }
}
