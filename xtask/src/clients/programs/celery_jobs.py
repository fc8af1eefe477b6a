"""Celery: jobs that are acknowledged late, so that another worker does the jobs of a killed one; and a server that is killed
(kill -9) at work: no job is lost, and none is done twice but those that were at work."""
import os
import signal
import subprocess
import sys
import time

import redis
from celery import Celery

PORT = int(os.environ["PORT"])
NOTED, AT_ONCE = 120, 2
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


@app.task
def note(number):
    connection = redis.Redis(port=PORT)
    # The server may be away for a moment.
    for _ in range(100):
        try:
            connection.hincrby("done", number, 1)
            break
        except redis.exceptions.ConnectionError:
            time.sleep(0.1)
    time.sleep(0.02)


def noted():
    try:
        return {int(at): int(times) for at, times in redis.Redis(port=PORT).hgetall("done").items()}
    except redis.exceptions.ConnectionError:
        return {}


def wait(what, happened, seconds=90):
    until = time.time() + seconds
    while not happened():
        assert time.time() < until, f"never: {what}; {sorted(noted())}"
        time.sleep(0.05)


def kill_server():
    """All jobs are done once, though the server is killed while a worker is at work."""
    for at in range(NOTED):
        note.delay(at)
    at_work = worker()
    started = [at_work]
    try:
        wait("a third of the jobs", lambda: len(noted()) >= NOTED // 3)
        os.kill(int(os.environ["SERVER_PID"]), signal.SIGKILL)
        time.sleep(0.5)
        started.append(subprocess.Popen(os.environ["SERVER_COMMAND"].split("\n"), start_new_session=True))
        wait("two thirds", lambda: len(noted()) >= NOTED * 2 // 3)
        # Another worker, which looks for what the first had taken and not acknowledged.
        time.sleep(4)
        started.append(worker())
        wait("all jobs", lambda: len(noted()) == NOTED)
        twice = [at for at, times in noted().items() if times > 1]
        assert len(twice) <= 2 * AT_ONCE, f"done twice: {twice}"
    finally:
        for process in started:
            kill(process)


def worker():
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", "celery", "-A", "celery_jobs", "worker", "--concurrency", str(AT_ONCE), "--loglevel", "INFO"]
    log = open(os.environ["LOG"], "a")
    return subprocess.Popen(command, cwd=here, start_new_session=True, stdout=log, stderr=subprocess.STDOUT)


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    from celery_jobs import kill_server, slow, square

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
    if "SERVER_COMMAND" in os.environ:
        kill_server()
