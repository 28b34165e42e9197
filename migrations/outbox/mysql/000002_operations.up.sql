-- additive: a relay of release 1 neither reads nor writes the new column and tables

ALTER TABLE orbit_outbox
    ADD COLUMN late_allowed TINYINT NOT NULL DEFAULT 0 COMMENT '人工是否已同意在最迟发送时间之后仍发送：0 否，1 是';

CREATE TABLE orbit_outbox_answer (
    row_seq           BIGINT          NOT NULL COMMENT '发件箱行号',
    slot              INT             NOT NULL COMMENT '位置：0 为未发送即阻塞，1 至 32 为最初的应答，33 至 64 循环存放最近的应答',
    attempt           INT             NOT NULL COMMENT '第几次已记录的发送，0 为尚未发送过',
    leader            VARBINARY(128)  NOT NULL COMMENT '发送者：当时的领导者名称',
    epoch             BIGINT          NOT NULL COMMENT '发送者的领导纪元',
    outcome           TINYINT         NOT NULL COMMENT '结果类别，编码同发件箱',
    outcome_unknown   TINYINT         NOT NULL COMMENT '此次或更早的发送是否结果未知：0 否，1 是',
    request_sha256    BINARY(32)      NOT NULL COMMENT '所发送原文的 SHA-256',
    answer_status     SMALLINT        NOT NULL COMMENT '应答的 HTTP 状态码，0 为没有应答',
    answer_code       VARBINARY(64)   NOT NULL COMMENT '应答的错误码',
    answer_message    VARBINARY(1024) NOT NULL COMMENT '应答的说明，过长时截断',
    answer_digest     VARBINARY(128)  NOT NULL COMMENT '应答所带的内容摘要',
    answer_request_id BINARY(16)      NOT NULL COMMENT '应答的请求标识，全零为没有',
    created_at        BIGINT          NOT NULL COMMENT '记录时间，数据库时钟，UTC 微秒',
    PRIMARY KEY (row_seq, slot)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='发件箱各行除已接受之外的应答记录，每行条数有上限';

CREATE TABLE orbit_outbox_target (
    shard        INT             NOT NULL COMMENT '分片号',
    target       VARBINARY(64)   NOT NULL COMMENT '目标名称',
    epoch        BIGINT          NOT NULL COMMENT '写入者的领导纪元，与租约不同即已过时',
    gate         VARBINARY(16)   NOT NULL COMMENT '闸门：open 放行，trial 试发一行，held 等待目标要求的时间，paused 暂停，unclaimed 没有凭证',
    error        VARBINARY(1024) NOT NULL COMMENT '最近一次目标级错误，过长时截断',
    accepted     BIGINT          NOT NULL COMMENT '本次领导以来被接受的行数',
    per_minute   BIGINT          NOT NULL COMMENT '最近一段时间内每分钟被接受的行数',
    updated_at   BIGINT          NOT NULL COMMENT '写入时间，数据库时钟，UTC 微秒',
    PRIMARY KEY (shard, target)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='领导者所见的目标状况，供查看状态';
