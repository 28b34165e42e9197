ALTER TABLE task
    ADD COLUMN recovery_safety    TINYINT NOT NULL DEFAULT 1 COMMENT '恢复安全性：1 只可核对，2 幂等',
    ADD COLUMN max_attempts       INT     NOT NULL DEFAULT 1 COMMENT '最多开始的执行次数',
    ADD COLUMN attempt_timeout_ms BIGINT  NOT NULL DEFAULT 30000 COMMENT '单次执行时限，毫秒',
    ADD COLUMN initial_delay_ms   BIGINT  NOT NULL DEFAULT 0 COMMENT '首次重试间隔，毫秒',
    ADD COLUMN max_delay_ms       BIGINT  NOT NULL DEFAULT 0 COMMENT '最大重试间隔，毫秒',
    ADD COLUMN started_count      INT     NOT NULL DEFAULT 0 COMMENT '已开始的执行次数',
    ADD COLUMN unstarted_count    INT     NOT NULL DEFAULT 0 COMMENT '连续未开始的领取次数',
    ADD COLUMN effect_uncertain   TINYINT NOT NULL DEFAULT 0 COMMENT '先前执行是否可能已生效：0 否，1 是';

ALTER TABLE attempt
    ADD COLUMN timeout_at BIGINT  NULL COMMENT '执行时限到期时间，UTC 微秒，不晚于任务截止',
    ADD COLUMN retryable  TINYINT NOT NULL DEFAULT 0 COMMENT '失败后可否重试：0 否，1 是';

UPDATE task SET started_count = (
    SELECT COUNT(*) FROM attempt WHERE attempt.task_id = task.id AND attempt.started_at IS NOT NULL)
WHERE attempt_count > 0;
