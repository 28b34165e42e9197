-- 恢复安全性：1 只可核对，2 幂等
ALTER TABLE task ADD COLUMN recovery_safety INTEGER NOT NULL DEFAULT 1;

-- 最多开始的执行次数
ALTER TABLE task ADD COLUMN max_attempts INTEGER NOT NULL DEFAULT 1;

-- 单次执行时限，毫秒
ALTER TABLE task ADD COLUMN attempt_timeout_ms INTEGER NOT NULL DEFAULT 30000;

-- 首次重试间隔，毫秒
ALTER TABLE task ADD COLUMN initial_delay_ms INTEGER NOT NULL DEFAULT 0;

-- 最大重试间隔，毫秒
ALTER TABLE task ADD COLUMN max_delay_ms INTEGER NOT NULL DEFAULT 0;

-- 已开始的执行次数
ALTER TABLE task ADD COLUMN started_count INTEGER NOT NULL DEFAULT 0;

-- 连续未开始的领取次数
ALTER TABLE task ADD COLUMN unstarted_count INTEGER NOT NULL DEFAULT 0;

-- 先前执行是否可能已生效：0 否，1 是
ALTER TABLE task ADD COLUMN effect_uncertain INTEGER NOT NULL DEFAULT 0;

-- 执行时限到期时间，UTC 微秒，不晚于任务截止
ALTER TABLE attempt ADD COLUMN timeout_at INTEGER NULL;

-- 失败后可否重试：0 否，1 是
ALTER TABLE attempt ADD COLUMN retryable INTEGER NOT NULL DEFAULT 0;

UPDATE task SET started_count = (
    SELECT COUNT(*) FROM attempt WHERE attempt.task_id = task.id AND attempt.started_at IS NOT NULL)
WHERE attempt_count > 0;
