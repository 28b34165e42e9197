-- 优先级，大者先派发
ALTER TABLE task ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;

-- 派发通道，队列与处理器的散列
ALTER TABLE task ADD COLUMN lane INTEGER NOT NULL DEFAULT 0;

-- 派发状态：0 无，1 就绪，2 延迟，3 待资源键
ALTER TABLE task ADD COLUMN dispatch_state INTEGER NOT NULL DEFAULT 0;

-- 派发索引通道：就绪为通道，延迟为 0，否则为空
ALTER TABLE task ADD COLUMN dispatch_lane INTEGER NULL;

-- 派发次序，小者先派发
ALTER TABLE task ADD COLUMN order_value INTEGER NOT NULL DEFAULT 0;

CREATE INDEX task_claim ON task (dispatch_lane, order_value, id);

CREATE INDEX task_parked ON task (concurrency_key_digest, dispatch_state, lane, order_value, id);

UPDATE task SET dispatch_state = 2, dispatch_lane = 0, order_value = available_at
WHERE state = 1;
