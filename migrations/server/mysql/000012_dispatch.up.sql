ALTER TABLE task
    ADD COLUMN priority       TINYINT NOT NULL DEFAULT 0 COMMENT '优先级，大者先派发',
    ADD COLUMN lane           BIGINT  NOT NULL DEFAULT 0 COMMENT '派发通道，队列与处理器的散列',
    ADD COLUMN dispatch_state TINYINT NOT NULL DEFAULT 0 COMMENT '派发状态：0 无，1 就绪，2 延迟，3 待资源键',
    ADD COLUMN dispatch_lane  BIGINT  NULL COMMENT '派发索引通道：就绪为通道，延迟为 0，否则为空',
    ADD COLUMN order_value    BIGINT  NOT NULL DEFAULT 0 COMMENT '派发次序，小者先派发',
    ADD KEY task_claim (dispatch_lane, order_value, id),
    ADD KEY task_parked (concurrency_key_digest, dispatch_state, lane, order_value, id);

UPDATE task SET dispatch_state = 2, dispatch_lane = 0, order_value = available_at
WHERE state = 1;
