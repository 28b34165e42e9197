CREATE TABLE orbit_guard_key (
    namespace    VARBINARY(764)  NOT NULL COMMENT '签发许可序号的命名空间，按字节比较',
    resource_key VARBINARY(764)  NOT NULL COMMENT '资源键，按字节比较，最多 191 个四字节字符',
    highest      BIGINT UNSIGNED NOT NULL COMMENT '已见过的最高许可序号，只升不降，0 表示尚未见过',
    attempt      VARBINARY(764)  NOT NULL COMMENT '最高序号所属的尝试，空为由核对方抬高，不属于任何尝试',
    raised_at    BIGINT          NOT NULL COMMENT '最近一次抬高的时间，UTC 微秒，取自数据库时钟，0 表示尚未抬高',
    PRIMARY KEY (namespace, resource_key)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COMMENT='资源守卫：每个资源键已见过的最高许可序号，行不得删除';

CREATE TABLE orbit_guard_operation (
    namespace    VARBINARY(764)  NOT NULL COMMENT '签发许可序号的命名空间，按字节比较',
    resource_key VARBINARY(764)  NOT NULL COMMENT '资源键，按字节比较',
    operation    VARBINARY(764)  NOT NULL COMMENT '稳定的操作身份，重试时不变，资源键内唯一',
    digest       BINARY(32)      NOT NULL COMMENT '操作内容的 SHA-256，用于发现同一身份的不同内容',
    token        BIGINT UNSIGNED NOT NULL COMMENT '执行该操作时出示的许可序号',
    attempt      VARBINARY(764)  NOT NULL COMMENT '执行该操作的尝试',
    receipt      MEDIUMBLOB      NULL COMMENT '操作回执原文，重复请求时原样返回，空为没有回执',
    applied_at   BIGINT          NOT NULL COMMENT '执行时间，UTC 微秒，取自数据库时钟',
    PRIMARY KEY (namespace, resource_key, operation)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COMMENT='资源守卫：已经执行的操作，须保留到平台的 90 天幂等期之后';
