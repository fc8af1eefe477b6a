"""redis-py over TLS with a client certificate, with users: blocking sockets, pools, asyncio."""
import asyncio
import os

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

TLS = os.environ["TLS"]
AT = dict(
    host="localhost",
    port=int(os.environ["TLS_PORT"]),
    ssl=True,
    ssl_ca_certs=f"{TLS}/ca.crt",
    decode_responses=True,
)
WITH = dict(AT, ssl_certfile=f"{TLS}/ada.crt", ssl_keyfile=f"{TLS}/ada.key")


# A client that is to be refused does not try again.
ONCE = dict(retry=Retry(NoBackoff(), 0))


def refused(call, error):
    try:
        call()
    except error:
        return
    raise AssertionError(f"wanted {error}")


def blocking(protocol):
    r = redis.Redis(protocol=protocol, **WITH)
    r.flushall()
    assert r.ping()
    if os.environ.get("BY_CERTIFICATE"):
        assert r.acl_whoami() == "ada"
    large = "x" * (3 << 20)
    r.set("large", large)
    assert r.get("large") == large
    with r.pipeline() as pipe:
        for at in range(5000):
            pipe.set(f"k{at}", at)
        assert pipe.execute() == [True] * 5000
    listener = r.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("c")
    while r.publish("c", "m") == 0:
        pass
    got = None
    while not got:
        got = listener.get_message(timeout=5)
    assert got["data"] == "m", got
    # Without a certificate, and with a server that is not the one of the certificate's authority.
    refused(lambda: redis.Redis(protocol=protocol, **AT, **ONCE).ping(), redis.exceptions.ConnectionError)
    wrong = dict(WITH, ssl_ca_certs=f"{TLS}/ada.crt")
    refused(lambda: redis.Redis(protocol=protocol, **wrong, **ONCE).ping(), redis.exceptions.ConnectionError)
    # Users.
    r.acl_setuser(
        "bob", enabled=True, passwords=["+pw"], keys=["b:*"], channels=["news"], commands=["+@read", "+publish", "+acl|whoami"]
    )
    bob = redis.Redis(protocol=protocol, username="bob", password="pw", **WITH)
    assert bob.acl_whoami() == "bob"
    assert bob.get("b:1") is None and bob.publish("news", "x") == 0
    refused(lambda: bob.get("a"), redis.exceptions.NoPermissionError)
    refused(lambda: bob.set("b:1", 1), redis.exceptions.NoPermissionError)
    refused(lambda: bob.publish("other", "x"), redis.exceptions.NoPermissionError)
    wrong = redis.Redis(protocol=protocol, username="bob", password="no", **WITH)
    refused(wrong.ping, redis.exceptions.AuthenticationError)
    assert r.acl_dryrun("bob", "get", "b:1") == "OK"
    assert {entry["username"] for entry in r.acl_log()} == {"bob"}
    assert r.acl_log_reset()
    user = r.acl_getuser("bob")
    assert "on" in user["flags"] and user["keys"] == ["~b:*"] and user["channels"] == ["&news"], user
    assert r.acl_deluser("bob") == 1 and "bob" not in r.acl_users()
    refused(lambda: bob.get("b:1"), redis.exceptions.RedisError)


async def asynchronous(protocol):
    r = redis.asyncio.Redis(protocol=protocol, **WITH)
    assert await r.ping()
    assert await asyncio.gather(*(r.set(f"a{at}", at) for at in range(50))) == [True] * 50
    await r.aclose()


for protocol in (2, 3):
    blocking(protocol)
    asyncio.run(asynchronous(protocol))
