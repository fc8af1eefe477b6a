import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.internal.OperationFuture;

/** spymemcached, with the text and the binary protocol. */
public class WithSpymemcached {
    static void demand(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static boolean done(OperationFuture<Boolean> future) throws Exception {
        return future.get(5, TimeUnit.SECONDS);
    }

    static void run(ConnectionFactoryBuilder.Protocol protocol) throws Exception {
        var factory = new ConnectionFactoryBuilder().setProtocol(protocol).setOpTimeout(5000).build();
        var client = new MemcachedClient(factory, AddrUtil.getAddresses("127.0.0.1:" + System.getenv("MEMCACHED_PORT")));
        demand(done(client.flush()), "flush");
        demand(done(client.set("a", 0, List.of("x", "y"))), "set");
        demand(client.get("a").equals(List.of("x", "y")), "an object of Java comes back");
        demand(client.get("absent") == null, "absent");
        demand(!done(client.add("a", 0, 1)) && !done(client.replace("absent", 0, 1)), "conditions");
        Map<String, Object> wanted = new HashMap<>();
        for (int at = 0; at < 500; at++) wanted.put("key:" + at, at);
        for (var pair : wanted.entrySet()) client.set(pair.getKey(), 0, pair.getValue());
        demand(client.getBulk(wanted.keySet()).equals(wanted), "many at once");
        CASValue<Object> value = client.gets("key:7");
        demand(client.cas("key:7", value.getCas(), 70) == CASResponse.OK, "cas");
        demand(client.cas("key:7", value.getCas(), 71) == CASResponse.EXISTS, "an old number");
        demand(client.cas("absent", value.getCas(), 71) == CASResponse.NOT_FOUND, "no item");
        demand(client.incr("n", 5, 10) == 10 && client.incr("n", 5, 10) == 15 && client.decr("n", 20) == 0, "counters");
        demand(done(client.set("text", 0, "b")), "set text");
        demand(done(client.append("text", "c")) && done(client.prepend("text", "a")), "append");
        demand(client.get("text").equals("abc"), "appended");
        demand(done(client.touch("text", 100)), "touch");
        if (protocol == ConnectionFactoryBuilder.Protocol.BINARY)
            demand(client.getAndTouch("text", 100).getValue().equals("abc"), "get and touch");
        demand(done(client.delete("text")) && client.get("text") == null, "delete");
        var large = new byte[500_000];
        for (int at = 0; at < large.length; at++) large[at] = (byte) (at * 31 % 251);
        demand(done(client.set("large", 0, large)), "set large");
        demand(java.util.Arrays.equals((byte[]) client.get("large"), large), "large");
        demand(done(client.set("short", 1, 1)), "set short");
        Thread.sleep(2100);
        demand(client.get("short") == null, "expired");
        for (var stats : client.getStats().values())
            demand(Integer.parseInt(stats.get("curr_items")) >= 500, "stats");
        for (var version : client.getVersions().values()) demand(version.startsWith("1.6"), version);
        client.shutdown(1, TimeUnit.SECONDS);
    }

    public static void main(String[] arguments) {
        try {
            run(ConnectionFactoryBuilder.Protocol.TEXT);
            run(ConnectionFactoryBuilder.Protocol.BINARY);
            System.exit(0);
        } catch (Throwable wrong) {
            wrong.printStackTrace();
            // The client's threads would keep the process alive.
            System.exit(1);
        }
    }
}
