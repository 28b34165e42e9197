CREATE TABLE worker_session (
    namespace_id        BINARY(16)    NOT NULL COMMENT '命名空间标识',
    process_id          BINARY(16)    NOT NULL COMMENT '工作进程标识',
    credential_id       BINARY(16)    NOT NULL COMMENT '连接所用凭证标识',
    registration_digest BINARY(32)    NOT NULL COMMENT '注册内容摘要',
    registration        MEDIUMBLOB    NOT NULL COMMENT '注册内容原文',
    node_id             VARBINARY(64) NOT NULL COMMENT '所连服务节点',
    connected_at        BIGINT        NOT NULL COMMENT '连接时间，UTC 微秒',
    seen_at             BIGINT        NOT NULL COMMENT '最近活动时间，UTC 微秒',
    drained_at          BIGINT        NULL COMMENT '排空时间，UTC 微秒，空为未排空',
    PRIMARY KEY (namespace_id, process_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='工作进程会话';

CREATE TABLE attempt (
    id             BINARY(16)    NOT NULL COMMENT '执行标识',
    task_id        BINARY(16)    NOT NULL COMMENT '任务标识',
    number         INT           NOT NULL COMMENT '第几次执行，从 1 起',
    epoch          BIGINT        NOT NULL COMMENT '执行纪元，任务内递增',
    namespace_id   BINARY(16)    NOT NULL COMMENT '命名空间标识',
    application_id BINARY(16)    NOT NULL COMMENT '应用标识',
    queue_id       BINARY(16)    NOT NULL COMMENT '队列标识',
    process_id     BINARY(16)    NOT NULL COMMENT '工作进程标识',
    node_id        VARBINARY(64) NOT NULL COMMENT '派发的服务节点',
    state          TINYINT       NOT NULL COMMENT '状态：1 已租，2 运行，3 结束',
    live           TINYINT       NULL COMMENT '1 为占用许可，结束后为空',
    lease_until    BIGINT        NOT NULL COMMENT '租约到期时间，UTC 微秒',
    lease_ms       BIGINT        NOT NULL COMMENT '租约长度，毫秒',
    claimed_at     BIGINT        NOT NULL COMMENT '领取时间，UTC 微秒',
    started_at     BIGINT        NULL COMMENT '开始时间，UTC 微秒，空为未开始',
    ended_at       BIGINT        NULL COMMENT '结束时间，UTC 微秒，空为未结束',
    outcome        TINYINT       NULL COMMENT '结局：1 成功，2 失败，3 未知，4 取消，5 未开始',
    PRIMARY KEY (id),
    UNIQUE KEY attempt_epoch (task_id, epoch),
    KEY attempt_expiry (live, lease_until),
    KEY attempt_queue (queue_id, live),
    KEY attempt_application (application_id, live),
    KEY attempt_process (process_id, live)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='任务的一次执行';

ALTER TABLE task
    ADD COLUMN epoch         BIGINT     NOT NULL DEFAULT 0 COMMENT '最近一次执行的纪元',
    ADD COLUMN attempt_count INT        NOT NULL DEFAULT 0 COMMENT '执行次数',
    ADD COLUMN attempt_id    BINARY(16) NULL COMMENT '当前执行标识，空为没有';
