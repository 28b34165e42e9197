-- 所重试的任务标识，空为不是重试
ALTER TABLE task ADD COLUMN retry_of BLOB NULL;

-- 重试链的首个任务标识，空为自身
ALTER TABLE task ADD COLUMN operation_root BLOB NULL;

-- 人工复核
CREATE TABLE review (
    id            BLOB    NOT NULL, -- 复核标识
    task_id       BLOB    NOT NULL, -- 任务标识
    credential_id BLOB    NULL, -- 复核凭证标识，空为没有凭证
    actor         BLOB    NOT NULL, -- 复核人
    decision      INTEGER NOT NULL, -- 复核决定，取值见代码
    note          BLOB    NOT NULL, -- 复核说明
    evidence      BLOB    NULL, -- 复核依据原文
    created_at    INTEGER NOT NULL, -- 复核时间，UTC 微秒
    PRIMARY KEY (id)
) STRICT;

CREATE INDEX review_task ON review (task_id, created_at);
