"""A cache of sessions that all workers of gunicorn share.

    pip install gunicorn
    POOL=/dev/shm/sessions.pando gunicorn --preload -w 4 session_cache:application

Each worker opens the pool after it was forked. A worker that is killed loses no visit that it has
counted before.
"""

import json
import os
import secrets
import threading
import time
from http.cookies import SimpleCookie

import pando

MAX_AGE_S = 3600.0


class SessionCache:
    """Sessions as JSON, by their names, and their names by the time when they end."""

    def __init__(self, path):
        self._path = path
        self._lock = threading.Lock()
        self._pid = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self):
        # The child opens the pool itself. Its parent's objects may be dropped: that touches nothing.
        self._lock = threading.Lock()
        self._pid = None

    def _maps(self):
        if self._pid != os.getpid():
            with self._lock:
                if self._pid != os.getpid():
                    self._pool = pando.Pool(self._path, shared=True)
                    self._sessions = self._pool.map("sessions", key=str)
                    self._ends = self._pool.map("ends", key=tuple[float, str])
                    self._pid = os.getpid()
        return self._sessions, self._ends

    def change(self, name, change):
        """Replaces the session by change(session), and returns it. No other change is lost."""
        sessions, ends = self._maps()
        while True:
            before = sessions.get(name)
            session = change(json.loads(before) if before is not None else {})
            end = time.time() + MAX_AGE_S
            ends[end, name] = b""
            after = json.dumps({**session, "end": end}).encode()
            try:
                if before is None:
                    sessions.insert(name, after)
                else:
                    sessions.compare_exchange(name, before, after)
                return session
            except (pando.KeyExistsError, pando.KeyNotFoundError, pando.ValueMismatchError):
                # Another worker was first.
                del ends[end, name]

    def expire(self):
        """Removes the sessions that have ended."""
        sessions, ends = self._maps()
        now = time.time()
        for (end, name), _ in ends.scan(stop=(now, "")):
            session = sessions.get(name)
            if session is not None and json.loads(session)["end"] <= now:
                try:
                    sessions.compare_remove(name, session)
                except (pando.KeyNotFoundError, pando.ValueMismatchError):
                    pass
            ends.pop((end, name), None)


cache = SessionCache(os.environ.get("POOL", "sessions.pando"))


def visit(session):
    return {**session, "visits": session.get("visits", 0) + 1}


def application(environ, start_response):
    """Counts the visits of each session."""
    cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get("session")
    name = cookie.value if cookie is not None else secrets.token_hex(16)
    session = cache.change(name, visit)
    headers = [("Content-Type", "text/plain"), ("Set-Cookie", f"session={name}; HttpOnly")]
    start_response("200 OK", headers)
    return [b"%d %d\n" % (os.getpid(), session["visits"])]
