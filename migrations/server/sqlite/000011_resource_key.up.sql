-- 资源键，按字节比较，空为没有
ALTER TABLE task ADD COLUMN concurrency_key BLOB NOT NULL DEFAULT x'';

-- 资源键摘要，即许可行主键，空为没有
ALTER TABLE task ADD COLUMN concurrency_key_digest BLOB NOT NULL DEFAULT x'';

-- 许可令牌，0 为没有资源键
ALTER TABLE attempt ADD COLUMN concurrency_token BLOB NOT NULL DEFAULT x'0000000000000000';

-- 是否支持资源键：0 否，1 是
ALTER TABLE worker_session ADD COLUMN concurrency_keys INTEGER NOT NULL DEFAULT 0;
