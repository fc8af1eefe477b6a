import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import net.rubyeye.xmemcached.CommandFactory;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.command.TextCommandFactory;
import net.rubyeye.xmemcached.utils.AddrUtil;

/** xmemcached, with the text and the binary protocol. */
public class WithXmemcached {
    static void demand(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void run(CommandFactory commands) throws Exception {
        var builder = new XMemcachedClientBuilder(AddrUtil.getAddresses("127.0.0.1:" + System.getenv("MEMCACHED_PORT")));
        builder.setCommandFactory(commands);
        builder.setConnectionPoolSize(2);
        builder.setOpTimeout(5000);
        MemcachedClient client = builder.build();
        client.flushAll();
        demand(client.set("a", 0, "one") && client.get("a").equals("one"), "set and get");
        demand(client.get("absent") == null, "absent");
        demand(!client.add("a", 0, "two") && !client.replace("absent", 0, "two"), "conditions");
        List<String> keys = new ArrayList<>();
        for (int at = 0; at < 300; at++) {
            keys.add("key:" + at);
            demand(client.set("key:" + at, 0, at), "set many");
        }
        Map<String, Integer> found = client.get(keys);
        demand(found.size() == 300 && found.get("key:299") == 299, "many at once");
        var before = client.<Integer>gets("key:7");
        demand(client.cas("key:7", 0, 70, before.getCas()) && !client.cas("key:7", 0, 71, before.getCas()), "cas");
        demand(client.incr("n", 5, 10) == 10 && client.incr("n", 5, 10) == 15 && client.decr("n", 20, 0) == 0, "counters");
        demand(client.append("a", "+") && client.prepend("a", "-") && client.get("a").equals("-one+"), "append");
        demand(client.touch("a", 100) && client.delete("a") && client.get("a") == null, "touch and delete");
        demand(client.set("short", 1, 1), "set short");
        Thread.sleep(2100);
        demand(client.get("short") == null, "expired");
        demand(!client.getVersions().isEmpty(), "version");
        client.shutdown();
    }

    public static void main(String[] arguments) {
        try {
            run(new TextCommandFactory());
            run(new BinaryCommandFactory());
            System.exit(0);
        } catch (Throwable wrong) {
            wrong.printStackTrace();
            // The client's threads would keep the process alive.
            System.exit(1);
        }
    }
}
