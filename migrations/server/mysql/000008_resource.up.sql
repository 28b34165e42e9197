CREATE TABLE resource (
    digest         BINARY(32)      NOT NULL COMMENT '种类、命名空间与键的 SHA-256 摘要',
    kind           TINYINT         NOT NULL COMMENT '种类：1 队列，2 资源键',
    namespace_id   BINARY(16)      NOT NULL COMMENT '命名空间标识',
    resource_key   VARBINARY(764)  NOT NULL COMMENT '资源键，按字节比较',
    version        BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '许可令牌的最近值，只增不减',
    holder_task_id BINARY(16)      NULL COMMENT '持有许可的任务标识，空为空闲',
    holder_epoch   BIGINT          NULL COMMENT '持有许可的执行纪元，空为空闲',
    created_at     BIGINT          NOT NULL COMMENT '创建时间，UTC 微秒',
    PRIMARY KEY (digest)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='队列与资源键的许可';
