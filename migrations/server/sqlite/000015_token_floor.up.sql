-- additive: a server of release 14 neither reads nor writes the new table

-- 许可令牌的下限
CREATE TABLE token_floor (
    namespace_id BLOB    NOT NULL, -- 命名空间标识，全零为全部命名空间
    version      BLOB    NOT NULL DEFAULT x'0000000000000000', -- 新建资源键的起始令牌，只增不减
    updated_at   INTEGER NOT NULL, -- 更新时间，UTC 微秒，零为从未提升
    PRIMARY KEY (namespace_id)
) STRICT, WITHOUT ROWID;

INSERT INTO token_floor (namespace_id, updated_at) VALUES (X'00000000000000000000000000000000', 0);
