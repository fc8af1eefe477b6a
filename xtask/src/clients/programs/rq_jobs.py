"""RQ: jobs of a worker that is killed at work."""
import os
import signal
import subprocess
import sys
import time

import redis
from rq import Queue, Retry

PORT = int(os.environ["PORT"])
connection = redis.Redis(port=PORT)
connection.flushall()
queue = Queue("jobs", connection=connection)


def worker():
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", "rq.cli", "worker", "jobs", "--url", f"redis://127.0.0.1:{PORT}", "--path", here]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.STDOUT, stdout=open(os.environ["LOG"], "a"))


def wait(what, happened, seconds=40):
    until = time.time() + seconds
    while not happened():
        assert time.time() < until, f"never: {what}"
        time.sleep(0.05)


if __name__ == "__main__":
    import rq_work

    one = worker()
    try:
        done = [queue.enqueue(rq_work.square, at) for at in range(20)]
        wait("twenty jobs", lambda: all(job.get_status(refresh=True) == "finished" for job in done))
        assert [job.return_value(refresh=True) for job in done] == [at * at for at in range(20)]
        failed = queue.enqueue(rq_work.fail)
        wait("a job that fails", lambda: failed.get_status(refresh=True) == "failed")
        slow = queue.enqueue(rq_work.slow, "slow", retry=Retry(max=2))
        wait("a job that began", lambda: connection.get("slow:begun") is not None)
    finally:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
    # Jobs queued meanwhile are there, and another worker does them.
    more = [queue.enqueue(rq_work.square, at) for at in range(5)]
    two = worker()
    try:
        wait("jobs after the kill", lambda: all(job.get_status(refresh=True) == "finished" for job in more))
        assert slow.get_status(refresh=True) in ("started", "queued", "failed", "finished")
    finally:
        os.killpg(two.pid, signal.SIGKILL)
        two.wait()
