ALTER TABLE task
    ADD COLUMN cancel_requested_at BIGINT          NULL COMMENT '请求取消的时间，UTC 微秒，空为未请求',
    ADD COLUMN cancel_reason       VARBINARY(4096) NOT NULL DEFAULT '' COMMENT '取消原因',
    ADD COLUMN expire_at           BIGINT          NULL COMMENT '等待到期的时间，UTC 微秒，空为无需到期',
    ADD KEY task_expire (expire_at);

UPDATE task SET expire_at = CASE
    WHEN start_deadline_at IS NOT NULL AND start_deadline_at < deadline_at THEN start_deadline_at
    ELSE deadline_at END
WHERE state = 1;
