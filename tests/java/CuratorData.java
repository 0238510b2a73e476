import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
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
 * The barriers, atomic numbers and caches of {@link CuratorPeer}. {@code arun HANDLE N} makes N increments and replies
 * {@code COUNTED UNKNOWN}: the numbers of increments that succeeded and that lost the connection. {@code cdump HANDLE}
 * replies each node of a cache as {@code PATH=VERSION=DATA}, with the data in hexadecimal.
 */
final class CuratorData {
    private final CuratorFramework client;
    private final Map<String, DistributedBarrier> barriers = new ConcurrentHashMap<>();
    private final Map<String, DistributedDoubleBarrier> members = new ConcurrentHashMap<>();
    private final Map<String, CuratorCache> caches = new ConcurrentHashMap<>();

    CuratorData(CuratorPeer peer) {
        this.client = peer.client;
    }

    String run(String[] words) throws Exception {
        String handle = words[2];
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
            boolean enters = words[1].equals("denter");
            if (enters) {
                // One object is one member for one round.
                this.members.put(handle, new DistributedDoubleBarrier(client, path, members));
            }
            DistributedDoubleBarrier member = this.members.get(handle);
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

    private String cache(String verb, String handle, String path) {
        return switch (verb) {
            case "cstart" -> {
                CuratorCache cache = CuratorCache.build(client, path);
                caches.put(handle, cache);
                cache.start();
                yield "";
            }
            case "cdump" -> caches.get(handle).stream()
                        .map(node -> node.getPath() + "=" + node.getStat().getVersion() + "="
                                + hex(node.getData()))
                        .sorted()
                        .collect(Collectors.joining(" "));
            case "cclose" -> {
                caches.remove(handle).close();
                yield "";
            }
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte value : data) {
            text.append(String.format("%02x", value));
        }
        return text.toString();
    }

    private String barrier(String verb, DistributedBarrier barrier, long ms) throws Exception {
        return switch (verb) {
            case "bset" -> {
                barrier.setBarrier();
                yield "";
            }
            case "bremove" -> {
                barrier.removeBarrier();
                yield "";
            }
            case "bwait" -> {
                if (ms < 0) {
                    barrier.waitOnBarrier();
                    yield "";
                }
                yield barrier.waitOnBarrier(ms, TimeUnit.MILLISECONDS) ? "" : null;
            }
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private String number(String[] words, DistributedAtomicNumber<?> number) throws Exception {
        return switch (words[1]) {
            case "aget" -> text(number.get());
            case "adec" -> text(number.decrement());
            case "arun" -> {
                int counted = 0;
                int unknown = 0;
                for (int i = Integer.parseInt(words[3]); i > 0; i--) {
                    try {
                        counted += number.increment().succeeded() ? 1 : 0;
                    } catch (KeeperException.ConnectionLossException e) {
                        // Curator does not say whether the read or the write failed.
                        unknown++;
                    }
                }
                yield counted + " " + unknown;
            }
            default -> throw new IllegalArgumentException(words[1]);
        };
    }

    private static String text(AtomicValue<?> value) {
        return value.succeeded() + " " + value.preValue() + " " + value.postValue();
    }
}
