-- 任务
CREATE TABLE task (
    id                BLOB    NOT NULL, -- 任务标识
    namespace_id      BLOB    NOT NULL, -- 所属命名空间标识
    queue_id          BLOB    NOT NULL, -- 所属队列标识
    state             INTEGER NOT NULL, -- 状态：1 等待，2 已租，3 运行，4 待复核，5 成功，6 失败，7 已取消
    revision          INTEGER NOT NULL, -- 修订号，每次可见变更加一
    handler           BLOB    NOT NULL, -- 处理器名称
    handler_version   BLOB    NOT NULL, -- 处理器版本
    payload_version   BLOB    NOT NULL, -- 载荷版本
    payload           BLOB    NOT NULL, -- 载荷原文，冻结后不再改写
    business_key      BLOB    NOT NULL, -- 业务键，按字节比较，空为没有
    available_at      INTEGER NOT NULL, -- 最早可派发时间，UTC 微秒
    start_deadline_at INTEGER NULL, -- 最迟开始时间，UTC 微秒，空为不限
    deadline_at       INTEGER NOT NULL, -- 任务截止时间，UTC 微秒
    task_timeout_ms   INTEGER NOT NULL, -- 任务总时限，毫秒
    completed_at      INTEGER NULL, -- 进入终态的时间，UTC 微秒
    credential_id     BLOB    NOT NULL, -- 提交任务的凭证标识
    created_at        INTEGER NOT NULL, -- 创建时间，UTC 微秒
    updated_at        INTEGER NOT NULL, -- 更新时间，UTC 微秒
    PRIMARY KEY (id)
) STRICT;

CREATE INDEX task_list ON task (queue_id, created_at, id);

CREATE INDEX task_state ON task (queue_id, state, created_at, id);

CREATE INDEX task_business ON task (queue_id, business_key, created_at, id);

-- 任务事件
CREATE TABLE task_event (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT, -- 事件序号
    task_id       BLOB    NOT NULL, -- 任务标识
    revision      INTEGER NOT NULL, -- 变更后的任务修订号
    kind          BLOB    NOT NULL, -- 事件种类
    attempt_id    BLOB    NULL, -- 相关执行标识，空为无关执行
    credential_id BLOB    NULL, -- 操作凭证标识，空为服务自身
    reason        BLOB    NOT NULL DEFAULT x'', -- 原因码，空为没有
    created_at    INTEGER NOT NULL -- 发生时间，UTC 微秒
) STRICT;

CREATE INDEX task_event_task ON task_event (task_id, seq);

-- 审计记录
CREATE TABLE audit (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT, -- 审计序号
    namespace_id    BLOB    NULL, -- 命名空间标识，空为不属于命名空间
    credential_id   BLOB    NULL, -- 操作凭证标识，空为没有凭证
    actor           BLOB    NOT NULL DEFAULT x'', -- 操作人，空为凭证自身
    action          BLOB    NOT NULL, -- 操作名称
    target_id       BLOB    NULL, -- 操作对象标识
    queue_id        BLOB    NULL, -- 相关队列标识
    handler         BLOB    NOT NULL DEFAULT x'', -- 相关处理器名称
    handler_version BLOB    NOT NULL DEFAULT x'', -- 相关处理器版本
    request_id      BLOB    NULL, -- 请求标识
    created_at      INTEGER NOT NULL -- 发生时间，UTC 微秒
) STRICT;

CREATE INDEX audit_namespace ON audit (namespace_id, created_at);

CREATE INDEX audit_target ON audit (target_id);

-- 幂等记录
CREATE TABLE idempotency (
    digest          BLOB    NOT NULL, -- 命名空间、操作、任务与幂等键的 SHA-256 摘要
    namespace_id    BLOB    NOT NULL, -- 命名空间标识
    operation       INTEGER NOT NULL, -- 操作：1 提交，2 取消，其余见代码
    task_id         BLOB    NULL, -- 命令产生或作用的任务标识
    idempotency_key BLOB    NOT NULL, -- 幂等键原文
    algorithm       BLOB    NOT NULL, -- 内容摘要算法
    content_digest  BLOB    NOT NULL, -- 请求内容摘要
    status          INTEGER NOT NULL, -- 首次回答的 HTTP 状态码
    receipt         BLOB    NOT NULL, -- 首次回答原文，不含载荷
    payload_at      INTEGER NOT NULL, -- 载荷在回答中的插入位置，字节
    created_at      INTEGER NOT NULL, -- 创建时间，UTC 微秒
    retain_until    INTEGER NOT NULL, -- 保留到的时间，UTC 微秒
    PRIMARY KEY (digest)
) STRICT;

CREATE INDEX idempotency_retain ON idempotency (retain_until);
