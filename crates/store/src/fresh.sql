-- The tables of a new database: what all steps in schema.rs lead to. A test holds the two against each other.

CREATE TABLE agents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    parent TEXT,
    depth INTEGER NOT NULL,
    ceiling TEXT,
    saved INTEGER NOT NULL DEFAULT 0,
    kept INTEGER NOT NULL DEFAULT 0,
    made_by TEXT,
    copy_of INTEGER,
    born INTEGER NOT NULL DEFAULT 0,
    settings TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE heads (
    agent_id INTEGER PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    log_id INTEGER NOT NULL,
    halted_at_iteration_limit INTEGER NOT NULL,
    last_iteration_count INTEGER NOT NULL,
    should_shutdown INTEGER NOT NULL,
    owner TEXT,
    fence INTEGER NOT NULL,
    updated_at INTEGER NOT NULL DEFAULT 0,
    bill TEXT,
    ended_bill TEXT
) STRICT;

CREATE INDEX heads_by_owner ON heads (owner) WHERE owner IS NOT NULL;

CREATE TABLE leases (
    last_fence INTEGER NOT NULL
) STRICT;

CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    owner TEXT NOT NULL,
    lineage TEXT,
    turn TEXT,
    expires_at INTEGER,
    granted TEXT,
    preview TEXT,
    decided_by TEXT,
    message TEXT,
    inquiry TEXT,
    born BLOB
) STRICT, WITHOUT ROWID;

CREATE TABLE forks (
    log_id INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    length INTEGER NOT NULL
) STRICT;

CREATE INDEX forks_by_parent ON forks (parent);

CREATE TABLE messages (
    seq INTEGER PRIMARY KEY,
    log_id INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    role TEXT NOT NULL,
    at INTEGER NOT NULL,
    content TEXT NOT NULL,
    extra TEXT
) STRICT;

CREATE TABLE runs (
    log_id INTEGER NOT NULL,
    first INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (log_id, first)
) STRICT, WITHOUT ROWID;

CREATE INDEX agents_live ON agents (id) WHERE saved = 0;

CREATE INDEX agents_by_parent ON agents (parent, saved) WHERE parent IS NOT NULL;

CREATE INDEX approvals_by_agent ON approvals (agent, created_at, id);

CREATE INDEX approvals_by_age ON approvals (created_at, id);

CREATE INDEX approvals_that_wait ON approvals (owner) WHERE status = 'pending';

CREATE INDEX agents_by_maker ON agents (made_by) WHERE made_by IS NOT NULL;

CREATE TABLE briefings (
    digest INTEGER PRIMARY KEY,
    system TEXT NOT NULL,
    tools TEXT NOT NULL,
    source TEXT NOT NULL,
    anew INTEGER NOT NULL
) STRICT;

CREATE TABLE briefed (
    log_id INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (log_id, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX briefed_by_digest ON briefed (digest);

CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE blob_uses (
    log_id INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    blob_id INTEGER NOT NULL,
    PRIMARY KEY (log_id, idx, blob_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_uses_by_blob ON blob_uses (blob_id);

CREATE TABLE lessons (
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    tokens INTEGER,
    thoughts_always INTEGER NOT NULL,
    PRIMARY KEY (provider, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE lane_pauses (
    lane TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_scopes (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    memories INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    UNIQUE (kind, name)
) STRICT;

CREATE TABLE memories (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    scope INTEGER NOT NULL REFERENCES memory_scopes (id),
    digest INTEGER NOT NULL,
    source TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    superseded_by INTEGER REFERENCES memories (seq) ON DELETE CASCADE,
    subjects TEXT NOT NULL,
    content TEXT NOT NULL
) STRICT;

CREATE INDEX memories_by_age ON memories (scope, created_at, seq) WHERE superseded_by IS NULL;

CREATE INDEX memories_by_digest ON memories (scope, digest) WHERE superseded_by IS NULL;

CREATE INDEX memories_by_expiry ON memories (expires_at) WHERE expires_at IS NOT NULL AND superseded_by IS NULL;

CREATE INDEX memories_superseded ON memories (superseded_by) WHERE superseded_by IS NOT NULL;

CREATE TRIGGER memory_added AFTER INSERT ON memories BEGIN
    UPDATE memory_scopes SET memories = memories + 1, bytes = bytes
        + octet_length(new.content) + octet_length(new.source) + octet_length(new.subjects)
        WHERE id = new.scope;
END;

CREATE TRIGGER memory_renewed AFTER UPDATE OF subjects ON memories BEGIN
    UPDATE memory_scopes
        SET bytes = bytes + octet_length(new.subjects) - octet_length(old.subjects)
        WHERE id = new.scope;
END;

CREATE TRIGGER memory_removed AFTER DELETE ON memories BEGIN
    UPDATE memory_scopes SET memories = memories - 1, bytes = bytes
        - octet_length(old.content) - octet_length(old.source) - octet_length(old.subjects)
        WHERE id = old.scope;
END;

CREATE TABLE memory_subjects (
    scope INTEGER NOT NULL,
    subject TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (scope, subject, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_vectors (
    seq INTEGER PRIMARY KEY REFERENCES memories (seq) ON DELETE CASCADE,
    model TEXT NOT NULL,
    vector BLOB NOT NULL
) STRICT;

CREATE VIRTUAL TABLE memory_words USING fts5 ( content, subjects, scope, content = '', contentless_delete = 1, tokenize = 'porter unicode61' );

CREATE TABLE plans (
    id TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    plan TEXT NOT NULL,
    maker TEXT,
    maker_born BLOB,
    created_at INTEGER NOT NULL,
    touched_at INTEGER NOT NULL,
    task_count INTEGER NOT NULL,
    status TEXT NOT NULL,
    owner TEXT,
    fence INTEGER NOT NULL,
    tree TEXT,
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX plans_by_touch ON plans (touched_at, id);

CREATE TABLE plan_tasks (
    plan TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    task TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    output TEXT,
    reason TEXT,
    model TEXT,
    bill TEXT,
    PRIMARY KEY (plan, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE context_entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind INTEGER NOT NULL,
    key TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (kind, key)
) STRICT;

CREATE TABLE context_version (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL
) STRICT;

CREATE TABLE answers (
    id BLOB NOT NULL UNIQUE,
    params BLOB NOT NULL,
    owner TEXT NOT NULL,
    ended_at INTEGER,
    answer TEXT
) STRICT;

CREATE INDEX answers_by_end ON answers (ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX answers_under_way ON answers (owner) WHERE ended_at IS NULL;

CREATE TABLE answers_held (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    calls INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;

CREATE INDEX memory_vectors_by_model ON memory_vectors (model, seq);

CREATE TABLE keys (
    seq INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    secret TEXT NOT NULL,
    methods TEXT,
    agent TEXT,
    born INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    doors TEXT
) STRICT;

CREATE INDEX plans_of_trees ON plans (tree, touched_at, id, bytes, owner) WHERE tree IS NOT NULL;

CREATE INDEX plans_by_maker ON plans (maker, maker_born, touched_at, id) WHERE maker IS NOT NULL;

INSERT INTO leases VALUES (0);
INSERT INTO context_version VALUES (1, 0);
INSERT INTO answers_held VALUES (1, 0, 0);
