-- additive: a server of release 14 neither reads nor writes the new table

CREATE TABLE token_floor (
    namespace_id BINARY(16)      NOT NULL COMMENT '命名空间标识，全零为全部命名空间',
    version      BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '新建资源键的起始令牌，只增不减',
    updated_at   BIGINT          NOT NULL COMMENT '更新时间，UTC 微秒，零为从未提升',
    PRIMARY KEY (namespace_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='许可令牌的下限';

INSERT INTO token_floor (namespace_id, updated_at) VALUES (X'00000000000000000000000000000000', 0);
