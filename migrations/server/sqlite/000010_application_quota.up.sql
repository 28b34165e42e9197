-- 应用配额
CREATE TABLE application_quota (
    application_id      BLOB    NOT NULL, -- 应用标识
    max_unfinished      INTEGER NOT NULL DEFAULT 0, -- 未完成任务上限，0 为不限
    unfinished          INTEGER NOT NULL DEFAULT 0, -- 未完成任务数，设限时重新计数
    max_active_attempts INTEGER NOT NULL DEFAULT 0, -- 同时执行上限，0 为不限
    updated_at          INTEGER NOT NULL, -- 更新时间，UTC 微秒
    PRIMARY KEY (application_id)
) STRICT, WITHOUT ROWID;

INSERT INTO application_quota (application_id, unfinished, updated_at)
SELECT application.id,
       (SELECT COUNT(*) FROM namespace JOIN task ON task.namespace_id = namespace.id
        WHERE namespace.application_id = application.id AND task.state IN (1, 2, 3, 4)),
       CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM application;
