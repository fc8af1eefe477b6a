"""django-redis as Django's cache, its sessions and its locks."""
import os
import time

import django
from django.conf import settings

URL = f"redis://127.0.0.1:{os.environ['PORT']}/2"
CACHE = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL}
settings.configure(
    CACHES={"default": CACHE},
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    INSTALLED_APPS=["django.contrib.sessions"],
    SECRET_KEY="x",
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import cache

cache.clear()
cache.set("a", {"b": [1, 2]}, timeout=30)
assert cache.get("a") == {"b": [1, 2]} and cache.ttl("a") <= 30
assert cache.add("a", 1) is False and cache.add("n", 1) is True
assert cache.incr("n", 5) == 6
cache.set_many({f"many{at}": at for at in range(50)}, timeout=60)
assert cache.get_many([f"many{at}" for at in range(50)]) == {f"many{at}": at for at in range(50)}
assert sorted(cache.iter_keys("many1*")) == sorted(["many1"] + [f"many1{at}" for at in range(10)])
assert cache.delete_pattern("many*") == 50
cache.set("short", 1, timeout=0.1)
time.sleep(0.3)
assert cache.get("short") is None and cache.touch("a", 100)
session = SessionStore()
session["user"] = 7
session.save()
assert SessionStore(session_key=session.session_key)["user"] == 7
