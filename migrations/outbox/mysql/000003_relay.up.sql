-- additive: a relay of release 2 neither reads nor writes the new table, and leads what nobody leads

CREATE TABLE orbit_outbox_relay (
    holder     BINARY(16)     NOT NULL COMMENT '中继本次运行的随机标识',
    name       VARBINARY(128) NOT NULL COMMENT '中继名称，供人查看',
    expires_at BIGINT         NOT NULL COMMENT '在场到期时间，数据库时钟，UTC 微秒；到期后不再分得分片',
    PRIMARY KEY (holder)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='在场的中继，用来在它们之间分配分片';
