CREATE TABLE application (
    id               BINARY(16)     NOT NULL COMMENT '应用标识',
    name             VARBINARY(128) NOT NULL COMMENT '应用名称，全局唯一',
    state            TINYINT        NOT NULL COMMENT '状态：1 启用，2 停用',
    dispatch_stopped TINYINT        NOT NULL DEFAULT 0 COMMENT '是否停止派发：0 否，1 是',
    revision         BIGINT         NOT NULL DEFAULT 1 COMMENT '修订号，每次变更加一',
    created_at       BIGINT         NOT NULL COMMENT '创建时间，UTC 微秒',
    updated_at       BIGINT         NOT NULL COMMENT '更新时间，UTC 微秒',
    PRIMARY KEY (id),
    UNIQUE KEY application_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='应用';

CREATE TABLE namespace (
    id             BINARY(16)     NOT NULL COMMENT '命名空间标识',
    application_id BINARY(16)     NOT NULL COMMENT '所属应用标识',
    name           VARBINARY(128) NOT NULL COMMENT '命名空间名称，应用内唯一',
    environment    VARBINARY(64)  NOT NULL COMMENT '环境标签',
    state          TINYINT        NOT NULL COMMENT '状态：1 启用，2 停用',
    created_at     BIGINT         NOT NULL COMMENT '创建时间，UTC 微秒',
    updated_at     BIGINT         NOT NULL COMMENT '更新时间，UTC 微秒',
    PRIMARY KEY (id),
    UNIQUE KEY namespace_name (application_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='命名空间';

CREATE TABLE queue (
    id           BINARY(16)     NOT NULL COMMENT '队列标识',
    namespace_id BINARY(16)     NOT NULL COMMENT '所属命名空间标识',
    name         VARBINARY(128) NOT NULL COMMENT '队列名称，命名空间内唯一',
    paused       TINYINT        NOT NULL DEFAULT 0 COMMENT '是否暂停派发：0 否，1 是',
    revision     BIGINT         NOT NULL DEFAULT 1 COMMENT '修订号，每次变更加一',
    created_at   BIGINT         NOT NULL COMMENT '创建时间，UTC 微秒',
    updated_at   BIGINT         NOT NULL COMMENT '更新时间，UTC 微秒',
    PRIMARY KEY (id),
    UNIQUE KEY queue_name (namespace_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='队列';

CREATE TABLE credential (
    id            BINARY(16)     NOT NULL COMMENT '凭证标识',
    namespace_id  BINARY(16)     NOT NULL COMMENT '所属命名空间标识',
    name          VARBINARY(128) NOT NULL COMMENT '凭证名称',
    secret_digest BINARY(32)     NOT NULL COMMENT '令牌的 SHA-256 摘要，不保存令牌本身',
    permissions   VARBINARY(512) NOT NULL COMMENT '权限列表，逗号分隔',
    all_queues    TINYINT        NOT NULL COMMENT '是否可用全部队列：0 否，1 是',
    expires_at    BIGINT         NULL COMMENT '到期时间，UTC 微秒，空为不到期',
    revoked_at    BIGINT         NULL COMMENT '吊销时间，UTC 微秒，空为未吊销',
    created_at    BIGINT         NOT NULL COMMENT '创建时间，UTC 微秒',
    PRIMARY KEY (id),
    KEY credential_namespace (namespace_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='访问凭证';

CREATE TABLE credential_queue (
    credential_id BINARY(16) NOT NULL COMMENT '凭证标识',
    queue_id      BINARY(16) NOT NULL COMMENT '允许使用的队列标识',
    PRIMARY KEY (credential_id, queue_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='凭证的队列范围';
