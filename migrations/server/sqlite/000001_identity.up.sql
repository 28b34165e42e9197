-- 应用
CREATE TABLE application (
    id               BLOB    NOT NULL, -- 应用标识
    name             BLOB    NOT NULL, -- 应用名称，全局唯一
    state            INTEGER NOT NULL, -- 状态：1 启用，2 停用
    dispatch_stopped INTEGER NOT NULL DEFAULT 0, -- 是否停止派发：0 否，1 是
    revision         INTEGER NOT NULL DEFAULT 1, -- 修订号，每次变更加一
    created_at       INTEGER NOT NULL, -- 创建时间，UTC 微秒
    updated_at       INTEGER NOT NULL, -- 更新时间，UTC 微秒
    PRIMARY KEY (id)
) STRICT;

CREATE UNIQUE INDEX application_name ON application (name);

-- 命名空间
CREATE TABLE namespace (
    id             BLOB    NOT NULL, -- 命名空间标识
    application_id BLOB    NOT NULL, -- 所属应用标识
    name           BLOB    NOT NULL, -- 命名空间名称，应用内唯一
    environment    BLOB    NOT NULL, -- 环境标签
    state          INTEGER NOT NULL, -- 状态：1 启用，2 停用
    created_at     INTEGER NOT NULL, -- 创建时间，UTC 微秒
    updated_at     INTEGER NOT NULL, -- 更新时间，UTC 微秒
    PRIMARY KEY (id)
) STRICT;

CREATE UNIQUE INDEX namespace_name ON namespace (application_id, name);

-- 队列
CREATE TABLE queue (
    id           BLOB    NOT NULL, -- 队列标识
    namespace_id BLOB    NOT NULL, -- 所属命名空间标识
    name         BLOB    NOT NULL, -- 队列名称，命名空间内唯一
    paused       INTEGER NOT NULL DEFAULT 0, -- 是否暂停派发：0 否，1 是
    revision     INTEGER NOT NULL DEFAULT 1, -- 修订号，每次变更加一
    created_at   INTEGER NOT NULL, -- 创建时间，UTC 微秒
    updated_at   INTEGER NOT NULL, -- 更新时间，UTC 微秒
    PRIMARY KEY (id)
) STRICT;

CREATE UNIQUE INDEX queue_name ON queue (namespace_id, name);

-- 访问凭证
CREATE TABLE credential (
    id            BLOB    NOT NULL, -- 凭证标识
    namespace_id  BLOB    NOT NULL, -- 所属命名空间标识
    name          BLOB    NOT NULL, -- 凭证名称
    secret_digest BLOB    NOT NULL, -- 令牌的 SHA-256 摘要，不保存令牌本身
    permissions   BLOB    NOT NULL, -- 权限列表，逗号分隔
    all_queues    INTEGER NOT NULL, -- 是否可用全部队列：0 否，1 是
    expires_at    INTEGER NULL, -- 到期时间，UTC 微秒，空为不到期
    revoked_at    INTEGER NULL, -- 吊销时间，UTC 微秒，空为未吊销
    created_at    INTEGER NOT NULL, -- 创建时间，UTC 微秒
    PRIMARY KEY (id)
) STRICT;

CREATE INDEX credential_namespace ON credential (namespace_id);

-- 凭证的队列范围
CREATE TABLE credential_queue (
    credential_id BLOB NOT NULL, -- 凭证标识
    queue_id      BLOB NOT NULL, -- 允许使用的队列标识
    PRIMARY KEY (credential_id, queue_id)
) STRICT, WITHOUT ROWID;
