ALTER TABLE task
    ADD COLUMN concurrency_key        VARBINARY(764) NOT NULL DEFAULT '' COMMENT '资源键，按字节比较，空为没有',
    ADD COLUMN concurrency_key_digest VARBINARY(32)  NOT NULL DEFAULT '' COMMENT '资源键摘要，即许可行主键，空为没有';

ALTER TABLE attempt
    ADD COLUMN concurrency_token BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '许可令牌，0 为没有资源键';

ALTER TABLE worker_session
    ADD COLUMN concurrency_keys TINYINT NOT NULL DEFAULT 0 COMMENT '是否支持资源键：0 否，1 是';
