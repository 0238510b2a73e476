import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** The driver of ZooKeeper's own Java client for `docent conform client`: `java ZooKeeperDriver CONNECT`. */
public final class ZooKeeperDriver {
    private static final CountDownLatch CONNECTED = new CountDownLatch(1);
    private static ZooKeeper client;

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            String said;
            try {
                said = "ok " + answer(arguments[0], words);
            } catch (KeeperException error) {
                said = "error " + error.code();
            } catch (Exception error) {
                said = "error " + error.getClass().getSimpleName();
            }
            say(words[0] + " " + said.trim());
            if (words[1].equals("close")) {
                break;
            }
        }
    }

    private static String answer(String connect, String[] words) throws Exception {
        switch (words[1]) {
            case "connect":
                client = new ZooKeeper(connect, Integer.parseInt(words[2]), ZooKeeperDriver::state);
                if (!CONNECTED.await(20, TimeUnit.SECONDS)) {
                    throw new KeeperException.ConnectionLossException();
                }
                return "";
            case "create":
                return client.create(words[2], bytes(words[3]), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            case "get":
                var stat = new Stat();
                byte[] data = client.getData(words[2], false, stat);
                return stat.getVersion() + " " + (data == null ? "" : new String(data, StandardCharsets.UTF_8));
            case "set":
                int version = words.length > 4 ? Integer.parseInt(words[4]) : -1;
                return "" + client.setData(words[2], bytes(words[3]), version).getVersion();
            case "delete":
                client.delete(words[2], -1);
                return "";
            case "children":
                return "" + client.getChildren(words[2], false).size();
            case "watch":
                return "" + (client.exists(words[2], event -> watched(words[2], event)) != null);
            case "multi":
                client.multi(List.of(create(words[2]), create(words[3])));
                return "";
            case "state":
                switch (client.getState()) {
                    case CONNECTED:
                    case CONNECTEDREADONLY:
                        return "connected";
                    case CLOSED:
                        return "closed";
                    default:
                        return "suspended";
                }
            default:
                client.close();
                return "";
        }
    }

    private static Op create(String path) {
        return Op.create(path, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
    }

    private static void watched(String path, WatchedEvent event) {
        if (event.getType() != EventType.None) {
            say("! event " + path);
        }
    }

    private static void state(WatchedEvent event) {
        switch (event.getState()) {
            case SyncConnected:
            case ConnectedReadOnly:
                say("! state connected");
                CONNECTED.countDown();
                break;
            case Expired:
                say("! state expired");
                break;
            case Disconnected:
                say("! state suspended");
                break;
            default:
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }
}
