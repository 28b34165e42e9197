-- 事务发件箱：与业务变更同一事务写入的冻结请求及其投递结果
CREATE TABLE orbit_outbox (
    seq               INTEGER PRIMARY KEY AUTOINCREMENT, -- 行号，自增，只作标识，不代表提交顺序
    identity          BLOB    NOT NULL, -- 命令身份摘要：目标、操作、任务标识（或空）与幂等键的 SHA-256，冻结
    operation         INTEGER NOT NULL, -- 操作：1 提交任务，2 取消任务，冻结
    operation_task_id BLOB    NOT NULL, -- 操作所针对的任务标识，提交任务时为空，冻结
    shard             INTEGER NOT NULL, -- 分片号，由身份摘要得出，冻结
    lane              INTEGER NOT NULL, -- 通道：目标与队列的八字节摘要，冻结
    size              INTEGER NOT NULL, -- 请求字节数，冻结
    target            BLOB    NOT NULL, -- 目标名称：请求所属的任务服务与命名空间，冻结
    idempotency_key   BLOB    NOT NULL, -- 幂等键，按字节比较，冻结
    queue_id          BLOB    NULL, -- 队列标识，取消任务时为空，冻结
    handler           BLOB    NOT NULL, -- 处理器名称，取消任务时为空串，冻结
    request           BLOB    NOT NULL, -- 请求原文，每次发送都逐字节使用它，冻结
    request_sha256    BLOB    NOT NULL, -- 请求原文的 SHA-256，发送前核对，冻结
    content_algorithm BLOB    NOT NULL, -- 内容摘要的算法名，冻结
    content_digest    BLOB    NOT NULL, -- 内容摘要，判断两个请求内容是否相同，冻结
    traceparent       BLOB    NOT NULL, -- W3C 追踪上下文，空串为没有，冻结
    created_at        INTEGER NOT NULL, -- 写入时间，数据库时钟，UTC 微秒，冻结
    not_before        INTEGER NULL, -- 最早发送时间，UTC 微秒，空为不限，冻结
    not_after         INTEGER NULL, -- 最迟发送时间，UTC 微秒，空为不限，冻结
    state             INTEGER NOT NULL, -- 状态：1 待发送，2 已被平台接受，3 已拒绝，4 已阻塞待人工，5 已放弃
    due_at            INTEGER NOT NULL, -- 下次可发送时间，UTC 微秒；不再待发送时为 0
    window_from       INTEGER NOT NULL, -- 幂等保护期的起点，UTC 微秒；人工接受重复风险后重新起算
    attempts          INTEGER NOT NULL DEFAULT 0, -- 已记录的发送次数
    outcome           INTEGER NOT NULL DEFAULT 0, -- 最近一次结果的类别：0 尚无记录，1 已接受，2 未知，3 暂未接受，4 被拒绝，5 内容冲突，6 应答不符，7 需人工，8 过期不可重发，9 超过最迟发送时间，10 原文损坏
    outcome_unknown   INTEGER NOT NULL DEFAULT 0, -- 是否有过结果未知且尚未查明的发送：0 否，1 是
    answer_status     INTEGER NOT NULL DEFAULT 0, -- 最近应答的 HTTP 状态码，0 为没有应答
    answer_code       BLOB    NOT NULL DEFAULT x'', -- 最近应答的错误码
    answer_message    BLOB    NOT NULL DEFAULT x'', -- 最近应答的说明，过长时截断
    answer_digest     BLOB    NOT NULL DEFAULT x'', -- 最近应答所带的内容摘要，与本行不同才记录
    answer_request_id BLOB    NOT NULL DEFAULT x'00000000000000000000000000000000', -- 最近应答的请求标识，供排查，全零为没有
    task_id           BLOB    NOT NULL DEFAULT x'00000000000000000000000000000000', -- 平台接受后的任务标识，全零为尚未接受
    deduplicated      INTEGER NOT NULL DEFAULT 0, -- 平台是否以先前的回执作答：0 否，1 是
    accepted_at       INTEGER NOT NULL DEFAULT 0, -- 平台接受的时间，平台时钟，UTC 微秒，0 为尚未接受
    settled_at        INTEGER NOT NULL DEFAULT 0, -- 离开待发送状态的时间，数据库时钟，UTC 微秒，0 为仍待发送
    CONSTRAINT orbit_outbox_due_only_pending CHECK ((state = 1) = (due_at > 0))
) STRICT;

