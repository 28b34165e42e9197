-- additive: a relay of release 1 neither reads nor writes the new column and tables

-- 人工是否已同意在最迟发送时间之后仍发送：0 否，1 是
ALTER TABLE orbit_outbox ADD COLUMN late_allowed INTEGER NOT NULL DEFAULT 0;

-- 发件箱各行除已接受之外的应答记录，每行条数有上限
CREATE TABLE orbit_outbox_answer (
    row_seq           INTEGER NOT NULL, -- 发件箱行号
    slot              INTEGER NOT NULL, -- 位置：0 为未发送即阻塞，1 至 32 为最初的应答，33 至 64 循环存放最近的应答
    attempt           INTEGER NOT NULL, -- 第几次已记录的发送，0 为尚未发送过
    leader            BLOB    NOT NULL, -- 发送者：当时的领导者名称
    epoch             INTEGER NOT NULL, -- 发送者的领导纪元
    outcome           INTEGER NOT NULL, -- 结果类别，编码同发件箱
    outcome_unknown   INTEGER NOT NULL, -- 此次或更早的发送是否结果未知：0 否，1 是
    request_sha256    BLOB    NOT NULL, -- 所发送原文的 SHA-256
    answer_status     INTEGER NOT NULL, -- 应答的 HTTP 状态码，0 为没有应答
    answer_code       BLOB    NOT NULL, -- 应答的错误码
    answer_message    BLOB    NOT NULL, -- 应答的说明，过长时截断
    answer_digest     BLOB    NOT NULL, -- 应答所带的内容摘要
    answer_request_id BLOB    NOT NULL, -- 应答的请求标识，全零为没有
    created_at        INTEGER NOT NULL, -- 记录时间，数据库时钟，UTC 微秒
    PRIMARY KEY (row_seq, slot)
) STRICT, WITHOUT ROWID;

-- 领导者所见的目标状况，供查看状态
CREATE TABLE orbit_outbox_target (
    shard      INTEGER NOT NULL, -- 分片号
    target     BLOB    NOT NULL, -- 目标名称
    epoch      INTEGER NOT NULL, -- 写入者的领导纪元，与租约不同即已过时
    gate       BLOB    NOT NULL, -- 闸门：open 放行，trial 试发一行，held 等待目标要求的时间，paused 暂停，unclaimed 没有凭证
    error      BLOB    NOT NULL, -- 最近一次目标级错误，过长时截断
    accepted   INTEGER NOT NULL, -- 本次领导以来被接受的行数
    per_minute INTEGER NOT NULL, -- 最近一段时间内每分钟被接受的行数
    updated_at INTEGER NOT NULL, -- 写入时间，数据库时钟，UTC 微秒
    PRIMARY KEY (shard, target)
) STRICT, WITHOUT ROWID;
