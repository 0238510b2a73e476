import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;

/**
 * ZooKeeper's server, which exits with its parent process. The line "stop" on standard input ends it
 * and keeps its files. The end of standard input, which the death of the parent causes, ends it and
 * removes them.
 *
 * <p>Arguments: the directory of all files of this server, and its configuration file.
 */
public final class WatchedServer {
    private WatchedServer() {}

    public static void main(String[] arguments) {
        Thread watch = new Thread(() -> watch(Path.of(arguments[0])), "parent-watch");
        watch.setDaemon(true);
        watch.start();
        // Runs a single server if the configuration has no ensemble.
        QuorumPeerMain.main(new String[] {arguments[1]});
    }

    private static void watch(Path directory) {
        boolean stop = false;
        try (BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            String line;
            while (!stop && (line = input.readLine()) != null) {
                stop = line.equals("stop");
            }
        } catch (IOException e) {
            // Handled like the end of the input.
        }
        if (!stop) {
            remove(directory);
        }
        // Not exit: an orphan must not wait for shutdown hooks.
        Runtime.getRuntime().halt(0);
    }

    private static void remove(Path directory) {
        try (Stream<Path> files = Files.walk(directory)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException e) {
            // Temporary files, and no process is left to report it to.
        }
    }
}
