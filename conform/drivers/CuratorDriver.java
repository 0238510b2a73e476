import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.curator.RetryPolicy;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.data.Stat;

/** Curator's driver for `docent conform client`: `java CuratorDriver CONNECT [retry]`. */
public final class CuratorDriver {
    private static CuratorFramework client;
    private static volatile String state = "suspended";

    public static void main(String[] arguments) throws Exception {
        RetryPolicy retry =
            arguments.length > 1 ? new ExponentialBackoffRetry(100, 5) : new RetryNTimes(0, 0);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            String said;
            try {
                said = "ok " + answer(arguments[0], retry, words);
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

    private static String answer(String connect, RetryPolicy retry, String[] words) throws Exception {
        switch (words[1]) {
            case "connect":
                client = CuratorFrameworkFactory.builder()
                    .connectString(connect)
                    .sessionTimeoutMs(Integer.parseInt(words[2]))
                    .retryPolicy(retry)
                    .build();
                client.getConnectionStateListenable().addListener((client, state) -> changed(state));
                client.start();
                if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) {
                    throw new KeeperException.ConnectionLossException();
                }
                return "";
            case "create":
                return client.create().forPath(words[2], bytes(words[3]));
            case "get":
                var stat = new Stat();
                byte[] data = client.getData().storingStatIn(stat).forPath(words[2]);
                return stat.getVersion() + " " + (data == null ? "" : new String(data, StandardCharsets.UTF_8));
            case "set":
                int version = words.length > 4 ? Integer.parseInt(words[4]) : -1;
                return "" + client.setData().withVersion(version).forPath(words[2], bytes(words[3])).getVersion();
            case "delete":
                client.delete().forPath(words[2]);
                return "";
            case "children":
                return "" + client.getChildren().forPath(words[2]).size();
            case "watch":
                return "" + (client.checkExists()
                    .usingWatcher((org.apache.zookeeper.Watcher) event -> watched(words[2], event))
                    .forPath(words[2]) != null);
            case "multi":
                client.transaction().forOperations(
                    client.transactionOp().create().forPath(words[2], new byte[0]),
                    client.transactionOp().create().forPath(words[3], new byte[0]));
                return "";
            case "state":
                return state;
            default:
                client.close();
                return "";
        }
    }

    private static void watched(String path, WatchedEvent event) {
        if (event.getType() != EventType.None) {
            say("! event " + path);
        }
    }

    private static void changed(ConnectionState now) {
        state = now == ConnectionState.LOST ? "expired" : now.isConnected() ? "connected" : "suspended";
        say("! state " + state);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }
}
