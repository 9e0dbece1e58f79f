"""A receiver of Elido's webhooks with Flask 2 or 3.

    apt-get install python3-flask    # or pip install flask
    WEBHOOK_SECRET=whsec_… python3 flask_app.py
    WEBHOOK_SECRET=whsec_… gunicorn flask_app:app    # in production

For a program of your own take verify() and the route, and put your work into
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

from flask import Flask, request
from werkzeug.serving import make_server

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


def verify(headers, body):
    """Raises Refusal unless body, the bytes as they were received, was signed
    with one of the secrets within the tolerance. (WSGI servers join headers
    that are there twice with a comma, which no pattern here allows.)"""
    signatures = []
    # The second one is there while a secret is being replaced, signed with the old one.
    for name in ("X-Elido-Signature", "X-Elido-Signature-Previous"):
        value = headers.get(name, "")
        if not value.startswith("v1="):
            continue  # not there, or of a version yet to come
        if not re.fullmatch(r"v1=[0-9a-f]{64}", value):
            raise Refusal(400, f"malformed header: {name}")
        signatures.append(value)
    if not signatures:
        raise Refusal(400, "no signature")

    timestamp = headers.get("X-Webhook-Timestamp", "")
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


app = Flask(__name__)


@app.post("/webhooks")
def receive():
    # The sender always gives the length, and not all versions of Flask limit a
    # body that comes without.
    if request.content_length is None:
        raise Refusal(411, "Content-Length required")
    if request.content_length > MAX_BODY:
        raise Refusal(413, "body too large")
    body = request.get_data()  # raw, and before anything asks for request.json or request.form
    verify(request.headers, body)

    delivery = request.headers.get("X-Webhook-Delivery", "")
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
    return "", 200


@app.errorhandler(Refusal)
def refused(refusal):
    # The sender's delivery log shows the text, so it holds nothing private.
    return str(refusal), refusal.status, {"Content-Type": "text/plain"}


if __name__ == "__main__":
    server = make_server("127.0.0.1", int(os.environ.get("PORT", "8090")), app, threaded=True)
    print(f"listening on http://127.0.0.1:{server.server_port}/webhooks", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
