-- additive: a server of release 13 neither reads nor writes the new column

ALTER TABLE audit
    ADD COLUMN note VARBINARY(4096) NOT NULL DEFAULT '' COMMENT '操作人给出的理由，空为没有';

ALTER TABLE idempotency
    ADD KEY idempotency_task (task_id);