CREATE UNIQUE INDEX orbit_outbox_identity ON orbit_outbox (identity);
CREATE INDEX orbit_outbox_due ON orbit_outbox (state, shard, lane, due_at, seq, size);

-- 发件箱分片的领导租约
CREATE TABLE orbit_outbox_lease (
    shard             INTEGER NOT NULL, -- 分片号
    leader            BLOB    NOT NULL, -- 当前或上一个领导者的名称，供人查看
    holder            BLOB    NOT NULL, -- 本次领导的随机标识，全零为已主动释放
    epoch             INTEGER NOT NULL, -- 领导纪元，只增不减，每次换领导或释放加一
    since_at          INTEGER NOT NULL, -- 本次领导开始时间，数据库时钟，UTC 微秒
    expires_at        INTEGER NOT NULL, -- 租约到期时间，数据库时钟，UTC 微秒，0 为已释放
    PRIMARY KEY (shard)
) STRICT, WITHOUT ROWID;

-- 人工暂停发送的范围
CREATE TABLE orbit_outbox_hold (
    target            BLOB    NOT NULL, -- 被暂停的目标名称，空串为全部目标
    queue_id          BLOB    NOT NULL, -- 被暂停的队列标识（十六进制），空串为目标的全部队列
    operator          BLOB    NOT NULL, -- 操作人
    reason            BLOB    NOT NULL, -- 原因
    created_at        INTEGER NOT NULL, -- 暂停时间，数据库时钟，UTC 微秒
    PRIMARY KEY (target, queue_id)
) STRICT, WITHOUT ROWID;

-- 发件箱的人工操作与状态改写的审计记录
CREATE TABLE orbit_outbox_journal (
    id                INTEGER PRIMARY KEY AUTOINCREMENT, -- 记录号，自增
    row_seq           INTEGER NOT NULL, -- 发件箱行号，0 为暂停范围的变更
    action            BLOB    NOT NULL, -- 动作：requeue、discard、accepted、hold、unhold
    operator          BLOB    NOT NULL, -- 操作人，中继写入时为领导者名称
    reason            BLOB    NOT NULL, -- 原因
    state_before      INTEGER NOT NULL, -- 变更前的状态，0 为不适用
    state_after       INTEGER NOT NULL, -- 变更后的状态，0 为不适用
    outcome           INTEGER NOT NULL DEFAULT 0, -- 变更前的结果类别，编码同发件箱
    outcome_unknown   INTEGER NOT NULL DEFAULT 0, -- 变更前是否有结果未知的发送：0 否，1 是
    answer_status     INTEGER NOT NULL DEFAULT 0, -- 变更前应答的 HTTP 状态码
    answer_code       BLOB    NOT NULL DEFAULT x'', -- 变更前应答的错误码
    answer_message    BLOB    NOT NULL DEFAULT x'', -- 变更前应答的说明
    answer_digest     BLOB    NOT NULL DEFAULT x'', -- 变更前应答所带的内容摘要
    answer_request_id BLOB    NOT NULL DEFAULT x'00000000000000000000000000000000', -- 变更前应答的请求标识，全零为没有
    created_at        INTEGER NOT NULL -- 记录时间，数据库时钟，UTC 微秒
) STRICT;

CREATE INDEX orbit_outbox_journal_row ON orbit_outbox_journal (row_seq);
