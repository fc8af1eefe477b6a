// Redisson: values, counters, maps, sets, queues, streams, batches, messages; and what it does by scripts: locks,
// semaphores, a rate limit, a map whose entries expire, delayed elements. Then the server is killed (kill -9) under locks.
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

    static int number;

    static void byScripts(RedissonClient r) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4, work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        RLock lock = r.getLock("lock");
        List<Future<?>> adding = new ArrayList<>();
        for (int at = 0; at < 4; at++) adding.add(threads.submit(() -> {
            for (int n = 0; n < 100; n++) {
                lock.lock(20, TimeUnit.SECONDS);
                try { number++; } finally { lock.unlock(); }
            }
        }));
        for (Future<?> each : adding) each.get(60, TimeUnit.SECONDS);
        equal(number, 400);
        lock.lock();
        lock.lock();
        equal(lock.getHoldCount(), 2);
        equal(threads.submit(() -> lock.tryLock(50, TimeUnit.MILLISECONDS)).get(), false);
        lock.unlock();
        lock.unlock();
        equal(lock.isLocked(), false);
        RReadWriteLock both = r.getReadWriteLock("both");
        both.readLock().lock();
        equal(threads.submit(() -> both.readLock().tryLock()).get(), true);
        equal(threads.submit(() -> both.writeLock().tryLock()).get(), false);
        both.readLock().unlock();
        RLock fair = r.getFairLock("fair");
        fair.lock();
        Future<Boolean> waits = threads.submit(() -> fair.tryLock(10, TimeUnit.SECONDS));
        Thread.sleep(50);
        fair.unlock();
        equal(waits.get(), true);
        RSemaphore semaphore = r.getSemaphore("semaphore");
        semaphore.trySetPermits(3);
        equal(semaphore.tryAcquire(2), true);
        equal(semaphore.tryAcquire(2), false);
        semaphore.release(2);
        equal(semaphore.availablePermits(), 3);
        RCountDownLatch latch = r.getCountDownLatch("latch");
        latch.trySetCount(2);
        threads.submit(() -> { latch.countDown(); latch.countDown(); });
        equal(latch.await(10, TimeUnit.SECONDS), true);
        RRateLimiter limit = r.getRateLimiter("limit");
        limit.trySetRate(RateType.OVERALL, 5, Duration.ofSeconds(30));
        int passed = 0;
        for (int at = 0; at < 20; at++) if (limit.tryAcquire()) passed++;
        equal(passed, 5);
        RMapCache<String, String> cache = r.getMapCache("cache");
        cache.put("short", "x", 100, TimeUnit.MILLISECONDS);
        cache.put("long", "y", 60, TimeUnit.SECONDS);
        equal(cache.putIfAbsent("long", "z"), "y");
        Thread.sleep(150);
        equal(cache.get("short"), null);
        equal(cache.get("long"), "y");
        RSetCache<String> members = r.getSetCache("members");
        equal(members.add("m", 60, TimeUnit.SECONDS), true);
        equal(members.add("m"), false);
        RBlockingQueue<String> target = r.getBlockingQueue("target");
        RDelayedQueue<String> delayed = r.getDelayedQueue(target);
        delayed.offer("later", 200, TimeUnit.MILLISECONDS);
        equal(target.poll(), null);
        equal(target.poll(10, TimeUnit.SECONDS), "later");
        delayed.destroy();
        RMap<String, Integer> map = r.getMap("scripted");
        equal(map.put("a", 1), null);
        equal(map.replace("a", 1, 2), true);
        equal(map.remove("a", 1), false);
        RBloomFilter<String> filter = r.getBloomFilter("filter");
        filter.tryInit(1000, 0.01);
        filter.add("here");
        equal(filter.contains("here"), true);
        RBucket<String> bucket = r.getBucket("compared");
        equal(bucket.compareAndSet(null, "one"), true);
        equal(bucket.compareAndSet("two", "three"), false);
        equal(bucket.getAndSet("four"), "one");
        equal(r.getScript(StringCodec.INSTANCE).eval(RScript.Mode.READ_ONLY, "return 'said'", RScript.ReturnType.VALUE), "said");
    }

    interface Work { void run() throws Exception; }

    // A command that the kill interrupted is not repeated by itself.
    static void untilDone(Work work) throws Exception {
        long end = System.nanoTime() + 60_000_000_000L;
        while (true) {
            try {
                work.run();
                return;
            } catch (org.redisson.client.RedisException | IllegalMonitorStateException failed) {
                if (System.nanoTime() > end) throw failed;
                Thread.sleep(50);
            }
        }
    }

    static void withKilledServer(RedissonClient r) throws Exception {
        RLock lock = r.getLock("killed:lock");
        RMap<String, String> done = r.getMap("killed:done", StringCodec.INSTANCE);
        ExecutorService threads = Executors.newFixedThreadPool(4, work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        List<Future<?>> adding = new ArrayList<>();
        for (int at = 0; at < 4; at++) {
            int thread = at;
            adding.add(threads.submit(() -> {
                for (int n = 0; n < 200; n++) {
                    String name = thread + " " + n;
                    untilDone(() -> {
                        // A lock whose owner did not come to release it is free after two seconds.
                        lock.lock(2, TimeUnit.SECONDS);
                        try { done.put(name, "done"); } finally { lock.unlock(); }
                    });
                }
                return null;
            }));
        }
        long end = System.nanoTime() + 60_000_000_000L;
        while (done.size() < 200) {
            if (System.nanoTime() > end) throw new AssertionError("never: 200 entries");
            Thread.sleep(10);
        }
        new ProcessBuilder("kill", "-9", System.getenv("SERVER_PID")).start().waitFor();
        Thread.sleep(200);
        Process server = new ProcessBuilder(System.getenv("SERVER_COMMAND").split("\n"))
            .redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try {
            for (Future<?> each : adding) each.get(120, TimeUnit.SECONDS);
            untilDone(() -> equal(done.readAllMap().size(), 800));
            untilDone(() -> {
                lock.lock(2, TimeUnit.SECONDS);
                lock.unlock();
            });
            equal(lock.isLocked(), false);
        } finally {
            server.destroyForcibly();
        }
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
            byScripts(r);
            if (System.getenv("SERVER_COMMAND") != null) withKilledServer(r);
        } finally {
            r.shutdown();
        }
        System.out.println("Redisson: all right");
        System.exit(0);
    }
}
