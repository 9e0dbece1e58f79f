-- Instants are Unix milliseconds, latencies microseconds. What receivers or
-- callers send as bytes is a BLOB.

-- One row: the last values given out, and how often what a writer keeps in
-- memory about endpoints has changed. Counters only grow, so that no id comes
-- back, whatever is deleted.
CREATE TABLE webhook_counter (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    epoch    INTEGER NOT NULL, -- changes of endpoints, health included
    revision INTEGER NOT NULL, -- changes of endpoints, health left out
    delivery INTEGER NOT NULL, -- the last delivery's id
    event    INTEGER NOT NULL  -- the last event's seq
);
INSERT INTO webhook_counter (id, epoch, revision, delivery, event) VALUES (1, 1, 1, 0, 0);

-- A deleted endpoint keeps its row, emptied, so that its id is never used again
-- and its new revision can be seen.
CREATE TABLE webhook_endpoints (
    id              INTEGER PRIMARY KEY,
    workspace_id    INTEGER NOT NULL,
    kind            TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    events          TEXT,             -- a JSON array
    active          INTEGER NOT NULL,
    pause_reason    TEXT    NOT NULL,
    description     TEXT    NOT NULL,
    config          TEXT,             -- a JSON object
    headers         TEXT,             -- a JSON object
    max_in_flight   INTEGER NOT NULL,
    rate_limit      REAL    NOT NULL,
    created_at      INTEGER,
    updated_at      INTEGER,
    imported        INTEGER NOT NULL,
    rotations       INTEGER NOT NULL,
    current_key     TEXT    NOT NULL,
    current_secret  BLOB,
    previous_key    TEXT    NOT NULL,
    previous_secret BLOB,
    previous_until  INTEGER,
    credentials_key TEXT    NOT NULL,
    credentials     BLOB,
    failures        INTEGER NOT NULL,
    failed_at       INTEGER,
    degraded_until  INTEGER,
    revision        INTEGER NOT NULL,
    deleted_at      INTEGER,
    purged          INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX webhook_endpoints_workspace ON webhook_endpoints (workspace_id, id) WHERE deleted_at IS NULL;
CREATE INDEX webhook_endpoints_revision ON webhook_endpoints (revision);
CREATE INDEX webhook_endpoints_overlap ON webhook_endpoints (previous_until) WHERE previous_until IS NOT NULL;
CREATE INDEX webhook_endpoints_deleted ON webhook_endpoints (id) WHERE deleted_at IS NOT NULL AND purged = 0;

-- Who wants what. An endpoint that receives every event of its workspace has
-- the empty entry.
CREATE TABLE webhook_subscriptions (
    workspace_id INTEGER NOT NULL,
    entry        TEXT    NOT NULL,
    endpoint_id  INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, entry, endpoint_id)
) WITHOUT ROWID;

-- The deliveries of one event have ids in a row, beginning with first_delivery;
-- remaining of them still exist, and the event goes with the last.
CREATE TABLE webhook_events (
    seq            INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    workspace_id   INTEGER NOT NULL,
    type           TEXT    NOT NULL,
    occurred_at    INTEGER,
    first_delivery INTEGER NOT NULL,
    deliveries     INTEGER NOT NULL,
    remaining      INTEGER NOT NULL,
    payload        BLOB,
    trace          TEXT              -- of the publisher
);

-- state: 0 ready, 1 leased, 2 blocked behind its ordering key, 3 delivered,
-- 4 failed. Of one ordering key of one endpoint at most one delivery is ready or
-- leased. A lease that ran out makes its delivery ready, but leaves the token:
-- what it holds may still be recorded until somebody else takes the delivery.
CREATE TABLE webhook_deliveries (
    id             INTEGER PRIMARY KEY,
    endpoint_id    INTEGER NOT NULL,
    event_seq      INTEGER NOT NULL,
    state          INTEGER NOT NULL,
    due_at         INTEGER NOT NULL,
    token          INTEGER,
    lease_until    INTEGER,
    ordering_key   TEXT,
    budget         INTEGER NOT NULL,
    attempts       INTEGER NOT NULL DEFAULT 0,
    total_attempts INTEGER NOT NULL DEFAULT 0,
    interruptions  INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL,
    completed_at   INTEGER,
    last_error     BLOB,             -- status and latency: in the last attempt
    message        BLOB
);
-- The state is in partial indexes, too, so that SQLite need not look it up.
CREATE INDEX webhook_deliveries_ready ON webhook_deliveries (endpoint_id, state, due_at) WHERE state = 0;
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (state, lease_until, endpoint_id) WHERE state = 1;
CREATE INDEX webhook_deliveries_keyed ON webhook_deliveries (endpoint_id, ordering_key, state)
    WHERE ordering_key IS NOT NULL AND state < 3;
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (endpoint_id, created_at);
CREATE INDEX webhook_deliveries_completed ON webhook_deliveries (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, completed_at) WHERE state = 4;
CREATE INDEX webhook_deliveries_failed_log ON webhook_deliveries (endpoint_id, created_at) WHERE state = 4;

CREATE TABLE webhook_attempts (
    delivery_id  INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    started_at   INTEGER,
    latency      INTEGER NOT NULL,
    status       INTEGER NOT NULL,
    error        BLOB,
    headers      TEXT,             -- a JSON object
    response     BLOB,
    response_cut INTEGER NOT NULL,
    PRIMARY KEY (delivery_id, number)
) WITHOUT ROWID;

CREATE TABLE webhook_idempotency (
    workspace_id INTEGER NOT NULL,
    key          TEXT    NOT NULL,
    digest       BLOB    NOT NULL,
    event_id     TEXT    NOT NULL,
    deliveries   TEXT,             -- their ids, a JSON array
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, key)
) WITHOUT ROWID;
CREATE INDEX webhook_idempotency_age ON webhook_idempotency (created_at);

-- The endpoints a claim looks at: those that are active and have a ready
-- delivery, with the time at which the first of these is due.
CREATE TABLE webhook_lanes (
    endpoint_id INTEGER PRIMARY KEY,
    next_due    INTEGER NOT NULL
);
CREATE INDEX webhook_lanes_due ON webhook_lanes (next_due, endpoint_id);
