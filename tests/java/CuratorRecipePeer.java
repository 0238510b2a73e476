import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.state.ConnectionStateErrorPolicy;
import org.apache.curator.framework.state.SessionConnectionStateErrorPolicy;
import org.apache.curator.framework.state.StandardConnectionStateErrorPolicy;
import org.apache.curator.retry.RetryNTimes;

/**
 * A peer around Curator's leader recipes: the twin of the example {@code recipe_peer}, with the
 * verbs that the interop tests need, speaking the same lines.
 *
 * <pre>
 * java CuratorRecipePeer CONNECT [SESSION_MS [RETRIES [SLEEP_MS [POLICY]]]]      POLICY: standard or session
 *
 * in:   ID VERB ARGS...
 * out:  ID ok [RESULT]   ID false   ID err KIND TEXT   ! EVENT
 * </pre>
 */
public final class CuratorRecipePeer {
    private final CuratorFramework client;
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Map<String, LeaderLatch> latches = new ConcurrentHashMap<>();
    private final Map<String, Selector> selectors = new ConcurrentHashMap<>();
    private final Map<String, GroupMember> members = new ConcurrentHashMap<>();

    /** By kind and name: the verbs of one object run in order. */
    private final Map<String, ExecutorService> objects = new ConcurrentHashMap<>();

    private final ExecutorService others = Executors.newCachedThreadPool(CuratorRecipePeer::daemon);

    public static void main(String[] arguments) throws Exception {
        int sessionMs = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 6000;
        int retries = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 5;
        int sleepMs = arguments.length > 3 ? Integer.parseInt(arguments[3]) : 100;
        boolean isOfSession = arguments.length > 4 && arguments[4].equals("session");
        new CuratorRecipePeer(arguments[0], sessionMs, new RetryNTimes(retries, sleepMs),
                        isOfSession
                                ? new SessionConnectionStateErrorPolicy()
                                : new StandardConnectionStateErrorPolicy())
                .run();
    }

    private CuratorRecipePeer(String connect, int sessionMs, RetryNTimes retries,
            ConnectionStateErrorPolicy errorPolicy) {
        client = CuratorFrameworkFactory.builder()
                .connectString(connect)
                .sessionTimeoutMs(sessionMs)
                .connectionTimeoutMs(3000)
                .retryPolicy(retries)
                .connectionStateErrorPolicy(errorPolicy)
                .defaultData("10.0.0.1".getBytes(StandardCharsets.UTF_8))
                .ensembleTracker(false)
                .build();
        client.getConnectionStateListenable().addListener((ignored, now) -> say("! state " + now));
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }

    private synchronized void say(String line) {
        out.println(line);
    }

    private void run() throws Exception {
        client.start();
        client.blockUntilConnected();
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
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
            boolean waits = words.length > 2 && words[2].equals("await");
            ExecutorService owner = words.length > 3 && !waits
                    ? objects.computeIfAbsent(words[1] + " " + words[3],
                            ignored -> Executors.newSingleThreadExecutor(CuratorRecipePeer::daemon))
                    : others;
            owner.execute(() -> answer(words));
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
        switch (words[1]) {
            case "latch":
                return latch(words);
            case "selector":
                return selector(words);
            case "group":
                return group(words);
            case "children":
                List<String> names = client.getChildren().forPath(words[2]);
                return names.size() + " " + String.join(" ", names);
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private String latch(String[] words) throws Exception {
        String name = words[3];
        if (words[2].equals("start")) {
            LeaderLatch latch = new LeaderLatch(client, words[4], words[5]);
            latch.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    say("! leader " + name);
                }

                @Override
                public void notLeader() {
                    say("! notleader " + name);
                }
            });
            latches.put(name, latch);
            latch.start();
            return "";
        }
        LeaderLatch latch = latches.get(name);
        switch (words[2]) {
            case "await":
                if (words.length < 5) {
                    latch.await();
                    return "";
                }
                return latch.await(Long.parseLong(words[4]), TimeUnit.MILLISECONDS) ? "" : null;
            case "leader?":
                return String.valueOf(latch.hasLeadership());
            case "token":
                return String.valueOf(client.checkExists().forPath(latch.getOurPath()).getCzxid());
            case "participants":
                return list(latch.getParticipants());
            case "who":
                return latch.getLeader().getId();
            case "close":
                latch.close();
                return "";
            default:
                throw new IllegalArgumentException(words[2]);
        }
    }

    private static String list(Collection<Participant> participants) {
        List<String> ids = new ArrayList<>();
        for (Participant participant : participants) {
            ids.add((participant.isLeader() ? "*" : "") + participant.getId());
        }
        return ids.size() + " " + String.join(" ", ids);
    }

    /** A selector whose term ends by a command. */
    private final class Selector extends LeaderSelectorListenerAdapter {
        final String name;
        final LeaderSelector selector;
        final SynchronousQueue<String> ends = new SynchronousQueue<>();
        int terms;

        Selector(String name, String path, String id, boolean requeue) {
            this.name = name;
            selector = new LeaderSelector(client, path, this);
            selector.setId(id);
            if (requeue) {
                selector.autoRequeue();
            }
        }

        @Override
        public void takeLeadership(CuratorFramework ignored) throws Exception {
            terms += 1;
            say("! lead " + name + " " + terms);
            try {
                ends.take();
                say("! lead-end " + name + " " + terms + " returned");
            } catch (InterruptedException e) {
                say("! lead-end " + name + " " + terms + " interrupted");
                throw e;
            }
        }
    }

    private String selector(String[] words) throws Exception {
        String name = words[3];
        if (words[2].equals("start")) {
            boolean requeue = words.length > 6 && words[6].equals("requeue");
            Selector selector = new Selector(name, words[4], words[5], requeue);
            selectors.put(name, selector);
            selector.selector.start();
            return "";
        }
        Selector selector = selectors.get(name);
        switch (words[2]) {
            case "yield":
                return selector.ends.offer("yield", 2, TimeUnit.SECONDS) ? "" : null;
            case "leader?":
                return String.valueOf(selector.selector.hasLeadership());
            case "participants":
                return list(selector.selector.getParticipants());
            case "who":
                return selector.selector.getLeader().getId();
            case "close":
                selector.selector.close();
                return "";
            default:
                throw new IllegalArgumentException(words[2]);
        }
    }

    private String group(String[] words) throws Exception {
        String name = words[3];
        if (words[2].equals("join")) {
            byte[] data = words[6].getBytes(StandardCharsets.UTF_8);
            GroupMember member = new GroupMember(client, words[4], words[5], data);
            members.put(name, member);
            member.start();
            return "";
        }
        GroupMember member = members.get(name);
        switch (words[2]) {
            case "members":
                List<String> all = new ArrayList<>();
                new TreeMap<>(member.getCurrentMembers()).forEach((id, data) ->
                        all.add(id + "=" + new String(data, StandardCharsets.UTF_8)));
                return all.size() + " " + String.join(" ", all);
            case "leave":
                member.close();
                return "";
            default:
                throw new IllegalArgumentException(words[2]);
        }
    }
}
