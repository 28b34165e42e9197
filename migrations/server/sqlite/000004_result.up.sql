-- 结束回执标识
ALTER TABLE attempt ADD COLUMN receipt BLOB NOT NULL DEFAULT x'';

-- 结束请求的摘要，空为未结束
ALTER TABLE attempt ADD COLUMN finish_digest BLOB NOT NULL DEFAULT x'';

-- 结束请求的回答，供重复请求
ALTER TABLE attempt ADD COLUMN finish_answer BLOB NOT NULL DEFAULT x'';

-- 执行结果原文
ALTER TABLE attempt ADD COLUMN result BLOB NULL;

-- 错误说明
ALTER TABLE attempt ADD COLUMN error_text BLOB NOT NULL DEFAULT x'';

-- 最近进度说明
ALTER TABLE attempt ADD COLUMN progress BLOB NOT NULL DEFAULT x'';

-- 最近进度时间，UTC 微秒
ALTER TABLE attempt ADD COLUMN progress_at INTEGER NULL;

-- 任务结果原文
ALTER TABLE task ADD COLUMN result BLOB NULL;

-- 执行证据
CREATE TABLE evidence (
    id         BLOB    NOT NULL, -- 证据标识
    task_id    BLOB    NOT NULL, -- 任务标识
    attempt_id BLOB    NOT NULL, -- 执行标识
    kind       BLOB    NOT NULL, -- 证据种类
    body       BLOB    NOT NULL, -- 证据原文
    created_at INTEGER NOT NULL, -- 创建时间，UTC 微秒
    PRIMARY KEY (id)
) STRICT;

CREATE INDEX evidence_task ON evidence (task_id, created_at, id);
