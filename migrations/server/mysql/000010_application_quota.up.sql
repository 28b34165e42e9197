CREATE TABLE application_quota (
    application_id      BINARY(16) NOT NULL COMMENT '应用标识',
    max_unfinished      BIGINT     NOT NULL DEFAULT 0 COMMENT '未完成任务上限，0 为不限',
    unfinished          BIGINT     NOT NULL DEFAULT 0 COMMENT '未完成任务数，设限时重新计数',
    max_active_attempts BIGINT     NOT NULL DEFAULT 0 COMMENT '同时执行上限，0 为不限',
    updated_at          BIGINT     NOT NULL COMMENT '更新时间，UTC 微秒',
    PRIMARY KEY (application_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='应用配额';

INSERT INTO application_quota (application_id, unfinished, updated_at)
SELECT application.id,
       (SELECT COUNT(*) FROM namespace JOIN task ON task.namespace_id = namespace.id
        WHERE namespace.application_id = application.id AND task.state IN (1, 2, 3, 4)),
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
FROM application;
