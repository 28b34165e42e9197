-- 队列与资源键的许可
CREATE TABLE resource (
    digest         BLOB    NOT NULL, -- 种类、命名空间与键的 SHA-256 摘要
    kind           INTEGER NOT NULL, -- 种类：1 队列，2 资源键
    namespace_id   BLOB    NOT NULL, -- 命名空间标识
    resource_key   BLOB    NOT NULL, -- 资源键，按字节比较
    version        BLOB    NOT NULL DEFAULT x'0000000000000000', -- 许可令牌的最近值，只增不减
    holder_task_id BLOB    NULL, -- 持有许可的任务标识，空为空闲
    holder_epoch   INTEGER NULL, -- 持有许可的执行纪元，空为空闲
    created_at     INTEGER NOT NULL, -- 创建时间，UTC 微秒
    PRIMARY KEY (digest)
) STRICT, WITHOUT ROWID;
