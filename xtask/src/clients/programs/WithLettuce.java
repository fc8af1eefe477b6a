// Lettuce: overlapping commands, transactions, messages, blocking commands, consumer groups of streams, SCAN.
import io.lettuce.core.*;
import io.lettuce.core.pubsub.*;
import java.util.*;
import java.util.concurrent.*;

public class WithLettuce {
    static void equal(Object got, Object wanted) {
        if (!String.valueOf(got).equals(String.valueOf(wanted))) throw new AssertionError("got " + got + ", wanted " + wanted);
    }

    public static void main(String[] arguments) throws Exception {
        RedisClient client = RedisClient.create("redis://127.0.0.1:" + System.getenv("PORT"));
        var connection = client.connect();
        var other = client.connect().sync();
        var r = connection.sync();
        r.flushall();
        List<RedisFuture<String>> all = new ArrayList<>();
        for (int at = 0; at < 1000; at++) all.add(connection.async().set("key:" + at, "" + at));
        for (var one : all) equal(one.get(10, TimeUnit.SECONDS), "OK");
        r.multi();
        r.incr("n");
        r.incrby("n", 5);
        TransactionResult done = r.exec();
        equal(done.get(0), 1);
        equal(done.get(1), 6);
        r.hset("h", Map.of("a", "1", "b", "2"));
        equal(new TreeMap<>(r.hgetall("h")), "{a=1, b=2}");
        r.zadd("z", 1.0, "one");
        r.zadd("z", 2.5, "two");
        equal(r.zrange("z", 0, -1), "[one, two]");
        equal(ScanIterator.scan(r, ScanArgs.Builder.matches("key:*").limit(100)).stream().count(), 1000);
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        var listener = client.connectPubSub();
        listener.addListener(new RedisPubSubAdapter<String, String>() {
            public void message(String channel, String text) { got.add(text); }
        });
        listener.sync().subscribe("c");
        r.publish("c", "hello");
        equal(got.poll(5, TimeUnit.SECONDS), "hello");
        var popped = client.connect().async().blpop(5, "queue");
        Thread.sleep(50);
        other.rpush("queue", "job");
        equal(popped.get(5, TimeUnit.SECONDS).getValue(), "job");
        r.xgroupCreate(XReadArgs.StreamOffset.from("stream", "0"), "group", XGroupCreateArgs.Builder.mkstream());
        String id = r.xadd("stream", Map.of("a", "1"));
        var read = r.xreadgroup(Consumer.from("group", "me"), XReadArgs.StreamOffset.lastConsumed("stream"));
        equal(read.get(0).getId(), id);
        equal(r.xack("stream", "group", id), 1);
        try {
            r.incr("h");
            throw new AssertionError("no error");
        } catch (RedisCommandExecutionException error) {
            if (!error.getMessage().contains("WRONGTYPE")) throw error;
        }
        client.shutdown();
    }
}
