CREATE TABLE orbit_guard_key (
    namespace    BYTEA  NOT NULL,
    resource_key BYTEA  NOT NULL,
    highest      BYTEA  NOT NULL,
    attempt      BYTEA  NOT NULL,
    raised_at    BIGINT NOT NULL,
    PRIMARY KEY (namespace, resource_key)
);

COMMENT ON TABLE orbit_guard_key IS '资源守卫：每个资源键已见过的最高许可序号，行不得删除';
COMMENT ON COLUMN orbit_guard_key.namespace IS '签发许可序号的命名空间，按字节比较';
COMMENT ON COLUMN orbit_guard_key.resource_key IS '资源键，按字节比较，最多 191 个四字节字符';
COMMENT ON COLUMN orbit_guard_key.highest IS '已见过的最高许可序号，八字节大端，只升不降，全零表示尚未见过';
COMMENT ON COLUMN orbit_guard_key.attempt IS '最高序号所属的尝试，空为由核对方抬高，不属于任何尝试';
COMMENT ON COLUMN orbit_guard_key.raised_at IS '最近一次抬高的时间，UTC 微秒，取自数据库时钟，0 表示尚未抬高';

CREATE TABLE orbit_guard_operation (
    namespace    BYTEA  NOT NULL,
    resource_key BYTEA  NOT NULL,
    operation    BYTEA  NOT NULL,
    digest       BYTEA  NOT NULL,
    token        BYTEA  NOT NULL,
    attempt      BYTEA  NOT NULL,
    receipt      BYTEA  NULL,
    applied_at   BIGINT NOT NULL,
    PRIMARY KEY (namespace, resource_key, operation)
);

COMMENT ON TABLE orbit_guard_operation IS '资源守卫：已经执行的操作，须保留到平台的 90 天幂等期之后';
COMMENT ON COLUMN orbit_guard_operation.namespace IS '签发许可序号的命名空间，按字节比较';
COMMENT ON COLUMN orbit_guard_operation.resource_key IS '资源键，按字节比较';
COMMENT ON COLUMN orbit_guard_operation.operation IS '稳定的操作身份，重试时不变，资源键内唯一';
COMMENT ON COLUMN orbit_guard_operation.digest IS '操作内容的 SHA-256，用于发现同一身份的不同内容';
COMMENT ON COLUMN orbit_guard_operation.token IS '执行该操作时出示的许可序号，八字节大端';
COMMENT ON COLUMN orbit_guard_operation.attempt IS '执行该操作的尝试';
COMMENT ON COLUMN orbit_guard_operation.receipt IS '操作回执原文，重复请求时原样返回，空为没有回执';
COMMENT ON COLUMN orbit_guard_operation.applied_at IS '执行时间，UTC 微秒，取自数据库时钟';
