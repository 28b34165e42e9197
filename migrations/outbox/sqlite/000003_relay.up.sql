-- additive: a relay of release 2 neither reads nor writes the new table, and leads what nobody leads

-- 在场的中继，用来在它们之间分配分片
CREATE TABLE orbit_outbox_relay (
    holder     BLOB    NOT NULL, -- 中继本次运行的随机标识
    name       BLOB    NOT NULL, -- 中继名称，供人查看
    expires_at INTEGER NOT NULL, -- 在场到期时间，数据库时钟，UTC 微秒；到期后不再分得分片
    PRIMARY KEY (holder)
) STRICT, WITHOUT ROWID;
