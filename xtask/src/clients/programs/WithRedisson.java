// Redisson's parts that need no scripts: values, counters, maps, sets, queues, streams, batches, messages.
// Its locks need scripts.
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.api.stream.*;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class WithRedisson {
    static void equal(Object got, Object wanted) {
        if (!String.valueOf(got).equals(String.valueOf(wanted))) throw new AssertionError("got " + got + ", wanted " + wanted);
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + System.getenv("PORT"));
        RedissonClient r = Redisson.create(config);
        try {
            r.getKeys().flushall();
            RBucket<List<String>> bucket = r.getBucket("bucket");
            bucket.set(List.of("a", "b"), Duration.ofMinutes(5));
            equal(bucket.get(), "[a, b]");
            equal(bucket.remainTimeToLive() > 290_000, true);
            equal(bucket.setIfAbsent(List.of()), false);
            RAtomicLong counter = r.getAtomicLong("counter");
            ExecutorService threads = Executors.newFixedThreadPool(4);
            List<Future<?>> adding = new ArrayList<>();
            for (int at = 0; at < 4; at++) adding.add(threads.submit(() -> { for (int n = 0; n < 500; n++) counter.incrementAndGet(); }));
            for (Future<?> each : adding) each.get(30, TimeUnit.SECONDS);
            threads.shutdown();
            equal(counter.get(), 2000);
            RMap<String, Integer> map = r.getMap("map");
            for (int at = 0; at < 1000; at++) map.fastPut("field" + at, at);
            equal(map.size(), 1000);
            equal(map.get("field77"), 77);
            equal(map.readAllMap().size(), 1000);
            int seen = 0;
            for (var entry : map.entrySet()) { equal(entry.getKey(), "field" + entry.getValue()); seen++; }
            equal(seen, 1000);
            equal(map.fastRemove("field1", "field2", "none"), 2);
            RSet<String> set = r.getSet("set");
            set.add("x");
            equal(set.add("x"), false);
            equal(set.contains("x"), true);
            RScoredSortedSet<String> scores = r.getScoredSortedSet("scores");
            scores.add(2.5, "two");
            scores.add(-1, "one");
            equal(scores.valueRange(0, -1), "[one, two]");
            equal(scores.rank("two"), 1);
            equal(scores.addScore("one", 10), 9.0);
            RBlockingQueue<String> queue = r.getBlockingQueue("queue");
            Future<String> taken = ForkJoinPool.commonPool().submit(() -> queue.poll(10, TimeUnit.SECONDS));
            Thread.sleep(50);
            queue.offer("job");
            equal(taken.get(15, TimeUnit.SECONDS), "job");
            RTopic topic = r.getTopic("topic");
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            int listener = topic.addListener(String.class, (channel, text) -> got.add(channel + " " + text));
            equal(topic.publish("hello"), 1);
            equal(got.poll(5, TimeUnit.SECONDS), "topic hello");
            topic.removeListener(listener);
            RBatch batch = r.createBatch(BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.REDIS_WRITE_ATOMIC));
            batch.getBucket("one", StringCodec.INSTANCE).setAsync("1");
            batch.getAtomicLong("one").addAndGetAsync(41);
            equal(batch.execute().getResponses().get(1), 42);
            RStream<String, String> stream = r.getStream("stream", StringCodec.INSTANCE);
            stream.createGroup(StreamCreateGroupArgs.name("group").makeStream());
            StreamMessageId id = stream.add(StreamAddArgs.entry("a", "1"));
            var read = stream.readGroup("group", "me", StreamReadGroupArgs.neverDelivered().count(5));
            equal(read, Map.of(id, Map.of("a", "1")));
            equal(stream.ack("group", id), 1);
            RGeo<String> geo = r.getGeo("geo");
            geo.add(13.361389, 38.115556, "Palermo");
            geo.add(15.087269, 37.502669, "Catania");
            equal(Math.round(geo.dist("Palermo", "Catania", GeoUnit.KILOMETERS)), 166);
            RHyperLogLog<String> log = r.getHyperLogLog("log");
            log.addAll(List.of("a", "b", "c"));
            equal(log.count(), 3);
            equal(r.getKeys().deleteByPattern("s*"), 3);
        } finally {
            r.shutdown();
        }
        System.out.println("Redisson: all right");
        System.exit(0);
    }
}
