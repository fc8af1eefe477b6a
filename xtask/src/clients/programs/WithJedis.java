// Jedis: pipelines, transactions, messages, blocking commands, consumer groups of streams, SCAN.
import java.util.*;
import java.util.concurrent.*;
import redis.clients.jedis.*;
import redis.clients.jedis.params.*;
import redis.clients.jedis.resps.*;

public class WithJedis {
    static void equal(Object got, Object wanted) {
        if (!String.valueOf(got).equals(String.valueOf(wanted))) throw new AssertionError("got " + got + ", wanted " + wanted);
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(System.getenv("PORT"));
        try (Jedis r = new Jedis("127.0.0.1", port)) {
            r.flushAll();
            Pipeline pipe = r.pipelined();
            for (int at = 0; at < 1000; at++) pipe.set("key:" + at, "" + at);
            equal(pipe.syncAndReturnAll().stream().filter("OK"::equals).count(), 1000);
            r.watch("n");
            Transaction multi = r.multi();
            multi.incr("n");
            multi.incrBy("n", 5);
            equal(multi.exec(), List.of(1L, 6L));
            r.hset("h", Map.of("a", "1", "b", "2"));
            equal(new TreeMap<>(r.hgetAll("h")), "{a=1, b=2}");
            r.zadd("z", Map.of("one", 1.0, "two", 2.5));
            equal(r.zrange("z", 0, -1), "[one, two]");
            int seen = 0;
            String cursor = ScanParams.SCAN_POINTER_START;
            do {
                ScanResult<String> page = r.scan(cursor, new ScanParams().match("key:*").count(100));
                seen += page.getResult().size();
                cursor = page.getCursor();
            } while (!cursor.equals("0"));
            equal(seen, 1000);
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            JedisPubSub listener = new JedisPubSub() {
                public void onSubscribe(String channel, int count) { got.add("listens"); }
                public void onMessage(String channel, String text) { got.add(text); }
            };
            Thread thread = new Thread(() -> {
                try (Jedis own = new Jedis("127.0.0.1", port)) { own.subscribe(listener, "c"); }
            });
            thread.start();
            equal(got.poll(5, TimeUnit.SECONDS), "listens");
            r.publish("c", "hello");
            equal(got.poll(5, TimeUnit.SECONDS), "hello");
            listener.unsubscribe();
            thread.join(5000);
            new Thread(() -> {
                try (Jedis own = new Jedis("127.0.0.1", port)) { Thread.sleep(50); own.rpush("queue", "job"); } catch (InterruptedException gone) { }
            }).start();
            equal(r.blpop(5, "queue"), "[queue, job]");
            r.xgroupCreate("stream", "group", new StreamEntryID(0, 0), true);
            StreamEntryID id = r.xadd("stream", StreamEntryID.NEW_ENTRY, Map.of("a", "1"));
            var read = r.xreadGroup("group", "me", new XReadGroupParams().count(5), Map.of("stream", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));
            equal(read.get(0).getValue().get(0).getID(), id);
            equal(r.xack("stream", "group", id), 1);
            try {
                r.incr("h");
                throw new AssertionError("no error");
            } catch (redis.clients.jedis.exceptions.JedisDataException error) {
                if (!error.getMessage().contains("WRONGTYPE")) throw error;
            }
        }
    }
}
