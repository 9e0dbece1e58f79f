"""A receiver written from the documentation, with Python's standard library only.

Reads one JSON object a line: secret, now, headers, body (base64). Answers each
with one line, "ok" or "no", after verifying every scheme whose headers are
there. It shares nothing with the Go code, which is the point.
"""

import base64
import hashlib
import hmac
import json
import re
import sys

TOLERANCE = 300


def fresh(timestamp, now):
    return bool(re.fullmatch(r"[1-9][0-9]{0,11}", timestamp)) and abs(now - int(timestamp)) <= TOLERANCE


def mac(key, *parts):
    return hmac.new(key, b".".join(parts), hashlib.sha256)


def elido_v1(secret, now, h, body):
    ts = h["x-webhook-timestamp"]
    want = "v1=" + mac(secret.encode(), ts.encode(), body).hexdigest()
    got = [h.get(n, "") for n in ("x-elido-signature", "x-elido-signature-previous")]
    return fresh(ts, now) and any([hmac.compare_digest(want, g) for g in got])


def elido_timed(secret, now, h, body):
    items = [item.split("=", 1) for item in h["elido-signature"].split(",")]
    ts = dict(items)["t"]
    want = mac(secret.encode(), ts.encode(), body).hexdigest()
    return fresh(ts, now) and any([hmac.compare_digest(want, v) for k, v in items if k == "v1"])


def standard_webhooks(secret, now, h, body):
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    ts = h["webhook-timestamp"]
    want = base64.b64encode(mac(key, h["webhook-id"].encode(), ts.encode(), body).digest()).decode()
    got = [item.split(",", 1) for item in h["webhook-signature"].split(" ")]
    return fresh(ts, now) and any([hmac.compare_digest(want, s) for v, s in got if v == "v1"])


SCHEMES = {
    "x-elido-signature": elido_v1,
    "elido-signature": elido_timed,
    "webhook-signature": standard_webhooks,
}

for line in sys.stdin:
    r = json.loads(line)
    headers = {k.lower(): v[0] for k, v in r["headers"].items()}
    body = base64.b64decode(r["body"])
    found = [scheme for name, scheme in SCHEMES.items() if name in headers]
    ok = bool(found) and all([scheme(r["secret"], r["now"], headers, body) for scheme in found])
    print("ok" if ok else "no")
