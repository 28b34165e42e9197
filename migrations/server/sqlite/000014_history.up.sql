-- additive: a server of release 13 neither reads nor writes the new column

-- 操作人给出的理由，空为没有
ALTER TABLE audit ADD COLUMN note BLOB NOT NULL DEFAULT x'';

CREATE INDEX idempotency_task ON idempotency (task_id);
