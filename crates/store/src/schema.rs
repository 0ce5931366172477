//! The tables, as the list of steps that led to them. A released step is never changed: a new one is added.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// Marks the file as ours ("nxs3"), so that another program's database is not taken for an old one of this program.
pub(super) const APPLICATION_ID: i32 = 0x6e78_7333;

/// The version of a database is the number of steps it has behind it.
pub(super) const STEPS: &[&str] = &[
    AGENTS_AND_MESSAGES,
    GRANTS_AND_APPROVALS,
    SESSIONS,
    ONE_PAGE_FOR_AN_APPEND,
    SETTINGS_AND_PAGES,
    SESSIONS_BY_MAKER,
    BRIEFS_BILLS_BLOBS,
    MEMORIES,
    PLANS,
    SHARED_CONTEXT,
    ANSWERS,
    VECTORS_BY_MODEL,
    KEYS,
    APPROVALS_TO_JUDGE,
    KEYS_FOR_DOORS,
    QUESTIONS_OF_SERVERS,
    MEMORIES_COUNTED,
    APPROVALS_OF_NAMESAKES,
    PLANS_OF_TREES,
];

/// What they lead to. Most of the time that a first start takes would go into repeating them.
const ANEW: &str = include_str!("fresh.sql");

/// An agent is two rows. `agents` holds what is seldom changed and may be long; `heads` what every turn changes. A turn
/// would otherwise rewrite the prompt and the permissions beside it, and a group of turns would touch a page for each
/// agent instead of one for some fifty.
///
/// - Ids are never used twice, so a log that a clone still shares cannot be mistaken for a new agent's.
/// - `log_id` names the conversation in `messages`.
/// - `parent` is a name: a parent may be a temporary agent, which has no row.
/// - Times are microseconds since 1970.
/// - `leases.last_fence` is the last fence given to any agent. One counter for all of them, so that an agent destroyed
///   and made again under its old name never repeats a fence that someone still holds.
const AGENTS_AND_MESSAGES: &str = "
    CREATE TABLE agents (
        id            INTEGER PRIMARY KEY AUTOINCREMENT,
        name          TEXT    NOT NULL UNIQUE,
        created_at    INTEGER NOT NULL,
        parent        TEXT,
        depth         INTEGER NOT NULL,
        permissions   TEXT    NOT NULL,
        ceiling       TEXT,
        model         TEXT,
        cwd           TEXT    NOT NULL,
        system_prompt TEXT
    ) STRICT;
    CREATE INDEX agents_by_parent ON agents (parent) WHERE parent IS NOT NULL;

    CREATE TABLE heads (
        agent_id                  INTEGER PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
        log_id                    INTEGER NOT NULL,
        message_count             INTEGER NOT NULL,
        last_action_at            INTEGER,
        halted_at_iteration_limit INTEGER NOT NULL,
        last_iteration_count      INTEGER NOT NULL,
        should_shutdown           INTEGER NOT NULL,
        owner                     TEXT,
        fence                     INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX heads_by_owner ON heads (owner) WHERE owner IS NOT NULL;

    CREATE TABLE messages (
        log_id  INTEGER NOT NULL,
        idx     INTEGER NOT NULL,
        role    TEXT    NOT NULL,
        at      INTEGER NOT NULL,
        content TEXT    NOT NULL,
        extra   TEXT,
        PRIMARY KEY (log_id, idx)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE leases (last_fence INTEGER NOT NULL) STRICT;
    INSERT INTO leases VALUES (0);
";

/// - `agents.grants` is what was granted while the agent ran; nothing when it is null.
/// - An approval names its agent: a temporary agent asks too, and has no row.
/// - `approvals.owner` is the process in which it waits.
const GRANTS_AND_APPROVALS: &str = "
    ALTER TABLE agents ADD COLUMN grants TEXT;

    CREATE TABLE approvals (
        id         TEXT    PRIMARY KEY,
        agent      TEXT    NOT NULL,
        tool       TEXT    NOT NULL,
        arguments  TEXT    NOT NULL,
        reason     TEXT    NOT NULL,
        created_at INTEGER NOT NULL,
        status     TEXT    NOT NULL,
        owner      TEXT    NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX approvals_by_agent ON approvals (agent);
";

/// - `agents.saved`: nobody works in this session until it is loaded; `kept`: it was saved by name, so it stays when its
///   agent is destroyed.
/// - `made_by` names the parent that a session had before it lost it.
/// - `copy_of` is the agent a saved copy was made of.
/// - A row of `forks` says that the first `length` messages of a log lie in `parent`, or before that. A log bears the id
///   of the agent it was made for, so ids of logs are never used twice either.
const SESSIONS: &str = "
    ALTER TABLE agents ADD COLUMN saved INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE agents ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE agents ADD COLUMN made_by TEXT;
    ALTER TABLE agents ADD COLUMN copy_of INTEGER;

    ALTER TABLE heads ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
    UPDATE heads SET updated_at =
        coalesce(last_action_at, (SELECT created_at FROM agents WHERE id = agent_id));

    CREATE TABLE forks (
        log_id INTEGER PRIMARY KEY,
        parent INTEGER NOT NULL,
        length INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX forks_by_parent ON forks (parent);
";

/// - Messages lie in the order in which they were written, whoever wrote them: an append fills the last page of the
///   table and touches no other. By their logs they would lie in the middle of the table, where SQLite moves the rows
///   of up to three neighbouring pages about whenever one is full.
/// - `runs` finds them. A run is a series of messages of one log that follow each other in the table too, the first of
///   them being message `first` of the log. One ends where another log has spoken, and before every 32nd message
///   (`log::RUN_MAX`), so that its end is found in a few steps.
/// - How many messages a conversation has and when the last was written is read off its log (`log::tail`), so that an
///   append that changes nothing else writes no page of `heads`. `heads.updated_at` is when anything but the beginning
///   of a turn was last written; what a process that died left behind is made up for by the next (`agent::catch_up`).
const ONE_PAGE_FOR_AN_APPEND: &str = "
    CREATE TABLE messages_as_written (
        seq     INTEGER PRIMARY KEY,
        log_id  INTEGER NOT NULL,
        idx     INTEGER NOT NULL,
        role    TEXT    NOT NULL,
        at      INTEGER NOT NULL,
        content TEXT    NOT NULL,
        extra   TEXT
    ) STRICT;
    INSERT INTO messages_as_written (log_id, idx, role, at, content, extra)
        SELECT log_id, idx, role, at, content, extra FROM messages ORDER BY log_id, idx;
    DROP TABLE messages;
    ALTER TABLE messages_as_written RENAME TO messages;

    CREATE TABLE runs (
        log_id INTEGER NOT NULL,
        first  INTEGER NOT NULL,
        seq    INTEGER NOT NULL,
        PRIMARY KEY (log_id, first)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO runs (log_id, first, seq)
        SELECT log_id, idx, seq FROM (
            SELECT log_id, idx, seq, lag(log_id) OVER (ORDER BY seq) AS before FROM messages
        ) WHERE idx % 32 = 0 OR before IS NOT log_id;

    ALTER TABLE heads DROP COLUMN message_count;
    ALTER TABLE heads DROP COLUMN last_action_at;
";

/// - `agents.settings` is the core's `AgentSettings` as JSON. What was no JSON before stays unreadable, for its agent alone.
/// - `agents.born` tells an agent from others that had its name. It is drawn from `leases.last_fence`; before `settings`,
///   which may be long, so that it is read without it.
/// - The indexes serve pages: agents that are no saved sessions, the children of one, approvals by their age.
const SETTINGS_AND_PAGES: &str = r#"
    ALTER TABLE agents ADD COLUMN born INTEGER NOT NULL DEFAULT 0;
    UPDATE agents SET born = coalesce((SELECT fence FROM heads WHERE agent_id = id), id);

    ALTER TABLE agents ADD COLUMN settings TEXT NOT NULL DEFAULT '';
    UPDATE agents SET settings = json_object(
        'permissions', json(iif(json_valid(permissions), permissions, json_quote(permissions))),
        'grants', json(CASE
            WHEN grants IS NULL THEN '{"write_paths":[],"exec_dirs":{}}'
            WHEN json_valid(grants) THEN grants
            ELSE json_quote(grants) END),
        'model', model,
        'cwd', cwd,
        'system_prompt', system_prompt
    );
    ALTER TABLE agents DROP COLUMN permissions;
    ALTER TABLE agents DROP COLUMN grants;
    ALTER TABLE agents DROP COLUMN model;
    ALTER TABLE agents DROP COLUMN cwd;
    ALTER TABLE agents DROP COLUMN system_prompt;

    CREATE INDEX agents_live ON agents (id) WHERE saved = 0;
    DROP INDEX agents_by_parent;
    CREATE INDEX agents_by_parent ON agents (parent, saved) WHERE parent IS NOT NULL;
    DROP INDEX approvals_by_agent;
    CREATE INDEX approvals_by_agent ON approvals (agent, created_at, id);
    CREATE INDEX approvals_by_age ON approvals (created_at, id);
"#;

/// What an agent has saved is counted, whenever one saves something more.
const SESSIONS_BY_MAKER: &str = "
    CREATE INDEX agents_by_maker ON agents (made_by) WHERE made_by IS NOT NULL;
";

/// - `briefings` are the core's `Brief`s by their digest; `briefed` says which logs have messages that were made with one.
/// - `heads.bill` is what the agent's model calls used, `heads.ended_bill` what those of its descendants did that ended;
///   nothing when null. In `heads`, because the step that ends a turn writes its row anyway.
/// - `blobs` are bytes beside the text of messages, each once; `blob_uses` says which messages show them.
/// - `lessons` are what providers were found to enforce for a model, `lane_pauses` says until when one wants no calls.
const BRIEFS_BILLS_BLOBS: &str = "
    CREATE TABLE briefings (
        digest INTEGER PRIMARY KEY,
        system TEXT    NOT NULL,
        tools  TEXT    NOT NULL,
        source TEXT    NOT NULL,
        anew   INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE briefed (
        log_id INTEGER NOT NULL,
        digest INTEGER NOT NULL,
        PRIMARY KEY (log_id, digest)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX briefed_by_digest ON briefed (digest);

    ALTER TABLE heads ADD COLUMN bill TEXT;
    ALTER TABLE heads ADD COLUMN ended_bill TEXT;

    CREATE TABLE blobs (
        id    INTEGER PRIMARY KEY,
        hash  BLOB NOT NULL UNIQUE,
        bytes BLOB NOT NULL
    ) STRICT;
    CREATE TABLE blob_uses (
        log_id  INTEGER NOT NULL,
        idx     INTEGER NOT NULL,
        blob_id INTEGER NOT NULL,
        PRIMARY KEY (log_id, idx, blob_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX blob_uses_by_blob ON blob_uses (blob_id);

    CREATE TABLE lessons (
        provider        TEXT    NOT NULL,
        model           TEXT    NOT NULL,
        tokens          INTEGER,
        thoughts_always INTEGER NOT NULL,
        PRIMARY KEY (provider, model)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE lane_pauses (
        lane  TEXT    PRIMARY KEY,
        until INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// - A memory lies in a scope: everybody's (kind 0, no name), a user's (1) or a chat's (2). `seq` is the order in which
///   memories were added or came back, and is never used twice.
/// - `superseded_by` is the memory that took its place, and takes it along when it goes. What was superseded is in no
///   index but the one by that.
/// - `digest` brings memories of the same text together.
/// - `memory_words` is the full-text index, which keeps no text. Its `scope` is the number of the scope as a word, so
///   that a search never looks at what is in others.
/// - `memory_subjects` has subjects as they are compared.
/// - `memory_vectors` says which memories are embedded, and by which model.
const MEMORIES: &str = "
    CREATE TABLE memory_scopes (
        id   INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        name TEXT    NOT NULL,
        UNIQUE (kind, name)
    ) STRICT;

    CREATE TABLE memories (
        seq           INTEGER PRIMARY KEY AUTOINCREMENT,
        id            BLOB    NOT NULL UNIQUE,
        scope         INTEGER NOT NULL REFERENCES memory_scopes (id),
        digest        INTEGER NOT NULL,
        source        TEXT    NOT NULL,
        created_at    INTEGER NOT NULL,
        expires_at    INTEGER,
        superseded_by INTEGER REFERENCES memories (seq) ON DELETE CASCADE,
        subjects      TEXT    NOT NULL,
        content       TEXT    NOT NULL
    ) STRICT;
    CREATE INDEX memories_by_age ON memories (scope, created_at, seq) WHERE superseded_by IS NULL;
    CREATE INDEX memories_by_digest ON memories (scope, digest) WHERE superseded_by IS NULL;
    CREATE INDEX memories_by_expiry ON memories (expires_at)
        WHERE expires_at IS NOT NULL AND superseded_by IS NULL;
    CREATE INDEX memories_superseded ON memories (superseded_by) WHERE superseded_by IS NOT NULL;

    CREATE TABLE memory_subjects (
        scope   INTEGER NOT NULL,
        subject TEXT    NOT NULL,
        seq     INTEGER NOT NULL,
        PRIMARY KEY (scope, subject, seq)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE memory_vectors (
        seq    INTEGER PRIMARY KEY REFERENCES memories (seq) ON DELETE CASCADE,
        model  TEXT    NOT NULL,
        vector BLOB    NOT NULL
    ) STRICT;

    CREATE VIRTUAL TABLE memory_words USING fts5 (
        content, subjects, scope,
        content = '', contentless_delete = 1, tokenize = 'porter unicode61'
    );
";

/// - `maker` is null where the administrator made it; `maker_born` tells the agent from others that had its name.
/// - `owner` is the process that runs it; null while none does. Of one that is gone the status stays `running`.
const PLANS: &str = "
    CREATE TABLE plans (
        id         TEXT    PRIMARY KEY,
        request    TEXT    NOT NULL,
        plan       TEXT    NOT NULL,
        maker      TEXT,
        maker_born BLOB,
        created_at INTEGER NOT NULL,
        touched_at INTEGER NOT NULL,
        task_count INTEGER NOT NULL,
        status     TEXT    NOT NULL,
        owner      TEXT,
        fence      INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX plans_by_touch ON plans (touched_at, id);

    CREATE TABLE plan_tasks (
        plan     TEXT    NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
        task     TEXT    NOT NULL,
        status   TEXT    NOT NULL,
        attempts INTEGER NOT NULL,
        output   TEXT,
        reason   TEXT,
        model    TEXT,
        bill     TEXT,
        PRIMARY KEY (plan, task)
    ) STRICT, WITHOUT ROWID;
";

/// `context_entries` is what all planners and executors share, and `context_version`, one row, counts its changes.
/// `bytes` is what an entry weighs, so that all can be weighed without reading their values. A kind is a file (0), a
/// dependency (1) or state (2).
const SHARED_CONTEXT: &str = "
    CREATE TABLE context_entries (
        seq   INTEGER PRIMARY KEY AUTOINCREMENT,
        kind  INTEGER NOT NULL,
        key   TEXT    NOT NULL,
        bytes INTEGER NOT NULL,
        value TEXT    NOT NULL,
        UNIQUE (kind, key)
    ) STRICT;

    CREATE TABLE context_version (
        id      INTEGER PRIMARY KEY CHECK (id = 1),
        version INTEGER NOT NULL
    ) STRICT;
    INSERT INTO context_version VALUES (1, 0);
";

/// Calls that are carried out once. `id` is who made which call where under which key, `params` with which parameters.
/// Without `ended_at` it is under way in its owner; with that and no `answer` it was cut off. `answers_held`, one row,
/// counts them and the bytes of their answers.
const ANSWERS: &str = "
    CREATE TABLE answers (
        id       BLOB    NOT NULL UNIQUE,
        params   BLOB    NOT NULL,
        owner    TEXT    NOT NULL,
        ended_at INTEGER,
        answer   TEXT
    ) STRICT;
    CREATE INDEX answers_by_end ON answers (ended_at) WHERE ended_at IS NOT NULL;
    CREATE INDEX answers_under_way ON answers (owner) WHERE ended_at IS NULL;

    CREATE TABLE answers_held (
        id    INTEGER PRIMARY KEY CHECK (id = 1),
        calls INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    ) STRICT;
    INSERT INTO answers_held VALUES (1, 0, 0);
";

/// Each search asks for what a model has made since: it must not read the vectors of all others for that.
const VECTORS_BY_MODEL: &str = "
    CREATE INDEX memory_vectors_by_model ON memory_vectors (model, seq);
";

/// What callers sign with. The secrets are as they are: a signature is checked by making it anew. `methods` is a list in
/// JSON, `agent` and `born` are those of an agent in whose name a key signs.
const KEYS: &str = "
    CREATE TABLE keys (
        seq        INTEGER PRIMARY KEY,
        name       TEXT    NOT NULL UNIQUE,
        secret     TEXT    NOT NULL,
        methods    TEXT,
        agent      TEXT,
        born       INTEGER,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    ) STRICT;
";

/// What a person is shown of an approval, and who answered it. `lineage`, `turn`, `granted` and `preview` are JSON.
const APPROVALS_TO_JUDGE: &str = "
    ALTER TABLE approvals ADD COLUMN lineage TEXT;
    ALTER TABLE approvals ADD COLUMN turn TEXT;
    ALTER TABLE approvals ADD COLUMN expires_at INTEGER;
    ALTER TABLE approvals ADD COLUMN granted TEXT;
    ALTER TABLE approvals ADD COLUMN preview TEXT;
    ALTER TABLE approvals ADD COLUMN decided_by TEXT;
    ALTER TABLE approvals ADD COLUMN message TEXT;
";

/// What a key opens, as a list in JSON. Of such a key the secret is a digest.
const KEYS_FOR_DOORS: &str = "
    ALTER TABLE keys ADD COLUMN doors TEXT;
";

/// What a server asks of a person, in JSON; null where leave is asked for.
const QUESTIONS_OF_SERVERS: &str = "
    ALTER TABLE approvals ADD COLUMN inquiry TEXT;
";

/// How many memories a scope has, with those that were superseded, and the bytes of what is said in them. Agents may add
/// so many, and no addition must cost a look at all others.
const MEMORIES_COUNTED: &str = "
    ALTER TABLE memory_scopes ADD COLUMN memories INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE memory_scopes ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
    UPDATE memory_scopes SET memories = there.memories, bytes = there.bytes FROM (
        SELECT scope, COUNT(*) AS memories,
            SUM(octet_length(content) + octet_length(source) + octet_length(subjects)) AS bytes
        FROM memories GROUP BY scope
    ) AS there WHERE there.scope = memory_scopes.id;
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
";

/// - `approvals.born` is that of the agent which asked, and tells it from others that had its name.
/// - The index says in which processes something waits, whatever was decided before.
const APPROVALS_OF_NAMESAKES: &str = "
    ALTER TABLE approvals ADD COLUMN born BLOB;
    CREATE INDEX approvals_that_wait ON approvals (owner) WHERE status = 'pending';
";

/// `tree` is the root of the tree of a plan's maker, null where the administrator made it, and `bytes` what the plan takes of
/// the room of its tree, so that all can be weighed by the index alone. Of old plans nobody knows the tree: the maker
/// stands for it.
const PLANS_OF_TREES: &str = "
    ALTER TABLE plans ADD COLUMN tree TEXT;
    ALTER TABLE plans ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
    UPDATE plans SET tree = maker, bytes = octet_length(request) + octet_length(plan);
    CREATE INDEX plans_of_trees ON plans (tree, touched_at, id, bytes, owner) WHERE tree IS NOT NULL;
    CREATE INDEX plans_by_maker ON plans (maker, maker_born, touched_at, id) WHERE maker IS NOT NULL;
";

pub(super) fn version(db: &Connection) -> rusqlite::Result<usize> {
    db.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0))
        .map(|version| version as usize)
}

/// Takes the database through the steps it has not behind it, all or none. A process that comes second finds them done.
pub(super) fn migrate(db: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let transaction = Transaction::new(db, TransactionBehavior::Immediate)?;
    for step in steps.iter().skip(version(&transaction)?) {
        transaction.execute_batch(step)?;
    }
    conclude(transaction, steps.len())
}

/// Puts the tables into a database that has none.
pub(super) fn make(db: &mut Connection) -> rusqlite::Result<()> {
    let transaction = Transaction::new(db, TransactionBehavior::Immediate)?;
    transaction.execute_batch(ANEW)?;
    conclude(transaction, STEPS.len())
}

fn conclude(transaction: Transaction<'_>, version: usize) -> rusqlite::Result<()> {
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", version as i64)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use rusqlite::types::Value;

    use super::*;

    /// All that is in a database, but for how its tables were written.
    fn contents(db: &Connection) -> Vec<String> {
        let mut listed = db.prepare("SELECT type, name, sql FROM sqlite_schema").unwrap();
        let plain = |sql: String| sql.replace([' ', '\n', '"'], "");
        let row = |row: &rusqlite::Row<'_>| {
            let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
            let sql: Option<String> = row.get(2)?;
            Ok((kind, name, sql.map(plain)))
        };
        let listed = listed.query_map([], row).unwrap().map(Result::unwrap);
        let mut all = Vec::new();
        for (kind, name, sql) in listed {
            all.push(format!("{kind} {name} {sql:?}"));
            if kind == "table" {
                let mut rows = db.prepare(&format!("SELECT * FROM {name}")).unwrap();
                let columns = rows.column_count();
                let row = |row: &rusqlite::Row<'_>| {
                    (0..columns).map(|at| row.get(at)).collect::<rusqlite::Result<Vec<Value>>>()
                };
                let rows = rows.query_map([], row).unwrap().map(Result::unwrap);
                all.extend(rows.map(|row| format!("{name}: {row:?}")));
            }
        }
        all.sort();
        all
    }

    #[test]
    fn a_new_database_is_like_one_that_has_all_steps_behind_it() {
        let [mut stepped, mut made] = [(); 2].map(|()| Connection::open_in_memory().unwrap());
        migrate(&mut stepped, STEPS).unwrap();
        make(&mut made).unwrap();
        let (stepped, made) = (contents(&stepped), contents(&made));
        for (one, other) in stepped.iter().zip(&made) {
            assert_eq!(one, other);
        }
        assert_eq!(stepped.len(), made.len());
    }

    #[test]
    fn only_missing_steps_are_run() {
        let mut db = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x)", "CREATE TABLE b (x)"];
        migrate(&mut db, &steps[..1]).unwrap();
        assert_eq!(version(&db).unwrap(), 1);
        migrate(&mut db, &steps).unwrap();
        migrate(&mut db, &steps).unwrap();
        assert_eq!(version(&db).unwrap(), 2);
    }

    #[test]
    fn a_failing_step_leaves_the_database_at_its_old_version() {
        let mut db = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x)", "CREATE TABLE b (x)", "CREATE TABLE a (x)"];
        migrate(&mut db, &steps[..1]).unwrap();
        migrate(&mut db, &steps).unwrap_err();
        assert_eq!(version(&db).unwrap(), 1);
        migrate(&mut db, &steps[..2]).unwrap();
    }
}
