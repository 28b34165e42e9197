ALTER TABLE attempt
    ADD COLUMN receipt       VARBINARY(64)   NOT NULL DEFAULT '' COMMENT '结束回执标识',
    ADD COLUMN finish_digest VARBINARY(32)   NOT NULL DEFAULT '' COMMENT '结束请求的摘要，空为未结束',
    ADD COLUMN finish_answer VARBINARY(255)  NOT NULL DEFAULT '' COMMENT '结束请求的回答，供重复请求',
    ADD COLUMN result        MEDIUMBLOB      NULL COMMENT '执行结果原文',
    ADD COLUMN error_text    VARBINARY(4096) NOT NULL DEFAULT '' COMMENT '错误说明',
    ADD COLUMN progress      VARBINARY(4096) NOT NULL DEFAULT '' COMMENT '最近进度说明',
    ADD COLUMN progress_at   BIGINT          NULL COMMENT '最近进度时间，UTC 微秒';

ALTER TABLE task
    ADD COLUMN result MEDIUMBLOB NULL COMMENT '任务结果原文';

CREATE TABLE evidence (
    id         BINARY(16)    NOT NULL COMMENT '证据标识',
    task_id    BINARY(16)    NOT NULL COMMENT '任务标识',
    attempt_id BINARY(16)    NOT NULL COMMENT '执行标识',
    kind       VARBINARY(32) NOT NULL COMMENT '证据种类',
    body       MEDIUMBLOB    NOT NULL COMMENT '证据原文',
    created_at BIGINT        NOT NULL COMMENT '创建时间，UTC 微秒',
    PRIMARY KEY (id),
    KEY evidence_task (task_id, created_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='执行证据';
