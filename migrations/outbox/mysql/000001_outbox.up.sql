CREATE TABLE orbit_outbox (
    seq               BIGINT          NOT NULL AUTO_INCREMENT COMMENT '行号，自增，只作标识，不代表提交顺序',
    identity          BINARY(32)      NOT NULL COMMENT '命令身份摘要：目标、操作、任务标识（或空）与幂等键的 SHA-256，冻结',
    operation         TINYINT         NOT NULL COMMENT '操作：1 提交任务，2 取消任务，冻结',
    operation_task_id VARBINARY(16)   NOT NULL COMMENT '操作所针对的任务标识，提交任务时为空，冻结',
    shard             INT             NOT NULL COMMENT '分片号，由身份摘要得出，冻结',
    lane              BIGINT          NOT NULL COMMENT '通道：目标与队列的八字节摘要，冻结',
    size              INT             NOT NULL COMMENT '请求字节数，冻结',
    target            VARBINARY(64)   NOT NULL COMMENT '目标名称：请求所属的任务服务与命名空间，冻结',
    idempotency_key   VARBINARY(128)  NOT NULL COMMENT '幂等键，按字节比较，冻结',
    queue_id          BINARY(16)      NULL COMMENT '队列标识，取消任务时为空，冻结',
    handler           VARBINARY(128)  NOT NULL COMMENT '处理器名称，取消任务时为空串，冻结',
    request           MEDIUMBLOB      NOT NULL COMMENT '请求原文，每次发送都逐字节使用它，冻结',
    request_sha256    BINARY(32)      NOT NULL COMMENT '请求原文的 SHA-256，发送前核对，冻结',
    content_algorithm VARBINARY(32)   NOT NULL COMMENT '内容摘要的算法名，冻结',
    content_digest    BINARY(32)      NOT NULL COMMENT '内容摘要，判断两个请求内容是否相同，冻结',
    traceparent       VARBINARY(128)  NOT NULL COMMENT 'W3C 追踪上下文，空串为没有，冻结',
    created_at        BIGINT          NOT NULL COMMENT '写入时间，数据库时钟，UTC 微秒，冻结',
    not_before        BIGINT          NULL COMMENT '最早发送时间，UTC 微秒，空为不限，冻结',
    not_after         BIGINT          NULL COMMENT '最迟发送时间，UTC 微秒，空为不限，冻结',
    state             TINYINT         NOT NULL COMMENT '状态：1 待发送，2 已被平台接受，3 已拒绝，4 已阻塞待人工，5 已放弃',
    due_at            BIGINT          NOT NULL COMMENT '下次可发送时间，UTC 微秒；不再待发送时为 0',
    window_from       BIGINT          NOT NULL COMMENT '幂等保护期的起点，UTC 微秒；人工接受重复风险后重新起算',
    attempts          INT             NOT NULL DEFAULT 0 COMMENT '已记录的发送次数',
    outcome           TINYINT         NOT NULL DEFAULT 0 COMMENT '最近一次结果的类别：0 尚无记录，1 已接受，2 未知，3 暂未接受，4 被拒绝，5 内容冲突，6 应答不符，7 需人工，8 过期不可重发，9 超过最迟发送时间，10 原文损坏',
    outcome_unknown   TINYINT         NOT NULL DEFAULT 0 COMMENT '是否有过结果未知且尚未查明的发送：0 否，1 是',
    answer_status     SMALLINT        NOT NULL DEFAULT 0 COMMENT '最近应答的 HTTP 状态码，0 为没有应答',
    answer_code       VARBINARY(64)   NOT NULL DEFAULT '' COMMENT '最近应答的错误码',
    answer_message    VARBINARY(1024) NOT NULL DEFAULT '' COMMENT '最近应答的说明，过长时截断',
    answer_digest     VARBINARY(128)  NOT NULL DEFAULT '' COMMENT '最近应答所带的内容摘要，与本行不同才记录',
    answer_request_id BINARY(16)      NOT NULL DEFAULT x'00000000000000000000000000000000' COMMENT '最近应答的请求标识，供排查，全零为没有',
    task_id           BINARY(16)      NOT NULL DEFAULT x'00000000000000000000000000000000' COMMENT '平台接受后的任务标识，全零为尚未接受',
    deduplicated      TINYINT         NOT NULL DEFAULT 0 COMMENT '平台是否以先前的回执作答：0 否，1 是',
    accepted_at       BIGINT          NOT NULL DEFAULT 0 COMMENT '平台接受的时间，平台时钟，UTC 微秒，0 为尚未接受',
    settled_at        BIGINT          NOT NULL DEFAULT 0 COMMENT '离开待发送状态的时间，数据库时钟，UTC 微秒，0 为仍待发送',
    PRIMARY KEY (seq),
    UNIQUE KEY orbit_outbox_identity (identity),
    KEY orbit_outbox_due (state, shard, lane, due_at, seq, size),
    CONSTRAINT orbit_outbox_due_only_pending CHECK ((state = 1) = (due_at > 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='事务发件箱：与业务变更同一事务写入的冻结请求及其投递结果';

CREATE TABLE orbit_outbox_lease (
    shard      INT            NOT NULL COMMENT '分片号',
    leader     VARBINARY(128) NOT NULL COMMENT '当前或上一个领导者的名称，供人查看',
    holder     BINARY(16)     NOT NULL COMMENT '本次领导的随机标识，全零为已主动释放',
    epoch      BIGINT         NOT NULL COMMENT '领导纪元，只增不减，每次换领导或释放加一',
    since_at   BIGINT         NOT NULL COMMENT '本次领导开始时间，数据库时钟，UTC 微秒',
    expires_at BIGINT         NOT NULL COMMENT '租约到期时间，数据库时钟，UTC 微秒，0 为已释放',
    PRIMARY KEY (shard)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='发件箱分片的领导租约';

CREATE TABLE orbit_outbox_hold (
    target     VARBINARY(64)   NOT NULL COMMENT '被暂停的目标名称，空串为全部目标',
    queue_id   VARBINARY(32)   NOT NULL COMMENT '被暂停的队列标识（十六进制），空串为目标的全部队列',
    operator   VARBINARY(128)  NOT NULL COMMENT '操作人',
    reason     VARBINARY(1024) NOT NULL COMMENT '原因',
    created_at BIGINT          NOT NULL COMMENT '暂停时间，数据库时钟，UTC 微秒',
    PRIMARY KEY (target, queue_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='人工暂停发送的范围';

CREATE TABLE orbit_outbox_journal (
    id                BIGINT          NOT NULL AUTO_INCREMENT COMMENT '记录号，自增',
    row_seq           BIGINT          NOT NULL COMMENT '发件箱行号，0 为暂停范围的变更',
    action            VARBINARY(32)   NOT NULL COMMENT '动作：requeue、discard、accepted、hold、unhold',
    operator          VARBINARY(128)  NOT NULL COMMENT '操作人，中继写入时为领导者名称',
    reason            VARBINARY(1024) NOT NULL COMMENT '原因',
    state_before      TINYINT         NOT NULL COMMENT '变更前的状态，0 为不适用',
    state_after       TINYINT         NOT NULL COMMENT '变更后的状态，0 为不适用',
    outcome           TINYINT         NOT NULL DEFAULT 0 COMMENT '变更前的结果类别，编码同发件箱',
    outcome_unknown   TINYINT         NOT NULL DEFAULT 0 COMMENT '变更前是否有结果未知的发送：0 否，1 是',
    answer_status     SMALLINT        NOT NULL DEFAULT 0 COMMENT '变更前应答的 HTTP 状态码',
    answer_code       VARBINARY(64)   NOT NULL DEFAULT '' COMMENT '变更前应答的错误码',
    answer_message    VARBINARY(1024) NOT NULL DEFAULT '' COMMENT '变更前应答的说明',
    answer_digest     VARBINARY(128)  NOT NULL DEFAULT '' COMMENT '变更前应答所带的内容摘要',
    answer_request_id BINARY(16)      NOT NULL DEFAULT x'00000000000000000000000000000000' COMMENT '变更前应答的请求标识，全零为没有',
    created_at        BIGINT          NOT NULL COMMENT '记录时间，数据库时钟，UTC 微秒',
    PRIMARY KEY (id),
    KEY orbit_outbox_journal_row (row_seq)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='发件箱的人工操作与状态改写的审计记录';
