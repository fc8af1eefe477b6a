"""The jobs of RQ's worker."""
import os
import time

import redis


def square(number):
    return number * number


def fail():
    raise ValueError("as it should")


def slow(name):
    r = redis.Redis(port=int(os.environ["PORT"]))
    r.set(f"{name}:begun", 1)
    time.sleep(2)
    return name
