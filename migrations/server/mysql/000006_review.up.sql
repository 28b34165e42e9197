ALTER TABLE task
    ADD COLUMN retry_of       BINARY(16) NULL COMMENT '所重试的任务标识，空为不是重试',
    ADD COLUMN operation_root BINARY(16) NULL COMMENT '重试链的首个任务标识，空为自身';

CREATE TABLE review (
    id            BINARY(16)      NOT NULL COMMENT '复核标识',
    task_id       BINARY(16)      NOT NULL COMMENT '任务标识',
    credential_id BINARY(16)      NULL COMMENT '复核凭证标识，空为没有凭证',
    actor         VARBINARY(128)  NOT NULL COMMENT '复核人',
    decision      TINYINT         NOT NULL COMMENT '复核决定，取值见代码',
    note          VARBINARY(4096) NOT NULL COMMENT '复核说明',
    evidence      MEDIUMBLOB      NULL COMMENT '复核依据原文',
    created_at    BIGINT          NOT NULL COMMENT '复核时间，UTC 微秒',
    PRIMARY KEY (id),
    KEY review_task (task_id, created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='人工复核';
