"""pymemcache: one client, a pool, and its use by Django's cache."""
import json
import os
import threading
import time

from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient

SERVER = ("127.0.0.1", int(os.environ["MEMCACHED_PORT"]))


class Serde:
    def serialize(self, key, value):
        return (value, 1) if isinstance(value, bytes) else (json.dumps(value).encode(), 2)

    def deserialize(self, key, value, flags):
        return value if flags == 1 else json.loads(value)


def one(client):
    client.flush_all()
    assert client.set("a", {"x": [1, 2]}) and client.get("a") == {"x": [1, 2]}
    assert client.get("absent", "default") == "default"
    assert client.add("a", 1, noreply=False) is False
    assert client.replace("absent", 1, noreply=False) is False
    # The flags mark these as bytes.
    assert client.set("bytes", b"\x00\r\n\xff") and client.get("bytes") == b"\x00\r\n\xff"
    assert client.append("bytes", b"end", noreply=False) and client.get("bytes") == b"\x00\r\n\xffend"
    values = {f"key:{at}": at for at in range(500)}
    assert client.set_many(values) == []
    assert client.get_many(values) == values
    value, cas = client.gets("key:1")
    assert client.cas("key:1", 7, cas) is True
    assert client.cas("key:1", 8, cas) is False
    assert client.cas("absent", 8, cas) is None
    assert client.set("count", b"10") and client.incr("count", 5) == 15 and client.decr("count", 20) == 0
    assert client.incr("absent", 1) is None
    assert client.touch("count", expire=100, noreply=False)
    # Memcached pads a shorter number with blanks.
    assert client.get("count").strip() == b"0"
    assert client.delete("count", noreply=False) and client.get("count") is None
    client.set("short", 1, expire=1)
    time.sleep(2.1)
    assert client.get("short") is None
    large = bytes(range(256)) * 3000
    assert client.set("large", large) and client.get("large") == large
    assert client.version().startswith(b"1.6")
    assert int(client.stats()[b"curr_items"]) >= 500


def many():
    pool = PooledClient(SERVER, serde=Serde(), max_pool_size=4)
    pool.set("counter", b"0")

    def count():
        for _ in range(250):
            pool.incr("counter", 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert pool.get("counter") == b"1000"


one(Client(SERVER, serde=Serde()))
one(HashClient([SERVER], serde=Serde()).clients[f"{SERVER[0]}:{SERVER[1]}"])
many()
