"""The job of rq-scheduler's worker."""
import os

import redis


def note(number):
    redis.Redis(port=int(os.environ["PORT"])).hincrby("done", number, 1)
