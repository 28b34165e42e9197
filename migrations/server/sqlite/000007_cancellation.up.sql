-- 请求取消的时间，UTC 微秒，空为未请求
ALTER TABLE task ADD COLUMN cancel_requested_at INTEGER NULL;

-- 取消原因
ALTER TABLE task ADD COLUMN cancel_reason BLOB NOT NULL DEFAULT x'';

-- 等待到期的时间，UTC 微秒，空为无需到期
ALTER TABLE task ADD COLUMN expire_at INTEGER NULL;

CREATE INDEX task_expire ON task (expire_at);

UPDATE task SET expire_at = CASE
    WHEN start_deadline_at IS NOT NULL AND start_deadline_at < deadline_at THEN start_deadline_at
    ELSE deadline_at END
WHERE state = 1;
