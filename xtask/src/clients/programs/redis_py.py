"""redis-py, with blocking sockets and with asyncio."""
import asyncio
import os
import threading
import time

import redis
import redis.asyncio

PORT = int(os.environ["PORT"])


def blocking(protocol):
    r = redis.Redis(port=PORT, decode_responses=True, protocol=protocol)
    r.flushall()
    assert r.ping()
    # Pipelines and transactions.
    with r.pipeline(transaction=False) as pipe:
        for at in range(1000):
            pipe.set(f"key:{at}", at)
        assert pipe.execute() == [True] * 1000

    def move(pipe):
        value = int(pipe.get("key:1"))
        pipe.multi()
        pipe.decrby("key:1", value)
        pipe.incrby("key:2", value)

    assert r.transaction(move, "key:1", "key:2") == [0, 3]
    # Every type.
    r.hset("h", mapping={"a": 1, "b": 2})
    assert r.hgetall("h") == {"a": "1", "b": "2"}
    r.rpush("l", "x", "y", "z")
    assert r.lrange("l", 0, -1) == ["x", "y", "z"]
    r.sadd("s", "m", "n")
    assert r.smembers("s") == {"m", "n"}
    r.zadd("z", {"one": 1, "two": 2.5})
    # Plain tuples or lists, depending on the protocol.
    assert [list(pair) for pair in r.zrange("z", 0, -1, withscores=True)] == [["one", 1.0], ["two", 2.5]]
    assert r.zscore("z", "two") == 2.5
    r.geoadd("g", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"))
    assert 166 < r.geodist("g", "Palermo", "Catania", unit="km") < 167
    r.pfadd("p", *range(100))
    assert 95 < r.pfcount("p") < 105
    r.set("e", 1, px=40)
    time.sleep(0.1)
    assert r.get("e") is None
    # SCAN returns all of them.
    assert sum(1 for _ in r.scan_iter("key:*", count=100)) == 1000
    assert {field for field, _ in r.hscan_iter("h")} == {"a", "b"}
    # Publishing and subscribing.
    listener = r.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("c")
    listener.psubscribe("p*")
    while r.pubsub_numpat() == 0:
        time.sleep(0.01)
    assert r.publish("c", "one") == 1 and r.publish("pq", "two") == 1
    got = []
    until = time.time() + 5
    while len(got) < 2 and time.time() < until:
        message = listener.get_message(timeout=1)
        got += [message["data"]] if message else []
    assert got == ["one", "two"], got
    listener.close()
    # Blocking commands.
    threading.Timer(0.1, lambda: redis.Redis(port=PORT).rpush("queue", "job")).start()
    assert tuple(r.blpop("queue", timeout=5)) == ("queue", "job")
    assert r.blpop("queue", timeout=0.05) is None
    # A consumer group of a stream.
    r.xgroup_create("stream", "group", mkstream=True)
    ids = [r.xadd("stream", {"n": n}) for n in range(10)]
    read = r.xreadgroup("group", "me", {"stream": ">"}, count=6)
    entries = read[0][1] if isinstance(read, list) else read["stream"][0]
    assert [entry[0] for entry in entries] == ids[:6]
    assert r.xack("stream", "group", *ids[:4]) == 4
    assert r.xpending("stream", "group")["pending"] == 2
    assert r.xautoclaim("stream", "group", "other", 0)[1][0][0] == ids[4]
    assert r.xinfo_groups("stream")[0]["lag"] == 4
    # An administrator's commands.
    assert r.info()["redis_version"] and r.config_get("maxmemory") and r.client_list()
    assert r.slowlog_get() is not None and r.role()[0] in ("master", b"master")
    assert r.latency_latest() == [] and "keys.count" in r.memory_stats()
    try:
        r.incr("l")
        raise AssertionError("no error")
    except redis.ResponseError as error:
        assert "WRONGTYPE" in str(error)
    r.close()


def copies():
    """A cached copy is invalidated. The client's own cache requires a server of version 7.4."""
    r = redis.Redis(port=PORT, decode_responses=True, protocol=3, single_connection_client=True)
    told = []
    r.connection._parser.set_invalidation_push_handler(told.append)
    assert r.execute_command("CLIENT", "TRACKING", "ON") in ("OK", b"OK", True)
    r.get("copy")
    redis.Redis(port=PORT).set("copy", "2")
    until = time.time() + 5
    while not told and time.time() < until:
        r.ping()
    assert told and told[0][1] in (["copy"], [b"copy"]), told
    r.close()


async def asynchronous():
    r = redis.asyncio.Redis(port=PORT, decode_responses=True)
    await asyncio.gather(*(r.incr("count") for _ in range(50)))
    assert await r.get("count") == "50"
    async with r.pipeline(transaction=True) as pipe:
        assert await pipe.set("a", 1).incr("a").get("a").execute() == [True, 2, "2"]
    async with r.pubsub() as listener:
        await listener.subscribe("c")
        assert (await listener.get_message(timeout=5))["type"] == "subscribe"
        await r.publish("c", "hello")
        message = None
        while message is None:
            message = await listener.get_message(ignore_subscribe_messages=True, timeout=5)
        assert message["data"] == "hello"

    async def push():
        await asyncio.sleep(0.05)
        await r.lpush("later", "x")

    popped, _ = await asyncio.gather(r.brpop("later", timeout=5), push())
    assert tuple(popped) == ("later", "x")
    assert len([key async for key in r.scan_iter("key:*")]) == 1000
    await r.aclose()


for protocol in (2, 3):
    blocking(protocol)
copies()
asyncio.run(asynchronous())
