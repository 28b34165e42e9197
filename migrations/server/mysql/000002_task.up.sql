CREATE TABLE task (
    id                BINARY(16)     NOT NULL COMMENT '任务标识',
    namespace_id      BINARY(16)     NOT NULL COMMENT '所属命名空间标识',
    queue_id          BINARY(16)     NOT NULL COMMENT '所属队列标识',
    state             TINYINT        NOT NULL COMMENT '状态：1 等待，2 已租，3 运行，4 待复核，5 成功，6 失败，7 已取消',
    revision          BIGINT         NOT NULL COMMENT '修订号，每次可见变更加一',
    handler           VARBINARY(128) NOT NULL COMMENT '处理器名称',
    handler_version   VARBINARY(64)  NOT NULL COMMENT '处理器版本',
    payload_version   VARBINARY(32)  NOT NULL COMMENT '载荷版本',
    payload           MEDIUMBLOB     NOT NULL COMMENT '载荷原文，冻结后不再改写',
    business_key      VARBINARY(764) NOT NULL COMMENT '业务键，按字节比较，空为没有',
    available_at      BIGINT         NOT NULL COMMENT '最早可派发时间，UTC 微秒',
    start_deadline_at BIGINT         NULL COMMENT '最迟开始时间，UTC 微秒，空为不限',
    deadline_at       BIGINT         NOT NULL COMMENT '任务截止时间，UTC 微秒',
    task_timeout_ms   BIGINT         NOT NULL COMMENT '任务总时限，毫秒',
    completed_at      BIGINT         NULL COMMENT '进入终态的时间，UTC 微秒',
    credential_id     BINARY(16)     NOT NULL COMMENT '提交任务的凭证标识',
    created_at        BIGINT         NOT NULL COMMENT '创建时间，UTC 微秒',
    updated_at        BIGINT         NOT NULL COMMENT '更新时间，UTC 微秒',
    PRIMARY KEY (id),
    KEY task_list (queue_id, created_at, id),
    KEY task_state (queue_id, state, created_at, id),
    KEY task_business (queue_id, business_key, created_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='任务';

CREATE TABLE task_event (
    seq           BIGINT        NOT NULL AUTO_INCREMENT COMMENT '事件序号',
    task_id       BINARY(16)    NOT NULL COMMENT '任务标识',
    revision      BIGINT        NOT NULL COMMENT '变更后的任务修订号',
    kind          VARBINARY(32) NOT NULL COMMENT '事件种类',
    attempt_id    BINARY(16)    NULL COMMENT '相关执行标识，空为无关执行',
    credential_id BINARY(16)    NULL COMMENT '操作凭证标识，空为服务自身',
    reason        VARBINARY(64) NOT NULL DEFAULT '' COMMENT '原因码，空为没有',
    created_at    BIGINT        NOT NULL COMMENT '发生时间，UTC 微秒',
    PRIMARY KEY (seq),
    KEY task_event_task (task_id, seq)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='任务事件';

CREATE TABLE audit (
    seq             BIGINT         NOT NULL AUTO_INCREMENT COMMENT '审计序号',
    namespace_id    BINARY(16)     NULL COMMENT '命名空间标识，空为不属于命名空间',
    credential_id   BINARY(16)     NULL COMMENT '操作凭证标识，空为没有凭证',
    actor           VARBINARY(128) NOT NULL DEFAULT '' COMMENT '操作人，空为凭证自身',
    action          VARBINARY(64)  NOT NULL COMMENT '操作名称',
    target_id       BINARY(16)     NULL COMMENT '操作对象标识',
    queue_id        BINARY(16)     NULL COMMENT '相关队列标识',
    handler         VARBINARY(128) NOT NULL DEFAULT '' COMMENT '相关处理器名称',
    handler_version VARBINARY(64)  NOT NULL DEFAULT '' COMMENT '相关处理器版本',
    request_id      BINARY(16)     NULL COMMENT '请求标识',
    created_at      BIGINT         NOT NULL COMMENT '发生时间，UTC 微秒',
    PRIMARY KEY (seq),
    KEY audit_namespace (namespace_id, created_at),
    KEY audit_target (target_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='审计记录';

CREATE TABLE idempotency (
    digest          BINARY(32)     NOT NULL COMMENT '命名空间、操作、任务与幂等键的 SHA-256 摘要',
    namespace_id    BINARY(16)     NOT NULL COMMENT '命名空间标识',
    operation       TINYINT        NOT NULL COMMENT '操作：1 提交，2 取消，其余见代码',
    task_id         BINARY(16)     NULL COMMENT '命令产生或作用的任务标识',
    idempotency_key VARBINARY(128) NOT NULL COMMENT '幂等键原文',
    algorithm       VARBINARY(32)  NOT NULL COMMENT '内容摘要算法',
    content_digest  BINARY(32)     NOT NULL COMMENT '请求内容摘要',
    status          SMALLINT       NOT NULL COMMENT '首次回答的 HTTP 状态码',
    receipt         MEDIUMBLOB     NOT NULL COMMENT '首次回答原文，不含载荷',
    payload_at      INT            NOT NULL COMMENT '载荷在回答中的插入位置，字节',
    created_at      BIGINT         NOT NULL COMMENT '创建时间，UTC 微秒',
    retain_until    BIGINT         NOT NULL COMMENT '保留到的时间，UTC 微秒',
    PRIMARY KEY (digest),
    KEY idempotency_retain (retain_until)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='幂等记录';
