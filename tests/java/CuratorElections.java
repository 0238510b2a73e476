import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.nodes.GroupMember;

/** The leader recipes and groups of {@link CuratorPeer}: {@code KIND VERB NAME ARGS...}. */
final class CuratorElections {
    private final CuratorPeer peer;
    private final CuratorFramework client;
    private final Map<String, LeaderLatch> latches = new ConcurrentHashMap<>();
    private final Map<String, Selector> selectors = new ConcurrentHashMap<>();
    private final Map<String, GroupMember> members = new ConcurrentHashMap<>();

    CuratorElections(CuratorPeer peer) {
        this.peer = peer;
        this.client = peer.client;
    }

    void dispatch(String id, String[] words) {
        if (words[2].equals("await")) {
            peer.inBackground(id, () -> latch(words));
            return;
        }
        peer.inOrder(words[1] + " " + words[3], id, () -> switch (words[1]) {
            case "latch" -> latch(words);
            case "selector" -> selector(words);
            default -> group(words);
        });
    }

    private String latch(String[] words) throws Exception {
        String name = words[3];
        if (words[2].equals("start")) {
            LeaderLatch latch = new LeaderLatch(client, words[4], words[5]);
            latch.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    peer.say("! leader " + name);
                }

                @Override
                public void notLeader() {
                    peer.say("! notleader " + name);
                }
            });
            latches.put(name, latch);
            latch.start();
            return "";
        }
        LeaderLatch latch = latches.get(name);
        return switch (words[2]) {
            case "await" -> {
                latch.await();
                yield "";
            }
            case "leader?" -> String.valueOf(latch.hasLeadership());
            case "token" -> String.valueOf(client.checkExists().forPath(latch.getOurPath()).getCzxid());
            case "participants" -> list(latch.getParticipants());
            case "close" -> {
                latch.close();
                yield "";
            }
            default -> throw new IllegalArgumentException(words[2]);
        };
    }

    private static String list(Collection<Participant> participants) {
        return CuratorPeer.list(participants.stream()
                .map(participant -> (participant.isLeader() ? "*" : "") + participant.getId())
                .toList());
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
            peer.say("! lead " + name + " " + terms);
            try {
                ends.take();
                peer.say("! lead-end " + name + " " + terms + " returned");
            } catch (InterruptedException e) {
                peer.say("! lead-end " + name + " " + terms + " interrupted");
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
        return switch (words[2]) {
            case "yield" -> selector.ends.offer("yield", 2, TimeUnit.SECONDS) ? "" : null;
            case "leader?" -> String.valueOf(selector.selector.hasLeadership());
            default -> throw new IllegalArgumentException(words[2]);
        };
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
        return switch (words[2]) {
            case "members" -> {
                List<String> all = new ArrayList<>();
                new TreeMap<>(member.getCurrentMembers()).forEach((id, data) ->
                        all.add(id + "=" + new String(data, StandardCharsets.UTF_8)));
                yield CuratorPeer.list(all);
            }
            case "leave" -> {
                member.close();
                yield "";
            }
            default -> throw new IllegalArgumentException(words[2]);
        };
    }
}
