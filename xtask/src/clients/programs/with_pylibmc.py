"""pylibmc, which is libmemcached: text and binary protocol."""
import os
import time

import pylibmc

SERVER = f"127.0.0.1:{os.environ['MEMCACHED_PORT']}"

for binary in (False, True):
    client = pylibmc.Client([SERVER], binary=binary, behaviors={"cas": True, "tcp_nodelay": True})
    client.flush_all()
    assert client.set("a", {"x": (1, 2)}) and client.get("a") == {"x": (1, 2)}
    assert client.get("absent") is None
    assert not client.add("a", 1) and client.replace("a", 2) and client.get("a") == 2
    values = {f"key:{at}": "v" * at for at in range(300)}
    assert client.set_multi(values) == []
    assert client.get_multi(list(values) + ["absent"]) == values
    value, cas = client.gets("key:7")
    assert client.cas("key:7", "new", cas) and not client.cas("key:7", "newer", cas)
    assert client.get("key:7") == "new"
    client.set("count", 10)
    assert client.incr("count", 5) == 15 and client.decr("count", 20) == 0
    client.set("text", "ab")
    assert client.append("text", "cd") and client.prepend("text", "_") and client.get("text") == "_abcd"
    assert client.touch("text", 100)
    assert client.delete("text") and client.get("text") is None
    # The client compresses the value and marks that in the flags.
    large = "compressible " * 50_000
    assert client.set("large", large, min_compress_len=1000) and client.get("large") == large
    client.set("short", 1, time=1)
    time.sleep(2.1)
    assert client.get("short") is None
    (_, stats), = client.get_stats()
    assert int(stats["curr_items"]) >= 300
