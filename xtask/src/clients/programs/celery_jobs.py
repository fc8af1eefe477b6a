"""Celery: jobs that are acknowledged late, so that another worker does the jobs of a killed one."""
import os
import signal
import subprocess
import sys
import time

import redis
from celery import Celery

PORT = int(os.environ["PORT"])
URL = f"redis://127.0.0.1:{PORT}/1"
app = Celery("celery_jobs", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": 3, "unacked_restore_limit": 100},
    broker_connection_retry_on_startup=True,
)


@app.task
def square(number):
    return number * number


@app.task
def slow(number):
    redis.Redis(port=PORT).incr("begun")
    time.sleep(1.5)
    return number


def worker():
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", "celery", "-A", "celery_jobs", "worker", "--concurrency", "2", "--loglevel", "INFO"]
    log = open(os.environ["LOG"], "a")
    return subprocess.Popen(command, cwd=here, start_new_session=True, stdout=log, stderr=subprocess.STDOUT)


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    from celery_jobs import slow, square

    connection = redis.Redis(port=PORT)
    connection.flushall()
    one = worker()
    try:
        results = [square.delay(at) for at in range(30)]
        assert [result.get(timeout=60) for result in results] == [at * at for at in range(30)]
        late = [slow.delay(at) for at in range(4)]
        until = time.time() + 30
        while int(connection.get("begun") or 0) < 1:
            assert time.time() < until, "never: a job that began"
            time.sleep(0.05)
    finally:
        kill(one)
    # A worker looks for jobs of dead ones as it starts, and then each hundred seconds: when it starts, they must be visible.
    time.sleep(4)
    two = worker()
    try:
        assert sorted(result.get(timeout=90) for result in late) == [0, 1, 2, 3]
    finally:
        kill(two)
