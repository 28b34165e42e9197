-- 工作进程会话
CREATE TABLE worker_session (
    namespace_id        BLOB    NOT NULL, -- 命名空间标识
    process_id          BLOB    NOT NULL, -- 工作进程标识
    credential_id       BLOB    NOT NULL, -- 连接所用凭证标识
    registration_digest BLOB    NOT NULL, -- 注册内容摘要
    registration        BLOB    NOT NULL, -- 注册内容原文
    node_id             BLOB    NOT NULL, -- 所连服务节点
    connected_at        INTEGER NOT NULL, -- 连接时间，UTC 微秒
    seen_at             INTEGER NOT NULL, -- 最近活动时间，UTC 微秒
    drained_at          INTEGER NULL, -- 排空时间，UTC 微秒，空为未排空
    PRIMARY KEY (namespace_id, process_id)
) STRICT;

-- 任务的一次执行
CREATE TABLE attempt (
    id             BLOB    NOT NULL, -- 执行标识
    task_id        BLOB    NOT NULL, -- 任务标识
    number         INTEGER NOT NULL, -- 第几次执行，从 1 起
    epoch          INTEGER NOT NULL, -- 执行纪元，任务内递增
    namespace_id   BLOB    NOT NULL, -- 命名空间标识
    application_id BLOB    NOT NULL, -- 应用标识
    queue_id       BLOB    NOT NULL, -- 队列标识
    process_id     BLOB    NOT NULL, -- 工作进程标识
    node_id        BLOB    NOT NULL, -- 派发的服务节点
    state          INTEGER NOT NULL, -- 状态：1 已租，2 运行，3 结束
    live           INTEGER NULL, -- 1 为占用许可，结束后为空
    lease_until    INTEGER NOT NULL, -- 租约到期时间，UTC 微秒
    lease_ms       INTEGER NOT NULL, -- 租约长度，毫秒
    claimed_at     INTEGER NOT NULL, -- 领取时间，UTC 微秒
    started_at     INTEGER NULL, -- 开始时间，UTC 微秒，空为未开始
    ended_at       INTEGER NULL, -- 结束时间，UTC 微秒，空为未结束
    outcome        INTEGER NULL, -- 结局：1 成功，2 失败，3 未知，4 取消，5 未开始
    PRIMARY KEY (id)
) STRICT;

CREATE UNIQUE INDEX attempt_epoch ON attempt (task_id, epoch);

CREATE INDEX attempt_expiry ON attempt (live, lease_until);

CREATE INDEX attempt_queue ON attempt (queue_id, live);

CREATE INDEX attempt_application ON attempt (application_id, live);

CREATE INDEX attempt_process ON attempt (process_id, live);

-- 最近一次执行的纪元
ALTER TABLE task ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

-- 执行次数
ALTER TABLE task ADD COLUMN attempt_count INTEGER NOT NULL DEFAULT 0;

-- 当前执行标识，空为没有
ALTER TABLE task ADD COLUMN attempt_id BLOB NULL;
