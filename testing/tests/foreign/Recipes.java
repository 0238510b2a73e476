import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.*;
import org.apache.curator.retry.RetryNTimes;

/** Real Curator's recipes against the server named on the command line. Exit code 0 if all did their work. */
public class Recipes {
    static CuratorFramework client(String server) {
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(server)
            .sessionTimeoutMs(6000).connectionTimeoutMs(3000).retryPolicy(new RetryNTimes(5, 100)).build();
        client.start();
        return client;
    }

    static void check(String what, boolean holds) {
        System.out.println(what + ": " + holds);
        if (!holds) System.exit(1);
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework a = client(args[0]), b = client(args[0]);
        String root = "/curator-" + System.nanoTime();

        InterProcessMutex mine = new InterProcessMutex(a, root + "/mutex");
        InterProcessMutex theirs = new InterProcessMutex(b, root + "/mutex");
        check("mutex is acquired", mine.acquire(5, TimeUnit.SECONDS));
        check("and re-entered", mine.acquire(5, TimeUnit.SECONDS));
        mine.release();
        check("by nobody else", !theirs.acquire(100, TimeUnit.MILLISECONDS));
        CompletableFuture<Boolean> next = CompletableFuture.supplyAsync(() -> {
            try {
                boolean acquired = theirs.acquire(5, TimeUnit.SECONDS);
                theirs.release();
                return acquired;
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        });
        mine.release();
        check("and handed over", next.get());

        InterProcessReadWriteLock rw = new InterProcessReadWriteLock(a, root + "/rw");
        InterProcessReadWriteLock rw2 = new InterProcessReadWriteLock(b, root + "/rw");
        rw.readLock().acquire();
        check("readers share", rw2.readLock().acquire(5, TimeUnit.SECONDS));
        rw2.readLock().release();
        check("and keep writers out", !rw2.writeLock().acquire(100, TimeUnit.MILLISECONDS));
        rw.readLock().release();
        check("a writer comes in", rw2.writeLock().acquire(5, TimeUnit.SECONDS));
        check("and may read", rw2.readLock().acquire(5, TimeUnit.SECONDS));
        rw2.writeLock().release();
        rw2.readLock().release();

        InterProcessSemaphoreV2 two = new InterProcessSemaphoreV2(a, root + "/semaphore", 2);
        Lease first = two.acquire(), second = two.acquire();
        check("a third has to wait", two.acquire(100, TimeUnit.MILLISECONDS) == null);
        two.returnLease(first);
        Lease third = two.acquire(5, TimeUnit.SECONDS);
        check("and gets in", third != null);
        two.returnLease(second);
        two.returnLease(third);

        InterProcessSemaphoreMutex plain = new InterProcessSemaphoreMutex(a, root + "/semaphore-mutex");
        check("semaphore mutex", plain.acquire(5, TimeUnit.SECONDS));
        plain.release();
        InterProcessMultiLock both = new InterProcessMultiLock(a, Arrays.asList(root + "/one", root + "/two"));
        check("multi lock", both.acquire(5, TimeUnit.SECONDS));
        both.release();

        CountDownLatch revoked = new CountDownLatch(1);
        InterProcessMutex revocable = new InterProcessMutex(a, root + "/revocable");
        revocable.makeRevocable(lock -> revoked.countDown());
        revocable.acquire();
        Revoker.attemptRevoke(b, revocable.getParticipantNodes().iterator().next());
        check("revocation is heard", revoked.await(5, TimeUnit.SECONDS));
        revocable.release();

        LeaderLatch one = new LeaderLatch(a, root + "/latch"), other = new LeaderLatch(b, root + "/latch");
        one.start();
        check("a leader", one.await(5, TimeUnit.SECONDS));
        other.start();
        check("and no second one", !other.await(100, TimeUnit.MILLISECONDS));
        one.close();
        check("until it goes", other.await(5, TimeUnit.SECONDS));
        other.close();

        InterProcessMutex[] locks = {new InterProcessMutex(a, root + "/busy"), new InterProcessMutex(b, root + "/busy")};
        AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger();
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<?>> done = new ArrayList<>();
        for (int t = 0; t < 4; t++) {
            InterProcessMutex lock = locks[t % 2];
            done.add(threads.submit(() -> {
                for (int i = 0; i < 25; i++) {
                    lock.acquire();
                    most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                    inside.decrementAndGet();
                    lock.release();
                }
                return null;
            }));
        }
        for (Future<?> thread : done) thread.get();
        threads.shutdown();
        check("100 holds, one at a time", most.get() == 1);
        check("nothing is left", a.getChildren().forPath(root + "/busy").isEmpty());
        a.close();
        b.close();
    }
}
