"""A receiver of Elido's webhooks that needs Python 3.9 and nothing else.

    WEBHOOK_SECRET=whsec_… python3 stdlib.py

For a program of your own take verify() and receive(), and put your work into
handle(). docs/receiving.md says why each step is there.
"""

import hashlib
import hmac
import json
import os
import re
import sqlite3
import sys
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY = 1 << 20  # bytes
TOLERANCE = 300  # seconds, into the past and into the future
DATABASE = os.environ.get("WEBHOOK_DB", "webhooks.db")

# While a secret is being replaced, give both: WEBHOOK_SECRET="whsec_new whsec_old".
SECRETS = os.environ.get("WEBHOOK_SECRET", "").split()
if not SECRETS or any(len(secret) < 24 for secret in SECRETS):
    sys.exit("WEBHOOK_SECRET: give the whole whsec_… string that the endpoint was created with")


class Refusal(Exception):
    """Is answered with its status. Whatever is not 2xx comes again."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def only(get_all, name):
    """Returns the one value of a header, or "" if it is not there."""
    values = get_all(name) or []
    if len(values) > 1:
        raise Refusal(400, f"malformed header: more than one {name}")
    return values[0] if values else ""


def verify(get_all, body):
    """Raises Refusal unless body, the bytes as they were received, was signed
    with one of the secrets within the tolerance. get_all returns the list of a
    header's values."""
    signatures = []
    # The second one is there while a secret is being replaced, signed with the old one.
    for name in ("X-Elido-Signature", "X-Elido-Signature-Previous"):
        value = only(get_all, name)
        if not value.startswith("v1="):
            continue  # not there, or of a version yet to come
        if not re.fullmatch(r"v1=[0-9a-f]{64}", value):
            raise Refusal(400, f"malformed header: {name}")
        signatures.append(value)
    if not signatures:
        raise Refusal(400, "no signature")

    timestamp = only(get_all, "X-Webhook-Timestamp")
    if not re.fullmatch(r"[1-9][0-9]{0,11}", timestamp):  # int() alone takes far more
        raise Refusal(400, "missing or malformed header: X-Webhook-Timestamp")
    age = int(time.time()) - int(timestamp)
    if abs(age) > TOLERANCE:
        raise Refusal(400, "stale timestamp" if age > 0 else "timestamp in the future")

    genuine = False
    for secret in SECRETS:  # the key is the whole string, "whsec_" included
        mac = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
        for signature in signatures:
            if hmac.compare_digest("v1=" + mac.hexdigest(), signature):  # constant time
                genuine = True
    if not genuine:
        raise Refusal(401, "wrong signature")


def connect():
    db = sqlite3.connect(DATABASE, timeout=5)
    # For ever will do; 14 days at the least.
    db.execute("CREATE TABLE IF NOT EXISTS handled (delivery TEXT PRIMARY KEY, at INTEGER NOT NULL)")
    return db


failures = int(os.environ.get("FAIL_FIRST", "0"))  # to see what happens: fail this often


def handle(db, event):
    """Does what is to be done about an event, and raises if it could not. db is
    in a transaction, which the caller commits. The sender waits 10 seconds:
    store the event here, and do what takes time afterwards."""
    global failures
    if failures > 0:
        failures -= 1
        raise RuntimeError(f"FAIL_FIRST: no work done for {event['type']}")


def receive(get_all, body):
    verify(get_all, body)

    delivery = only(get_all, "X-Webhook-Delivery")
    if not re.fullmatch(r"[0-9]{1,20}", delivery):
        raise Refusal(400, "missing or malformed header: X-Webhook-Delivery")
    try:
        event = json.loads(body.decode("utf-8"))
    except ValueError:
        raise Refusal(400, "not JSON") from None
    if not (isinstance(event, dict) and isinstance(event.get("type"), str) and isinstance(event.get("data"), dict)):
        raise Refusal(400, "not an event")

    # The work and the memory of it are one transaction: both, or neither if
    # handle raises. The same delivery, coming in beside this one, waits at the
    # INSERT until that is decided.
    with closing(connect()) as db, db:
        inserted = db.execute("INSERT OR IGNORE INTO handled VALUES (?, ?)", (delivery, int(time.time())))
        duplicate = inserted.rowcount == 0
        if not duplicate:
            handle(db, event)
    line = {"delivery": delivery, "type": event["type"], "duplicate": duplicate, "data": event["data"]}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Handler(BaseHTTPRequestHandler):
    timeout = 10  # seconds to wait for the next bytes

    def do_POST(self):
        try:
            if self.path != "/webhooks":
                raise Refusal(404, "not found")
            receive(self.headers.get_all, self.read_body())
            self.answer(200)
        except Refusal as refusal:
            # The sender's delivery log shows the text, so it holds nothing private.
            self.answer(refusal.status, str(refusal))
        except Exception as error:
            self.log_error("%r", error)
            self.answer(500, "internal error")

    def do_GET(self):
        self.answer(405)

    do_PUT = do_DELETE = do_PATCH = do_GET

    def read_body(self):
        # http.server reads no chunks. The sender always gives the length.
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,18}", length):
            raise Refusal(411, "Content-Length required")
        if int(length) > MAX_BODY:
            raise Refusal(413, "body too large")
        return self.rfile.read(int(length))

    def answer(self, status, text=""):
        body = text.encode()
        self.send_response(status)
        if status == 405:
            self.send_header("Allow", "POST")
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8090"))), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}/webhooks", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
