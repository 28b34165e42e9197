CREATE TABLE IF NOT EXISTS handoff_ticket (
  ticket_key      VARBINARY(512)  NOT NULL COMMENT '幂等键,由业务给出,逐字节比较',
  generation      BIGINT UNSIGNED NOT NULL COMMENT '当前代次,从 1 起,只增不减',
  source          VARBINARY(512)  NOT NULL COMMENT '发起方,领取前的负责人',
  addressee       VARBINARY(512)  NOT NULL COMMENT '指定接收方;accepted 时即负责人',
  reply_to        VARBINARY(1024) NOT NULL COMMENT '回执地址',
  payload         LONGBLOB        NOT NULL COMMENT '载荷,原样携带',
  ttl_ns          BIGINT          NOT NULL COMMENT '时限(纳秒),领取与回执共用',
  deadline        BIGINT          NOT NULL COMMENT '截止时刻,本库时钟,UTC 微秒',
  state           VARBINARY(16)   NOT NULL COMMENT 'offered/accepted/closed/expired/withdrawn',
  token           VARBINARY(64)   NOT NULL COMMENT '本代领取令牌;空 = 未领取;收口后保留',
  receipt_at      BIGINT          NOT NULL COMMENT '回执结算时刻,UTC 微秒;0 = 无',
  receipt_status  VARBINARY(16)   NOT NULL COMMENT 'done/failed/refused;空 = 无',
  receipt_summary LONGBLOB        NOT NULL COMMENT '回执结论',
  receipt_failure LONGBLOB        NOT NULL COMMENT '失败或拒绝原因',
  artifacts       LONGBLOB        NOT NULL COMMENT '产出物引用,JSON 数组,元素为 base64',
  PRIMARY KEY (ticket_key)
) ENGINE = InnoDB COMMENT = '交接单,每个幂等键一行,只存当前代;行不可删除,否则代次重来'
