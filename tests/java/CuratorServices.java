import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.x.discovery.DownInstancePolicy;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceProvider;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.curator.x.discovery.details.JsonInstanceSerializer;
import org.apache.curator.x.discovery.strategies.RoundRobinStrategy;

/**
 * The service discovery of {@link CuratorPeer}, one per process: the handle {@code disc:BASE}.
 *
 * <pre>
 * dsample HANDLE ID PAYLOAD   registers an instance of "web" with a Java payload:
 *                             null text int double large small bool long float biginteger bytes
 *                             list map bean
 * dread HANDLE JSON           the JSON of the instance that is read; "refused", "unwritable"
 * duri HANDLE NAME ID         the URI of an instance
 * dclass HANDLE NAME ID       the class of a payload, and its text
 * </pre>
 */
public final class CuratorServices {
    private final CuratorFramework client;
    private final Map<String, ServiceInstance<Object>> registered = new HashMap<>();
    private final Map<String, ServiceCache<Object>> caches = new HashMap<>();
    private final Map<String, ServiceProvider<Object>> providers = new HashMap<>();
    private ServiceDiscovery<Object> discovery;
    private JsonInstanceSerializer<Object> serializer;

    /** A payload of a class that no other program has. */
    public static final class Details {
        private String zone = "z";
        private int weight = 3;

        public String getZone() {
            return zone;
        }

        public void setZone(String zone) {
            this.zone = zone;
        }

        public int getWeight() {
            return weight;
        }

        public void setWeight(int weight) {
            this.weight = weight;
        }

        @Override
        public String toString() {
            return zone + "/" + weight;
        }
    }

    CuratorServices(CuratorPeer peer) {
        this.client = peer.client;
    }

    String run(String line) throws Exception {
        String[] parts = line.split(" ", 4);
        String verb = parts[1];
        String base = parts[2].substring(parts[2].indexOf(':') + 1);
        String rest = parts.length > 3 ? parts[3] : "";
        String[] words = rest.split(" ");
        return switch (verb) {
            case "dopen" -> {
                serializer = new JsonInstanceSerializer<>(Object.class, !rest.contains("new"));
                discovery = ServiceDiscoveryBuilder.builder(Object.class)
                        .client(client)
                        .basePath(base)
                        .serializer(serializer)
                        .watchInstances(rest.contains("watch"))
                        .build();
                discovery.start();
                yield "";
            }
            case "dreg" -> register(serializer.deserialize(rest.getBytes(StandardCharsets.UTF_8)));
            case "dsample" -> register(sample(words[0], words[1]));
            case "dupdate" -> {
                ServiceInstance<Object> instance =
                        serializer.deserialize(rest.getBytes(StandardCharsets.UTF_8));
                registered.put(instance.getId(), instance);
                discovery.updateService(instance);
                yield "";
            }
            case "dunreg" -> {
                discovery.unregisterService(registered.remove(rest));
                yield "";
            }
            case "dnames" -> CuratorPeer.sorted(discovery.queryForNames());
            case "dids" -> ids(discovery.queryForInstances(rest));
            case "dget" -> {
                ServiceInstance<Object> instance = discovery.queryForInstance(words[0], words[1]);
                yield instance == null
                        ? "-"
                        : new String(serializer.serialize(instance), StandardCharsets.UTF_8);
            }
            case "dread" -> read(rest);
            case "duri" -> discovery.queryForInstance(words[0], words[1]).buildUriSpec();
            case "dclass" -> {
                Object payload = discovery.queryForInstance(words[0], words[1]).getPayload();
                yield payload == null ? "-" : payload.getClass().getName() + " " + payload;
            }
            case "scstart" -> {
                ServiceCache<Object> cache = discovery.serviceCacheBuilder().name(rest).build();
                cache.start();
                caches.put(rest, cache);
                yield String.valueOf(cache.getInstances().size());
            }
            case "sclist" -> {
                List<String> lines = new ArrayList<>();
                for (ServiceInstance<Object> one : caches.get(rest).getInstances()) {
                    lines.add(one.getId() + "=" + one.getAddress() + ":" + one.getPort());
                }
                yield CuratorPeer.sorted(lines);
            }
            case "pstart" -> {
                ServiceProvider<Object> provider = discovery.serviceProviderBuilder()
                        .serviceName(words[0])
                        .providerStrategy(new RoundRobinStrategy<>())
                        .downInstancePolicy(new DownInstancePolicy(60, TimeUnit.SECONDS, 2))
                        .build();
                provider.start();
                providers.put(words[0], provider);
                yield "";
            }
            case "pall" -> ids(providers.get(rest).getAllInstances());
            case "pget" -> {
                ServiceInstance<Object> instance = providers.get(rest).getInstance();
                yield instance == null ? "-" : instance.getId();
            }
            case "dclose" -> {
                discovery.close();
                yield "";
            }
            default -> throw new IllegalArgumentException(verb);
        };
    }

    /** Reads an instance and writes it again with all members. */
    private String read(String json) {
        ServiceInstance<Object> instance;
        try {
            instance = serializer.deserialize(json.getBytes(StandardCharsets.UTF_8));
        } catch (Exception e) {
            return "refused";
        }
        try {
            return new String(serializer.serialize(instance), StandardCharsets.UTF_8);
        } catch (Exception e) {
            return "unwritable";
        }
    }

    private String register(ServiceInstance<Object> instance) throws Exception {
        registered.put(instance.getId(), instance);
        discovery.registerService(instance);
        return "";
    }

    private static ServiceInstance<Object> sample(String id, String payload) throws Exception {
        return ServiceInstance.builder()
                .name("web")
                .id(id)
                .address("10.1.1.1")
                .port(8080)
                .registrationTimeUTC(1700000000000L)
                .uriSpec(new UriSpec("{scheme}://{address}:{port}"))
                .payload(payload(payload))
                .build();
    }

    private static Object payload(String kind) {
        Map<String, Object> map = new TreeMap<>();
        map.put("k", "v");
        map.put("n", 1);
        return switch (kind) {
            case "null" -> null;
            case "text" -> "\"\\/\b\f\n\r\t\u0001\u001f\u007f\u2028\u00e9\uD83D\uDE00";
            case "int" -> 7;
            case "double" -> 1.5;
            case "large" -> 1.25e10;
            case "small" -> -1e-5;
            case "bool" -> true;
            case "long" -> 7L;
            case "float" -> 0.1f;
            case "biginteger" -> new java.math.BigInteger("18446744073709551615");
            case "bytes" -> new byte[] {1, 2, 3};
            case "list" -> new ArrayList<>(List.of("x", 1));
            case "map" -> map;
            case "bean" -> new Details();
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static String ids(Collection<ServiceInstance<Object>> instances) {
        return CuratorPeer.sorted(instances.stream().map(ServiceInstance::getId).toList());
    }
}
