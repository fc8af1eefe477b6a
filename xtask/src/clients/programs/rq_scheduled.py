"""rq-scheduler: jobs at their times and repeated ones, while schedulers and the server are killed (kill -9): no job is lost,
and none is done twice but what was under way when something was killed. RQ's worker is at rest then: it would lose its job."""
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta

import redis
from rq import Queue
from rq_scheduler import Scheduler

PORT = int(os.environ["PORT"])
JOBS, REPEATED = 60, 4
HERE = os.path.dirname(os.path.abspath(__file__))
connection = redis.Redis(port=PORT)


def start(*words):
    command = [sys.executable, "-m", *words, "--url", f"redis://127.0.0.1:{PORT}", "--path", HERE]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.STDOUT, stdout=open(os.environ["LOG"], "a"))


def scheduler():
    return start("rq_scheduler.scripts.rqscheduler", "--interval", "0.2", "--verbose")


def worker():
    return start("rq.cli", "worker", "jobs")


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def done():
    try:
        return {int(at): int(times) for at, times in connection.hgetall("done").items()}
    except redis.exceptions.ConnectionError:
        return {}


def wait(what, happened, seconds=60):
    until = time.time() + seconds
    while not happened():
        assert time.time() < until, f"never: {what}; {sorted(done().items())}"
        time.sleep(0.05)


def restart_server():
    os.kill(int(os.environ["SERVER_PID"]), signal.SIGKILL)
    subprocess.Popen(os.environ["SERVER_COMMAND"].split("\n"), start_new_session=True)
    until = time.time() + 20
    while True:
        try:
            return connection.ping()
        except redis.exceptions.ConnectionError:
            assert time.time() < until, "the server does not come back"
            time.sleep(0.02)


if __name__ == "__main__":
    import rq_noted

    connection.flushall()
    jobs = Scheduler(queue=Queue("jobs", connection=connection), connection=connection, interval=1)
    now = datetime.utcnow()
    all_jobs = [jobs.enqueue_at(now + timedelta(seconds=at % 10), rq_noted.note, at) for at in range(JOBS)]
    jobs.schedule(now, rq_noted.note, args=[JOBS], interval=1, repeat=REPEATED)
    late = jobs.enqueue_in(timedelta(hours=1), rq_noted.note, JOBS + 1)
    dropped = jobs.enqueue_in(timedelta(seconds=1), rq_noted.note, JOBS + 2)
    jobs.cancel(dropped)
    assert late in jobs and dropped not in jobs and jobs.count() == JOBS + 2
    works, schedules = worker(), scheduler()
    started = [works, schedules]
    kills = 1
    try:
        wait("ten jobs", lambda: len(done()) >= 10)
        kill(schedules)
        started.append(scheduler())
        wait("twenty jobs", lambda: len(done()) >= 20)
        if "SERVER_COMMAND" in os.environ:
            kills += 1
            works.terminate()
            works.wait()
            restart_server()
            kill(started[-1])
            started += [worker(), scheduler()]
        wait("all jobs", lambda: set(range(JOBS)) <= set(done()))
        wait("the repeated job", lambda: done().get(JOBS, 0) >= REPEATED)
        times = done()
        twice = [at for at in range(JOBS) if times[at] > 1]
        assert len(twice) <= 2 * kills, f"done twice: {twice}"
        assert times[JOBS] <= REPEATED + kills and JOBS + 1 not in times and JOBS + 2 not in times, times
        jobs.change_execution_time(late, datetime.utcnow())
        wait("the late job", lambda: JOBS + 1 in done())
        wait("an empty schedule", lambda: jobs.count() == 0)
    finally:
        for process in started:
            if process.poll() is None:
                kill(process)
        if "SERVER_COMMAND" in os.environ:
            connection.shutdown(nosave=True)
