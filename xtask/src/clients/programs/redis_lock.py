"""redis-py's Lock and Redlock's rules: held by one, released by its owner alone, free after its holder is killed."""
import os
import signal
import subprocess
import sys
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError

PORT = int(os.environ["PORT"])
WORKERS, ROUNDS = 4, 100


def work():
    """Adds to a number in two steps, which only the lock keeps together."""
    own = redis.Redis(port=PORT)
    for _ in range(ROUNDS):
        with own.lock("guard", timeout=10, sleep=0.001):
            value = int(own.get("number") or 0)
            own.set("number", value + 1)


def hold():
    own = redis.Redis(port=PORT)
    assert own.lock("held", timeout=1.5).acquire()
    own.set("is held", 1)
    time.sleep(60)


def start(what):
    return subprocess.Popen([sys.executable, __file__, what])


def main():
    connection = redis.Redis(port=PORT)
    connection.flushall()
    workers = [start("work") for _ in range(WORKERS)]
    assert [worker.wait(120) for worker in workers] == [0] * WORKERS
    assert connection.get("number") == b"%d" % (WORKERS * ROUNDS), connection.get("number")

    holder = start("hold")
    while not connection.get("is held"):
        time.sleep(0.01)
    lock = connection.lock("held", timeout=5)
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(blocking_timeout=0.2)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert lock.acquire(blocking_timeout=10)
    assert lock.owned() and lock.locked()
    assert lock.extend(5) and 5000 < connection.pttl("held") <= 10000
    assert lock.extend(3, replace_ttl=True) and connection.pttl("held") <= 3000
    assert lock.reacquire() and connection.pttl("held") > 3000
    # Another one has it now.
    connection.set("held", "other", px=60000)
    for change in (lock.release, lock.reacquire, lambda: lock.extend(5)):
        lock.local.token = lock.local.token or b"x"
        try:
            change()
            raise AssertionError("a lock of another was changed")
        except LockNotOwnedError:
            pass
    assert connection.get("held") == b"other"
    try:
        connection.lock("none").release()
        raise AssertionError("a lock that was not taken was released")
    except LockError:
        pass

    # Scripts by their digest, also after they were flushed, and in a pipeline.
    add = connection.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    assert add(["n"], [5]) == 5
    connection.script_flush()
    assert add(["n"], [5]) == 10
    with connection.pipeline() as pipe:
        add(["n"], [1], client=pipe)
        pipe.get("n")
        assert pipe.execute() == [11, b"11"]
    connection.function_load("#!lua name=lib\nredis.register_function('double', function(keys, args) return args[1] * 2 end)", True)
    assert connection.fcall("double", 0, 21) == 42
    assert [library[1] for library in connection.function_list()] == [b"lib"]


if __name__ == "__main__":
    {"work": work, "hold": hold}.get(sys.argv[-1], main)()
