-- 资源守卫：每个资源键已见过的最高许可序号，行不得删除
CREATE TABLE orbit_guard_key (
    namespace    BLOB    NOT NULL, -- 签发许可序号的命名空间，按字节比较
    resource_key BLOB    NOT NULL, -- 资源键，按字节比较，最多 191 个四字节字符
    highest      BLOB    NOT NULL, -- 已见过的最高许可序号，八字节大端，只升不降，全零表示尚未见过
    attempt      BLOB    NOT NULL, -- 最高序号所属的尝试，空为由核对方抬高，不属于任何尝试
    raised_at    INTEGER NOT NULL, -- 最近一次抬高的时间，UTC 微秒，取自数据库时钟，0 表示尚未抬高
    PRIMARY KEY (namespace, resource_key)
) STRICT, WITHOUT ROWID;

-- 资源守卫：已经执行的操作，须保留到平台的 90 天幂等期之后
CREATE TABLE orbit_guard_operation (
    namespace    BLOB    NOT NULL, -- 签发许可序号的命名空间，按字节比较
    resource_key BLOB    NOT NULL, -- 资源键，按字节比较
    operation    BLOB    NOT NULL, -- 稳定的操作身份，重试时不变，资源键内唯一
    digest       BLOB    NOT NULL, -- 操作内容的 SHA-256，用于发现同一身份的不同内容
    token        BLOB    NOT NULL, -- 执行该操作时出示的许可序号，八字节大端
    attempt      BLOB    NOT NULL, -- 执行该操作的尝试
    receipt      BLOB    NULL, -- 操作回执原文，重复请求时原样返回，空为没有回执
    applied_at   INTEGER NOT NULL, -- 执行时间，UTC 微秒，取自数据库时钟
    PRIMARY KEY (namespace, resource_key, operation)
) STRICT;
