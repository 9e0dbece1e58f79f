-- Instants are Unix milliseconds, latencies microseconds. What receivers or
-- callers send as bytes is BYTEA: text columns refuse some of it, and bytes
-- compare the same in every database, whatever its collation.
--
-- No foreign keys: they would lock an endpoint's row with every publish. Rows of
-- a deleted endpoint go in batches, and what a late publish adds is found again.

-- One row. The revision grows with each change of an endpoint other than of its
-- health. Who changes an endpoint holds this row to the end of the transaction,
-- so that nobody sees a revision while a lower one is still to come.
CREATE TABLE webhook_counter (
    id       SMALLINT PRIMARY KEY CHECK (id = 1),
    revision BIGINT NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO webhook_counter (id, revision) VALUES (1, 1);

CREATE SEQUENCE webhook_delivery_ids AS BIGINT;

-- What is locked for an ordering key is a row of this table, chosen by a hash of
-- the key. Rows, as there is room for any number of locks on them; advisory locks
-- are kept in a table of fixed size that all of the server shares.
-- Below 16384: publishing with the key. From there on: whose turn it is.
CREATE TABLE webhook_locks (
    slot INTEGER PRIMARY KEY
);
INSERT INTO webhook_locks (slot) SELECT generate_series(0, 16384 + 4096 - 1);

-- A deleted endpoint keeps its row, emptied, so that its id is never used again
-- and its new revision can be seen.
CREATE TABLE webhook_endpoints (
    id              BIGINT PRIMARY KEY,
    workspace_id    BIGINT  NOT NULL,
    kind            TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    events          BYTEA,            -- a JSON array
    active          BOOLEAN NOT NULL,
    pause_reason    TEXT    NOT NULL,
    description     TEXT    NOT NULL,
    config          BYTEA,            -- a JSON object
    headers         BYTEA,            -- a JSON object
    max_in_flight   BIGINT  NOT NULL,
    rate_limit      DOUBLE PRECISION NOT NULL,
    created_at      BIGINT,
    updated_at      BIGINT,
    imported        BOOLEAN NOT NULL,
    rotations       BIGINT  NOT NULL,
    current_key     TEXT    NOT NULL,
    current_secret  BYTEA,
    previous_key    TEXT    NOT NULL,
    previous_secret BYTEA,
    previous_until  BIGINT,
    credentials_key TEXT    NOT NULL,
    credentials     BYTEA,
    failures        BIGINT  NOT NULL,
    failed_at       BIGINT,
    degraded_until  BIGINT,
    revision        BIGINT  NOT NULL,
    deleted_at      BIGINT,
    purged          BOOLEAN NOT NULL DEFAULT FALSE
) WITH (fillfactor = 70); -- health changes often, and is in no index
CREATE INDEX webhook_endpoints_workspace ON webhook_endpoints (workspace_id, id) WHERE deleted_at IS NULL;
CREATE INDEX webhook_endpoints_revision ON webhook_endpoints (revision);
CREATE INDEX webhook_endpoints_overlap ON webhook_endpoints (previous_until) WHERE previous_until IS NOT NULL;
CREATE INDEX webhook_endpoints_deleted ON webhook_endpoints (id) WHERE deleted_at IS NOT NULL AND NOT purged;

-- Who wants what. An endpoint that receives every event of its workspace has
-- the empty entry.
CREATE TABLE webhook_subscriptions (
    workspace_id BIGINT NOT NULL,
    entry        BYTEA  NOT NULL,
    endpoint_id  BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, entry, endpoint_id)
);

-- An event's seq is the id of its first delivery. It goes with the last of them.
CREATE TABLE webhook_events (
    seq          BIGINT PRIMARY KEY,
    id           TEXT COLLATE "C" NOT NULL UNIQUE,
    workspace_id BIGINT NOT NULL,
    type         TEXT COLLATE "C" NOT NULL,
    occurred_at  BIGINT,
    deliveries   BIGINT[] NOT NULL,
    payload      BYTEA,
    trace        BYTEA             -- of the publisher
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);

-- state: 0 ready, 1 leased, 2 blocked behind its ordering key, 3 arrived in a
-- transaction of the host's and not put into its order yet, 4 delivered,
-- 5 failed. Of one ordering key of one endpoint at most one delivery is ready or
-- leased. A lease that ran out makes its delivery ready, but leaves the token:
-- what it holds may still be recorded until somebody else takes the delivery.
-- turn is the row of webhook_locks that is held while the order of the key is
-- decided.
CREATE TABLE webhook_deliveries (
    id             BIGINT PRIMARY KEY,
    endpoint_id    BIGINT   NOT NULL,
    event_seq      BIGINT   NOT NULL,
    due_at         BIGINT   NOT NULL,
    token          BIGINT,
    lease_until    BIGINT,
    created_at     BIGINT   NOT NULL,
    completed_at   BIGINT,
    last_latency   BIGINT   NOT NULL DEFAULT 0,
    budget         BIGINT   NOT NULL,
    attempts       BIGINT   NOT NULL DEFAULT 0,
    total_attempts BIGINT   NOT NULL DEFAULT 0,
    interruptions  BIGINT   NOT NULL DEFAULT 0,
    last_status    INTEGER  NOT NULL DEFAULT 0,
    turn           INTEGER,
    state          SMALLINT NOT NULL,
    ordering_key   BYTEA,
    last_error     BYTEA,
    message        BYTEA
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX webhook_deliveries_ready ON webhook_deliveries (endpoint_id, due_at, id) WHERE state = 0;
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (lease_until, endpoint_id) WHERE state = 1;
CREATE INDEX webhook_deliveries_arrived ON webhook_deliveries (id) WHERE state = 3;
CREATE INDEX webhook_deliveries_keyed ON webhook_deliveries (endpoint_id, ordering_key, state, id)
    WHERE ordering_key IS NOT NULL AND state < 4;
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (endpoint_id, created_at, id);
CREATE INDEX webhook_deliveries_completed ON webhook_deliveries (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (endpoint_id, completed_at, id) WHERE state = 5;
CREATE INDEX webhook_deliveries_failed_log ON webhook_deliveries (endpoint_id, created_at, id) WHERE state = 5;

CREATE TABLE webhook_attempts (
    delivery_id  BIGINT  NOT NULL,
    number       BIGINT  NOT NULL,
    started_at   BIGINT,
    latency      BIGINT  NOT NULL,
    status       INTEGER NOT NULL,
    response_cut BOOLEAN NOT NULL,
    error        BYTEA,
    headers      BYTEA,            -- a JSON object
    response     BYTEA,
    PRIMARY KEY (delivery_id, number)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);

CREATE TABLE webhook_idempotency (
    workspace_id BIGINT NOT NULL,
    key          BYTEA  NOT NULL,
    digest       BYTEA  NOT NULL,
    event_id     TEXT   NOT NULL,
    deliveries   BIGINT[] NOT NULL DEFAULT '{}',
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05); -- its deliveries come a moment later
CREATE INDEX webhook_idempotency_age ON webhook_idempotency (created_at);

-- Where a claim looks. Of each ready delivery's endpoint there is a row here
-- with the delivery's due time or an earlier one. There may be several of one
-- endpoint, so that whoever adds one waits for nobody; see lane.go.
CREATE TABLE webhook_lanes (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id BIGINT NOT NULL,
    next_due    BIGINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000);
CREATE INDEX webhook_lanes_due ON webhook_lanes (next_due, endpoint_id, id);
CREATE INDEX webhook_lanes_endpoint ON webhook_lanes (endpoint_id, next_due);
