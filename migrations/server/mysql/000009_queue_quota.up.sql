ALTER TABLE queue
    ADD COLUMN max_concurrency BIGINT NOT NULL DEFAULT 0 COMMENT '并发上限，0 为不限',
    ADD COLUMN max_backlog     BIGINT NOT NULL DEFAULT 0 COMMENT '积压上限，0 为不限',
    ADD COLUMN unfinished      BIGINT NOT NULL DEFAULT 0 COMMENT '未完成任务数，设限时重新计数';
