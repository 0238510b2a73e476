import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.retry.RetryNTimes;

/**
 * Curator's cache to be measured: the twin of {@code tools/cache_peer.rs} with the command {@code cache}.
 *
 * <pre>
 * java CacheBench CONNECT
 *
 * in:   memory | start | events
 * out:  ready   memory BYTES   initialized NODES   events COUNT
 * </pre>
 */
public final class CacheBench {
    private CacheBench() {}

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(arguments[0])
                .sessionTimeoutMs(20000)
                .connectionTimeoutMs(15000)
                .retryPolicy(new RetryNTimes(100, 50))
                .ensembleTracker(false)
                .build();
        client.start();
        client.blockUntilConnected();
        AtomicLong events = new AtomicLong();
        CuratorCache cache = CuratorCache.build(client, "/cache");
        System.out.println("ready");
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            if (line.equals("memory")) {
                // Twice: objects with a finalizer or a reference go in the second round.
                System.gc();
                System.gc();
                Runtime runtime = Runtime.getRuntime();
                System.out.println("memory " + (runtime.totalMemory() - runtime.freeMemory()));
            } else if (line.equals("events")) {
                System.out.println("events " + events.get());
            } else if (line.equals("start")) {
                CountDownLatch initialized = new CountDownLatch(1);
                cache.listenable().addListener(CuratorCacheListener.builder()
                        .forAll((type, old, now) -> events.incrementAndGet())
                        .forInitialized(initialized::countDown)
                        .build());
                cache.start();
                initialized.await();
                System.out.println("initialized " + cache.size());
            }
        }
        client.close();
        Runtime.getRuntime().halt(0);
    }
}
